#!/usr/bin/python3
"""zeroctl plan as a person calls it: exit statuses, the text, the JSON against formulas."""
import json
import os
import subprocess
import sys
import tempfile

zeroctl, models = sys.argv[1:3]


def run(*arguments, status=0):
    done = subprocess.run([zeroctl, "plan", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    if status:
        assert not done.stdout and done.stderr.count("\n") == 1, (done.stdout, done.stderr)
        assert done.stderr.startswith("zeroctl plan: "), done.stderr
        return done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def plan(*arguments):
    answer = json.loads(run(*arguments, "--json"))
    return answer, {row["strategy"]: row for row in answer["strategies"]}


def check_text():
    text = run("--params", "7e9", "--layers", "32", "--world", "8", "--kept-grad", "bf16")
    for strategy, gigabytes in (("ddp", "112.000"), ("zero1", "38.500"), ("zero2", "26.250"),
                                ("zero3", "14.000")):
        lines = [line.split() for line in text.splitlines() if line.split()[:1] == [strategy]]
        assert len(lines) == 2 and lines[0][4] == gigabytes, (strategy, lines)
    assert "parameters 2 (bf16), kept gradients 2 (bf16), optimizer 12" in text
    text = run("--params", "7B", "--layers", "32", "--world", "8", "--gib")
    assert "126.000 (117.347)" in text, text
    assert "hybrid" not in text.split("advice:")[0]
    text = run("--params", "7B", "--layers", "32", "--world", "16", "--shard-size=8",
               "--device-memory", "40GB")
    assert "hybrid_zero2" in text and "  fits\n" in text and "zero2 fits" in text
    assert "Usage: zeroctl plan" in run("--help")


def check_json():
    psi, n = 64 * 8 * 32 * 1000, 8
    for optimizer, momentum, states in (("adamw", 0, 2), ("adam", 0, 2), ("lion", 0, 1),
                                        ("sgd", 0, 0), ("sgd", 0.9, 1)):
        answer, rows = plan("--params", str(psi), "--layers", "32", "--world", str(n),
                            "--optimizer", optimizer, "--momentum", str(momentum),
                            "--micro-batches", "4", "--wire-dtype", "bf16", "--gather-slots", "3",
                            "--grad-slots", "1")
        o = 4 * (1 + states)
        assert answer["bytes_per_element"] == {"parameters": 2, "kept_gradients": 4,
                                               "optimizer": o, "wire": 2}
        assert rows["ddp"]["states"] == (2 + 4 + o) * psi
        assert rows["zero1"]["states"] == (2 + 4) * psi + o * psi // n
        assert rows["zero2"]["states"] == 2 * psi + (4 + o) * psi // n
        assert rows["zero3"]["states"] == (2 + 4 + o) * psi // n
        unit = psi // 32
        assert rows["zero3"]["memory"]["gather_slots"] == 3 * unit * 2
        assert rows["zero3"]["memory"]["grad_slots"] == unit * 4  # initial values come in fp32
        assert rows["zero2"]["memory"]["gather_slots"] == 0
        for row in rows.values():
            memory = row["memory"]
            assert row["peak"] == sum(memory.values())
            assert len(row["ranks"]) == n and row["ranks"][0] == memory
            assert all(sum(rank.values()) == row["peak"] for rank in row["ranks"])
        each = psi // n * (n - 1)
        sent = {name: row["sent"]["within"] for name, row in rows.items()}
        assert sent["ddp"]["all_reduce_bytes"] == 2 * each * 4
        assert sent["zero1"]["reduce_scatter_bytes"] == each * 4
        assert sent["zero1"]["all_gather_bytes"] == each * 2
        assert sent["zero2"]["bytes"] == 4 * each * 2 + each * 2
        assert sent["zero3"]["elements"] == 4 * 3 * each
        assert all(row["sent"]["between"]["bytes"] == 0 for row in rows.values())
    answer, rows = plan("--params", "1e12", "--layers", "128", "--world", "1024",
                        "--shard-size", "8", "--device-memory", "120GB")
    assert answer["device_memory"] == 120 * 10**9 and "ranks" not in rows["ddp"]
    assert not rows["ddp"]["fits"] and rows["zero3"]["fits"] and len(rows) == 6


def check_models():
    answer, rows = plan("--model", os.path.join(models, "llama-3-8b.json"), "--world", "8")
    assert answer["model"]["parameters"] == 8030261248
    # rank 0 of ddp holds all of it; padding is apart
    assert rows["ddp"]["states"] == 18 * 8030261248
    ranks = rows["zero3"]["ranks"]
    assert sum(r["params"] + r["grads"] + r["optimizer"] for r in ranks) == 18 * 8030261248
    text = run("--model", os.path.join(models, "gpt2.json"), "--world", "2")
    assert "124,439,808 parameters in 16 units" in text


def check_errors():
    error = run("--model", os.path.join(models, "unknown.json"), "--world", "8", status=1)
    assert 'architecture "mamba" is not known' in error and "--params and --layers" in error
    assert "No such file" in run("--model", "/nowhere", "--world", "8", status=1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="ascii") as f:
            f.write("{\"model_type\": ")
        assert "malformed JSON" in run("--model", path, "--world", "8", status=1)
        fifo = os.path.join(folder, "fifo")
        os.mkfifo(fifo)
        assert "no regular file" in run("--model", fifo, "--world", "8", status=1)
    for arguments, text in (
            ([], "needs either --params"),
            (["--params", "7e9"], "needs --world"),
            (["--params", "7e9", "--model", "x", "--world", "8"], "needs either"),
            (["--model", "x", "--layers", "3", "--world", "8"], "--layers goes with --params"),
            (["--params", "seven", "--world", "8"], "no number of parameters"),
            (["--params", "1e14", "--world", "8"], "no number of parameters"),
            (["--params", "10", "--layers", "11", "--world", "8"], "at least one each"),
            (["--params", "7e9", "--world", "0"], "--world"),
            (["--params", "7e9", "--world", "8", "--shard-size", "3"], "does not divide"),
            (["--params", "7e9", "--world", "8", "--device-memory", "80 GB"], "no size"),
            (["--params", "7e9", "--world", "8", "--optimizer", "adam2"], "must be one of"),
            (["--params", "7e9", "--world", "8", "more"], "takes options only")):
        assert text in run(*arguments, status=2), arguments


check_text()
check_json()
check_models()
check_errors()
