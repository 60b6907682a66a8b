"""The parity matrix: a reduced set among the other cases, the whole by `tests/e2e/run --whole matrix`."""
import os
import time

import matrix
from cases.equal import instruction_sets
from harness import case, first_seed


@case("matrix/reduced", seconds=60)
def reduced(bench):
    seed, start = first_seed(), time.monotonic()
    cells, orders, pairs = matrix.run(bench, False, seed, instruction_sets())
    bench.note(f"seed {seed}: {cells} cells, {orders} hashes, {pairs} pairs of settings, "
               f"{time.monotonic() - start:.0f} s")


def whole(bench):
    seed, start = first_seed(), time.monotonic()
    print(f"matrix: seed {seed}", flush=True)
    cells, orders, pairs = matrix.run(bench, True, seed, instruction_sets(),
                                      lambda text: print(f"{time.monotonic() - start:6.0f} s  {text}", flush=True))
    print(f"matrix: {cells} cells, {orders} hashes, {pairs} pairs of settings, {time.monotonic() - start:.0f} s")
