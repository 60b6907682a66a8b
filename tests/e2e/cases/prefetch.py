"""Gathers run ahead of the trainer, and a step allocates nothing (issue part 3)."""
import re

from harness import Skipped, case, check, equal

UNITS = 4  # embedding, two blocks, head: each gathered twice a micro-batch


def ahead(bench, k):
    """How long computing must take depends on what else runs on this machine."""
    steps, late = 6, 20 if bench.sanitized else 0  # sanitizers are slow at their own moments
    for sleep_ms in (10, 30, 90):
        got = bench.run(2, "zero3", bench.gpt(steps=steps, sleep_ms=sleep_ms, micro_batches=k), limit=30)
        for r in got["ranks"]:
            equal(r["gathers"], steps * k * 2 * UNITS, f"gathers of rank {r['rank']}")
        if all(r["gathers_ahead"] >= r["gathers"] - steps - late for r in got["ranks"]):
            bench.note(", ".join(f"{r['gathers_ahead']} of {r['gathers']}" for r in got["ranks"]) + f", {sleep_ms} ms")
            return
    counts = [(r["gathers_ahead"], r["gathers"]) for r in got["ranks"]]
    check(False, f"in {steps} steps only so many gathers came ahead: {counts}")


case("prefetch/all_but_the_first_of_a_step", seconds=10, k=1)(ahead)
case("prefetch/across_micro_batches", seconds=20, k=2)(ahead)


def maps(pid):
    """Mappings without the heap and stacks of malloc'ed control messages, and threads."""
    with open(f"/proc/{pid}/maps") as f:
        lines = [re.sub(r"\s+", " ", line.strip()) for line in f]
    with open(f"/proc/{pid}/status") as f:
        threads = next(int(line.split()[1]) for line in f if line.startswith("Threads:"))
    return [line for line in lines if not line.endswith(("[heap]", "[stack]"))], threads


@case("prefetch/maps_at_steps_3_and_100", seconds=15)
def nothing_is_added(bench):
    if bench.sanitized:
        raise Skipped("a sanitizer's allocator maps memory as it goes")
    for strategy in ("ddp", "zero2", "zero3"):
        job = bench.start(2, strategy, bench.gpt(steps=130, sleep_ms=1), threads=2)
        job.step_reached(3)
        first = {rank: maps(pid) for rank, pid in job.pids("zerod").items()}
        equal(len(first), 2, "daemons")
        job.poll(lambda: job.status_at(100), "step 100", 20)
        for rank, pid in job.pids("zerod").items():
            now = maps(pid)
            new = [line for line in now[0] if line not in first[rank][0]]
            gone = [line for line in first[rank][0] if line not in now[0]]
            check(not new and not gone, f"{strategy}, rank {rank}: new mappings {new}, gone {gone}")
            equal(now[1], first[rank][1], f"threads of {strategy}, rank {rank}")
        equal(job.wait(20), 0, "exit status")
