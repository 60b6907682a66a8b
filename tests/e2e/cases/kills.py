"""A trainer dies at any moment and nothing is lost (issue part 5, item 3)."""
import os
import random
import signal
import time

from harness import case, check, equal

RANKS, STEPS, AT = 3, 12, 5
PHASES = ("gather", "compute", "reduce", "voted", "apply")
_calm = {}  # (strategy, micro-batches): result of the undisturbed run


def calm(bench, strategy, k):
    if (strategy, k) not in _calm:
        _calm[strategy, k] = bench.run(RANKS, strategy, bench.gpt(steps=STEPS, micro_batches=k))
    return _calm[strategy, k]


def same(got, want):
    equal(got["steps"], want["steps"], "steps")
    equal(got["param_hash"], want["param_hash"], "param_hash")
    equal(got["losses"], want["losses"], "losses")
    equal(got["grad_norms"], want["grad_norms"], "grad norms")


def killed(bench, strategy, phase, k):
    want = calm(bench, strategy, k)
    got = bench.run(RANKS, strategy, bench.gpt(steps=STEPS, micro_batches=k), limit=20,
                    drill=f"kill-trainer:rank=1,step={AT},phase={phase}")
    same(got, want)
    equal(got["restarts"], 1, "restarts")
    check("signal 9" in got["err"] and "rank 1" in got["err"], "the death is not reported:\n" + got["err"])
    # The try after it may be void too: it may be open already when the death is known.
    void = f"step {AT}, attempt 1 is void" in got["err"]
    if phase == "apply":
        check(not void, "all had voted, but the step was void:\n" + got["err"])
    elif phase != "voted":  # there the rule decides
        check(void, f"a death in {phase} did not void the try:\n" + got["err"])
        equal(got["attempts"], want["attempts"] + 1, "tries")
    check(got["attempts"] <= want["attempts"] + 2, f"{got['attempts']} tries, {want['attempts']} undisturbed")
    ms = got["recoveries"][0]["kill_to_first_gather_ms"]
    bench.note(f"{ms:.0f} ms from the kill to the first gather" if ms is not None else "no gather followed")


for _strategy in ("ddp", "zero2", "zero3"):
    for _phase in PHASES:
        case(f"kills/{_phase}_{_strategy}", seconds=5, strategy=_strategy, phase=_phase, k=1)(killed)
for _phase in PHASES:
    case(f"kills/{_phase}_zero3_2_micro_batches", seconds=5, strategy="zero3", phase=_phase, k=2)(killed)


@case("kills/random_moments", seconds=25)
def random_moments(bench):
    """kill -9 of trainers at moments from a seed, no drill: the same numbers in the end."""
    seed = int.from_bytes(os.urandom(4), "little")
    chooser, steps, kills = random.Random(seed), 40, 6
    bench.note(f"seed {seed}")
    want = bench.run(RANKS, "zero3", bench.gpt(steps=steps))
    job = bench.start(RANKS, "zero3", bench.gpt(steps=steps, sleep_ms=2), max_restarts=50)
    done = 0
    for i in range(kills):
        job.poll(lambda at=1 + i * (steps // (kills + 1)): job.status_at(at), "the next kill's step", 20)
        time.sleep(chooser.random() * 0.05)
        rank = chooser.randrange(RANKS)
        pid = {r["rank"]: r["trainer_pid"] for r in bench.status(job)["ranks"]}[rank]
        if pid:
            os.kill(pid, signal.SIGKILL)
            done += 1
    equal(job.wait(30), 0, "exit status:\n" + job.err())
    import json
    with open(bench.path("job.json")) as f:
        got = json.load(f)
    same(got, want)
    equal(got["restarts"], done, "restarts")
    bench.note(f"{done} kills")


@case("kills/restarts_used_up", seconds=5)
def restarts_used_up(bench):
    text = bench.fail(2, "zero2", ["/bin/sh", "-c", "kill -SEGV $$"], max_restarts=2)
    check("restarts are used up" in text and "signal 11" in text, text)
    equal(text.count("starting it again"), 2, "restarts said")
