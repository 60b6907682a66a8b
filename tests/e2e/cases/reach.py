"""Trainers in every shape: forked workers, threads, two in a process, Python without libzerod, eight
ranks (issue 5, parts 1 and 2). All modes of reach_trainer do the same arithmetic, so they must end
with the same bits."""
import os
import sys

from harness import Skipped, case, check, equal
from . import wire

RANKS = 2
_plain = {}  # (strategy, ranks): result of reach_trainer plain


def plain(bench, strategy, ranks=RANKS):
    if (strategy, ranks) not in _plain:
        _plain[strategy, ranks] = bench.run(ranks, strategy, [bench.program("reach_trainer"), "plain"])
    return _plain[strategy, ranks]


def same(got, want):
    for what in ("steps", "param_hash", "losses", "grad_norms"):
        equal(got[what], want[what], what)


def shape(bench, mode, strategy, more=()):
    got = bench.run(RANKS, strategy, [bench.program("reach_trainer"), mode, *more])
    same(got, plain(bench, strategy))
    equal(got["restarts"], 0, "restarts")


for _strategy in ("ddp", "zero3"):
    case(f"reach/forks_workers_{_strategy}", mode="workers", strategy=_strategy)(shape)
    case(f"reach/other_thread_{_strategy}", mode="thread", strategy=_strategy)(shape)
    case(f"reach/thread_a_step_{_strategy}", mode="threads", strategy=_strategy)(shape)


@case("reach/two_in_one_process")
def two(bench):
    done = bench.path("done")
    for strategy in ("zero2", "zero3"):
        shape(bench, "two", strategy, (done,))
        os.unlink(done)


@case("reach/worker_outlives_its_trainer")
def worker_outlives(bench):
    """A worker that lives on holds the trainer's socket open; the next trainer is let in all the same."""
    got = bench.run(RANKS, "zero3", [bench.program("reach_trainer"), "worker-outlives"])
    same(got, plain(bench, "zero3"))
    equal(got["restarts"], 1, "restarts")
    ms = got["recoveries"][0]["kill_to_first_gather_ms"]
    # None: the job was over before zerorun saw the gather.
    check(ms is None or ms < 900 * bench.slow, f"{ms} ms to the next trainer's first gather: the worker's second was waited for")


def in_python(bench, strategy, **options):
    folder = bench.path("py")
    wire.messages(bench)
    for name in [n for n in sys.modules if n.startswith("zerod") and n.endswith("_pb2")]:
        del sys.modules[name]
    try:
        import numpy  # noqa: F401
    except ImportError as e:
        raise Skipped(f"{e} (python3-numpy)") from None
    trainer = ["/usr/bin/python3", os.path.join(bench.root, "tests", "e2e", "numpy_trainer.py"), folder]
    got = bench.run(RANKS, strategy, trainer, limit=30, **options)
    same(got, plain(bench, strategy))
    return got


for _strategy in ("ddp", "zero2", "zero3"):
    case(f"reach/python_{_strategy}", strategy=_strategy)(in_python)


@case("reach/python_killed", seconds=8)
def python_killed(bench):
    got = in_python(bench, "zero3", drill="kill-trainer:rank=1,step=2,phase=reduce")
    equal(got["restarts"], 1, "restarts")


@case("reach/8_ranks", seconds=25)
def eight(bench):
    """One trajectory for all strategies, also when a trainer dies, on however few cores."""
    trainer = bench.gpt(steps=4)
    want = bench.run(8, "ddp", trainer, limit=30)
    for strategy, options in (("zero1", {}), ("zero2", {}), ("zero3", {"drill": "kill-trainer:rank=5,step=2,phase=voted"})):
        same(bench.run(8, strategy, trainer, limit=30, **options), want)
    halves = bench.run(8, "hybrid_shard", trainer, limit=30, shard_size=4)
    check(abs(halves["losses"][-1] - want["losses"][-1]) < 1e-5, f"{halves['losses']} and {want['losses']}")
