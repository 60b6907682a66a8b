"""A trainer dies at any moment and nothing is lost (issue part 5, item 3)."""
import json
import os
import random
import re
import signal
import time

from harness import case, check, equal, first_seed

RANKS, STEPS, AT = 3, 24, 5  # enough steps after it for zerorun to see the first gather
PHASES = ("gather", "compute", "reduce", "voted", "apply")
_calm = {}  # (strategy, micro-batches): result of the undisturbed run


def job_of(strategy):
    """(ranks, options) of a strategy: hybrids have two groups of two."""
    return (4, {"shard_size": 2}) if strategy.startswith("hybrid") else (RANKS, {})


def calm(bench, strategy, k):
    if (strategy, k) not in _calm:
        ranks, options = job_of(strategy)
        _calm[strategy, k] = bench.run(ranks, strategy, bench.gpt(steps=STEPS, micro_batches=k), **options)
    return _calm[strategy, k]


def same(got, want):
    equal(got["steps"], want["steps"], "steps")
    equal(got["param_hash"], want["param_hash"], "param_hash")
    equal(got["losses"], want["losses"], "losses")
    equal(got["grad_norms"], want["grad_norms"], "grad norms")


def killed(bench, strategy, phase, k):
    want = calm(bench, strategy, k)
    ranks, options = job_of(strategy)
    got = bench.run(ranks, strategy, bench.gpt(steps=STEPS, micro_batches=k),
                    drill=f"kill-trainer:rank=1,step={AT},phase={phase}", **options)
    same(got, want)
    equal(got["restarts"], 1, "restarts")
    check("signal 9" in got["err"] and "rank 1" in got["err"], "the death is not reported:\n" + got["err"])
    # The try after it may be void too: it may be open already when the death is known.
    void = f"step {AT}, attempt 1 is void" in got["err"]
    if phase in ("voted", "apply"):  # after its YES a trainer's fate is irrelevant (design §8)
        check(not void, f"its vote was given, but a death in {phase} voided the try:\n" + got["err"])
    else:
        check(void, f"a death in {phase} did not void the try:\n" + got["err"])
        equal(got["attempts"], want["attempts"] + 1, "tries")
        check(f"gpt[0]: step {AT} attempt 1 is void" in got["err"] and "rank 1's trainer" in got["err"],
              "rank 0's trainer was not told why:\n" + got["err"])
    check(got["attempts"] <= want["attempts"] + 2, f"{got['attempts']} tries, {want['attempts']} undisturbed")
    ms = got["recoveries"][0]["kill_to_first_gather_ms"]
    bench.note(f"{ms:.0f} ms from the kill to the first gather" if ms is not None else "no gather followed")


for _strategy in ("ddp", "zero1", "zero2", "zero3", "hybrid_shard", "hybrid_zero2"):
    for _phase in PHASES:
        case(f"kills/{_phase}_{_strategy}", seconds=5, strategy=_strategy, phase=_phase, k=1)(killed)
for _phase in PHASES:
    case(f"kills/{_phase}_zero3_2_micro_batches", seconds=5, strategy="zero3", phase=_phase, k=2)(killed)


def random_moments(bench, strategy, ranks, k):
    """kill -9 of one or two trainers at moments from a seed, no drill: the same numbers in the end."""
    seed = first_seed()
    chooser, steps, kills = random.Random(seed), 40, 6
    bench.note(f"seed {seed}")
    options = job_of(strategy)[1]
    want = bench.run(ranks, strategy, bench.gpt(steps=steps, micro_batches=k), **options)
    job = bench.start(ranks, strategy, bench.gpt(steps=steps, micro_batches=k, sleep_ms=1), max_restarts=50, **options)
    done = 0
    for i in range(kills):
        at = 1 + i * (steps // (kills + 1))
        job.poll(lambda: job.process.poll() is not None or job.status_at(at), f"seed {seed}, step {at} and a kill", 20)
        time.sleep(chooser.random() * 0.05)
        status = bench.status(job)
        if not status:
            break  # on a busy machine the job may be done before we have looked often enough
        pids = {r["rank"]: r["trainer_pid"] for r in status["ranks"]}
        for rank in chooser.sample(range(ranks), chooser.choice((1, 1, 2))):
            try:
                os.kill(pids[rank] or 1 << 30, signal.SIGKILL)  # 0: none is attached
                done += 1
            except ProcessLookupError:
                pass
    equal(job.wait(30), 0, f"seed {seed}, exit status:\n" + job.err())
    with open(bench.path("job.json")) as f:
        got = json.load(f)
    same(got, want)
    check(done > 0, "nobody was killed")
    check(got["restarts"] <= done, f"{got['restarts']} restarts after {done} kills")
    bench.note(f"{done} kills, {got['attempts'] - want['attempts']} more tries")


for _strategy, _ranks, _k in (("ddp", 3, 2), ("zero1", 3, 1), ("zero2", 4, 1), ("zero3", 3, 1),
                                 ("zero3", 4, 2), ("hybrid_shard", 4, 1), ("hybrid_zero2", 4, 2)):
    case(f"kills/random_moments_{_strategy}_{_ranks}_ranks", seconds=25, strategy=_strategy, ranks=_ranks,
         k=_k)(random_moments)


def comes_back(bench, strategy, phase):
    """Which step the replacement enters; bad_trainer checks that its cursor is the step's before."""
    got = bench.run(RANKS, strategy, [bench.program("bad_trainer"), "good"],
                    drill=f"kill-trainer:rank=1,step=3,phase={phase}")
    entered = [(int(a), int(s)) for a, s in re.findall(r"rank 1: attachment (\d+) enters step (\d+)", got["out"])]
    second = [step for attachment, step in entered if attachment > entered[0][0]]
    check(second, f"no second attachment of rank 1:\n{got['out']}")
    check(second[0] == (4 if phase in ("voted", "apply") else 3), f"after a death in {phase} of step 3 the new trainer began at step {second[0]}")
    equal(second[-1], 5, "its last step")
    equal(len(second), 6 - second[0], "steps that it entered")
    bench.note(f"the new trainer begins at step {second[0]}")


for _phase in PHASES:
    case(f"kills/comes_back_{_phase}", strategy="zero2" if _phase == "reduce" else "zero3", phase=_phase)(comes_back)


@case("kills/restarts_used_up", seconds=5)
def restarts_used_up(bench):
    text = bench.fail(2, "zero2", ["/bin/sh", "-c", "kill -SEGV $$"], max_restarts=2)
    check("restarts are used up" in text and "signal 11" in text, text)
    equal(text.count("starting it again"), 2, "restarts said")
