"""The table of table.h for programs in Python: rows of the same columns, and what was not run."""
import os
import statistics
import sys


def line(text):
    print(text, flush=True)


def head():
    if os.environ.get("ZEROD_BENCH_HEAD") != "0":
        line(f"{'what':<30} {'ours':>14} {'against':>14}  {'':<22} {'ratio: min  median     max':>19}")
    os.environ["ZEROD_BENCH_HEAD"] = "0"


def low_median(values):
    return statistics.median_low(values)


def row(what, unit, ours, peer, against):
    """|ours|, |peer|: a number a round, measured in turn."""
    head()
    ratios = sorted(a / b for a, b in zip(ours, peer))
    digits = 2 if low_median(ratios) >= 0.1 else 4
    line(f"{what:<30} {low_median(ours):9.2f} {unit:<4} {low_median(peer):9.2f} {unit:<4}  {against:<22} "
         f"{ratios[0]:10.{digits}f} {low_median(ratios):7.{digits}f} {ratios[-1]:7.{digits}f}")


def not_run(what, against, reason, unit="", ours=None):
    """|ours|: measured all the same."""
    head()
    reason = " ".join(reason.split())
    mine = f"{low_median(ours):9.2f} {unit:<4}" if ours else f"{'':>14}"
    line(f"{what:<30} {mine:>14} {'':>14}  {against:<22} not run: {reason[:160]}")


def alternate(ours, peer, rounds):
    """Calls both once unrecorded, then in turn, the first of each round alternating."""
    ours(), peer()
    a, b = [], []
    for i in range(rounds):
        for call, to in ((ours, a), (peer, b))[:: -1 if i % 2 else 1]:
            to.append(call())
    return a, b


def root():
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def build():
    return os.path.abspath(os.environ.get("ZEROD_BUILD") or os.path.join(root(), "build"))


def program(name):
    return os.path.join(build(), "bin", name)


def peers_python():
    """PyPI's torch, set up by tests/bench/peers; None without."""
    path = os.path.join(build(), "peers", "venv", "bin", "python")
    return path if os.path.exists(path) else None


def short(version):
    """2.15 of 2.15.0+cpu."""
    return ".".join(version.split(".")[:2])


NO_PEERS = "tests/bench/peers has not set it up"
sys.dont_write_bytecode = True
