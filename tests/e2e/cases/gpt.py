"""The example trainer with everything that it can: strategies, dtypes, tied weights, recomputation, optimizers."""
import json
import subprocess

from harness import Failed, case, check, equal

ALL = (("ddp", None), ("zero1", None), ("zero2", None), ("zero3", None), ("hybrid_shard", 2), ("hybrid_zero2", 2))
# One hash in each of these, whatever the numbers of reduces: design §14.
ORDERS = (("ddp", "zero1"), ("zero2", "zero3"), ("hybrid_shard", "hybrid_zero2"))


def run(bench, ranks, strategy, size, gpt, **options):
    if size:
        options["shard_size"] = min(size, ranks)
    return bench.run(ranks, strategy, bench.gpt(**gpt), env={"OPENBLAS_NUM_THREADS": "1"}, **options)


def every_strategy(bench, dtype):
    gpt = {"dtype": dtype, "tied": True, "checkpoint_activations": True, "micro_batches": 2, "steps": 6}
    got = {s: run(bench, 4, s, size, gpt) for s, size in ALL}
    for a, b in ORDERS:
        equal(got[a]["param_hash"], got[b]["param_hash"], f"param_hash of {a} against {b}")
        equal(got[a]["losses"], got[b]["losses"], f"losses of {a} against {b}")
    kept = run(bench, 4, "zero3", None, {**gpt, "checkpoint_activations": False})
    equal(kept["param_hash"], got["zero3"]["param_hash"], "param_hash without recomputation")
    equal(got["zero3"]["loss_scale"], 65536 if dtype == "fp16" else 1, "loss scale")
    first = got["ddp"]["losses"]
    for s, result in got.items():
        check(max(abs(a - b) / b for a, b in zip(result["losses"], first)) < 1e-4, f"{s}'s losses are far from ddp's")


for _dtype in ("fp32", "bf16", "fp16"):
    case(f"gpt/every_strategy_{_dtype}", seconds=8, dtype=_dtype)(every_strategy)

KINDS = {
    "fp16": {"dtype": "fp16", "scale_window": 2}, "tied": {"tied": True, "micro_batches": 2, "dtype": "bf16"},
    "recomputed": {"checkpoint_activations": True}, "made_by_daemons": {"init_by_daemon": True, "tied": True},
    "adam": {"optimizer": "adam", "clip_value": 0.01}, "lion": {"optimizer": "lion", "lr": 1e-4},
    "nesterov": {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "lr": 0.02},
}


def alone(bench, gpt):
    """One rank under zerod gives the bits of the trainer alone, in every strategy."""
    report = bench.path("alone.json")
    command = bench.gpt(**gpt, steps=6, json=report, standalone=True)
    done = subprocess.run(command, env={**bench.environment, "OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True,
                          timeout=30)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr}")
    with open(report) as f:
        want = json.load(f)
    for strategy, size in ALL:
        got = run(bench, 1, strategy, size, {**gpt, "steps": 6})
        equal(got["losses"], want["losses"], f"losses of {strategy} against --standalone")
        equal(got["param_hash"], want["param_hash"], f"param_hash of {strategy} against --standalone")
        equal(got["optimizer"], gpt.get("optimizer", "adamw"), "optimizer in effect")


for _name, _gpt in KINDS.items():
    case(f"gpt/one_rank_is_standalone_{_name}", gpt=_gpt)(alone)


@case("gpt/initial_values_do_not_depend_on_ranks")
def initial(bench):
    """Made by daemons: one param_hash for every number of ranks and strategy."""
    hashes = {run(bench, ranks, s, size, {"steps": 0, "init_by_daemon": True, "tied": True})["param_hash"]
              for ranks in (1, 2, 4) for s, size in ALL}
    equal(len(hashes), 1, f"hashes {hashes}")


@case("gpt/daemons_choose_the_dtype")
def daemons_choose(bench):
    """What zerorun gives is what a trainer without an opinion gets, and one with another is refused."""
    got = run(bench, 2, "zero3", None, {"steps": 2}, param_dtype="bf16", wire_dtype="bf16", kept_grad="bf16")
    equal((got["param_dtype"], got["wire_dtype"], got["kept_dtype"]), ("bf16",) * 3, "dtypes in effect")
    text = bench.fail(2, "zero3", bench.gpt(dtype="fp32"), param_dtype="bf16", max_restarts=0)
    check("asks for fp32 parameters" in text and "started with bf16" in text, text)
    text = bench.fail(2, "zero3", bench.gpt(), param_dtype="fp16", max_restarts=0)
    check("loss scaling" in text, text)
