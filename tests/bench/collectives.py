#!/usr/bin/python3
"""Benchmarks of collectives: ours (collectives.c), the copy bound, gloo and OpenMPI in turn.

    collectives.py RANKS

Sizes are a rank's bytes: what it has gathered, or gives to be summed. Rows of small ones say
thousands of collectives a second, of large ones GiB/s. The copy bound is each rank's non-temporal
copy of as many bytes of its own; smaller than 1 MiB that is no bound of anything: what counts there is
how soon ranks hear of each other."""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import table  # noqa: E402
from groups import Group, Missing, Mpi, Server  # noqa: E402

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
KINDS = ("all-gather", "reduce-scatter", "all-reduce")
# bytes, rounds; the largest take gloo seconds each, see PATIENCE
SIZES = ((KIB, 5), (64 * KIB, 5), (MIB, 5), (16 * MIB, 3), (64 * MIB, 3), (256 * MIB, 3))
# Seconds that a measurement takes about, and its most repeats. Ours and the copy get more: theirs are of
# milliseconds, and another process's turn on the core would be most of one.
PEERS_BUDGET, BUDGET, MOST = 0.03, 0.1, 3000
PATIENCE = 6  # seconds after which no further round of a kind and size begins


def size_words(size):
    return f"{size // MIB}MiB" if size >= MIB else f"{size // KIB}KiB"


class Asked:
    """One of those compared: what it is called, and its rates by round."""

    def __init__(self, name, server, budget=PEERS_BUDGET, kind_word=None, least=0):
        self.name, self.server, self.budget, self.kind_word, self.least = name, server, budget, kind_word, least
        self.failed = None  # why it is not asked any more
        self.told = False

    def seconds(self, kind, size, repeats):
        return self.server.ask(f"{self.kind_word or kind} {size} {repeats}")

    def begin(self, kind, size):
        """Warms up; decides on the repeats."""
        self.rates, self.repeats = [], 1
        if self.failed or size < self.least:
            return
        try:
            took = self.seconds(kind, size, 1)
            took = self.seconds(kind, size, 1) if took < self.budget else took
            self.repeats = max(1, min(MOST, int(self.budget / max(took, 1e-9))))
        except Missing as e:
            self.failed = str(e)

    def measure(self, kind, size):
        if self.failed or size < self.least:
            return
        try:
            self.rates.append(self.repeats / self.seconds(kind, size, self.repeats))
        except Missing as e:
            self.failed = str(e)


def rows(ranks, kind, size, rounds, ours, peers):
    everybody = [ours, *peers]
    begin = time.monotonic()
    for one in everybody:
        one.begin(kind, size)
    for i in range(rounds):
        if i and time.monotonic() > begin + PATIENCE:
            break
        for one in everybody[:: -1 if i % 2 else 1]:
            one.measure(kind, size)
    unit, scale = ("GiB/s", size / GIB) if size >= MIB else ("k/s", 1e-3)
    what = f"{kind} {size_words(size)}, {ranks} ranks"
    for peer in peers:
        if peer.failed and not peer.told:
            table.not_run(f"collectives from {size_words(size)}, {ranks} ranks", peer.name, peer.failed)
            peer.told = True
        elif not peer.failed and peer.rates:
            table.row(what, unit, [x * scale for x in ours.rates], [x * scale for x in peer.rates], peer.name)


def start(name, make):
    """A peer, running or not."""
    try:
        server = make()
    except Missing as e:
        peer = Asked(name, None)
        peer.failed = str(e)
        return peer
    if isinstance(server, Group):
        name = f"torch {table.short(server.facts['torch'])} {name}"
    return Asked(name, server)


def bound(ranks):
    """What the bytes moved allow: a copy reads and writes its payload."""
    summed, shared = 1 + 1 / ranks, 2 * (ranks - 1) / ranks
    table.line(f"    by bytes read and written, of the copy's rate at {ranks} ranks: all-gather 1.00, "
               f"reduce-scatter {2 / summed:.2f}, all-reduce {2 / (summed + shared):.2f}")


def main():
    ranks = int(sys.argv[1]) if len(sys.argv) == 2 else 0
    if not 2 <= ranks <= 64:
        sys.exit("usage: collectives.py RANKS, 2 to 64")
    with tempfile.TemporaryDirectory(prefix="zb-") as folder:
        server = Server([table.program("collectives"), str(ranks)])
        peers = [start("gloo", lambda: Group(table.peers_python(), "peers_collectives.py", [], ranks)),
                 start("OpenMPI", lambda: Mpi(folder, ranks))]
        ours = Asked("zerod", server, BUDGET)
        copy = Asked("non-temporal copy", server, BUDGET, "copy", MIB)
        try:
            for size, rounds in SIZES:
                for kind in KINDS:
                    rows(ranks, kind, size, rounds, ours, [copy, *peers])
            bound(ranks)
        finally:
            for one in [ours, *peers]:
                if one.server:
                    one.server.close()


main()
