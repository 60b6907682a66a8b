"""PyTorch agrees (issue part 5, item 2): tests/gpt/test_torch_parity.py under zerorun."""
import os
import subprocess

from harness import Skipped, case, check


def parity(bench, strategy, k):
    script = os.path.join(bench.root, "tests", "gpt", "test_torch_parity.py")
    launcher = f"{bench.program('zerorun')} -n 2 --strategy {strategy} --"
    done = subprocess.run(["/usr/bin/python3", script, "--gpt", bench.program("gpt"), "--launcher", launcher,
                           "--micro-batches", str(k), "--steps", "10", "--lr", "1e-3", "--data", bench.text],
                          env=bench.environment, capture_output=True, text=True, timeout=120)
    if "No module named 'torch'" in done.stderr:
        raise Skipped("PyTorch is not installed (python3-torch)")
    check(done.returncode == 0, done.stdout + done.stderr)
    bench.note(done.stdout.strip().split("largest difference: ")[-1])


for _strategy, _k in (("zero3", 1), ("zero2", 2), ("ddp", 2)):
    case(f"parity/{_strategy}_{_k}_micro_batches", seconds=20, strategy=_strategy, k=_k)(parity)
