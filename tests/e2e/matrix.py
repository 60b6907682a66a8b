"""The parity matrix (issue 4, part 2): every strategy on every number of ranks, each cell a job of its own.

A group is a model on N ranks: all its cells must end with one param_hash in each summation order of design §14,
and in each cell memory and traffic must equal formulas.py. What may not matter (gather slots, threads, instruction
set, overlap, a killed trainer) is drawn anew for each cell, from a seed, so that neighbours differ in it.

Orders: "once" (ddp, zero1), "each" (zero2, zero3), hybrid with equal S. With one reduce of each unit in a step, fp32
kept gradients and fp32 sums the first two coincide; so does hybrid with S = 1 with the first and S = N with the second.
"""
import itertools
import random

from formulas import Groups, memory, synth_model, traffic
from harness import Failed, check, equal

STEPS = 3  # a trainer is killed in the first: the third has no void try, whose traffic counts too
KILLS = ("gather", "compute", "reduce", "voted", "apply")
LINES = ("params", "grads", "optimizer", "padding", "gather_slots", "grad_slots")
DTYPES = (("fp32", "fp32", "fp32"), ("bf16", "fp32", "fp32"), ("bf16", "bf16", "fp32"), ("bf16", "bf16", "bf16"),
          ("fp16", "fp32", "fp32"), ("fp32", "bf16", "bf16"))
VARIANTS = (
    {}, {"frozen": True, "mixed": True, "ignored": True}, {"tied": True, "layers": 3}, {"absent": True},
    {"optimizer": "sgd", "multipliers": True, "weights": True, "clip": 0.5},
    {"optimizer": "momentum", "init": True, "frozen": True}, {"optimizer": "lion", "tied": True, "mixed": True},
    {"optimizer": "adam", "clip_value": 0.25, "divisor": 3, "absent": True, "weights": True},
    {"overflow": 1, "frozen": True, "absent": True, "tied": True, "multipliers": True},
)


class Group:
    def __init__(self, ranks, dtypes, micro_batches, variant, big=False):
        # Tensors of 0, 1, S-1, S, S+1 elements for every S that a strategy can have here.
        around = {s + d for s in range(1, ranks + 1) if ranks % s == 0 for d in (-1, 0, 1)}
        sizes = [130] + sorted({0, 1} | around) + ([1000003] if big else [])
        self.ranks = ranks
        self.o = {"sizes": sizes, "optimizer": "adamw", "micro_batches": micro_batches, "seed": 7, **variant,
                  **dict(zip(("dtype", "wire", "kept"), dtypes))}
        self.name = "/".join([f"{ranks} ranks", *dtypes, f"K={micro_batches}", *(
            f"{k}={v}" for k, v in variant.items()), *(["big"] if big else [])])

    def order(self, strategy, shard_size):
        """Equal within one of these."""
        inner = {"ddp": 1, "zero1": 1, "zero2": self.ranks, "zero3": self.ranks}.get(strategy, shard_size)
        once = self.o["micro_batches"] == 1 and not self.o.get("tied") and self.o["kept"] == "fp32"
        return "all" if once and inner in (1, self.ranks) else inner

    def cells(self, chooser, isas):
        flat = [(s, self.ranks) for s in ("ddp", "zero1", "zero2", "zero3")]
        hybrid = [(s, n) for s in ("hybrid_shard", "hybrid_zero2") for n in range(1, self.ranks + 1)
                  if self.ranks % n == 0]
        return [Cell(self, strategy, size, chooser, isas) for strategy, size in flat + hybrid]


class Cell:
    def __init__(self, group, strategy, shard_size, chooser, isas):
        self.group, self.strategy, self.shard_size = group, strategy, shard_size
        self.gather_slots, self.grad_slots = chooser.choice((1, 2, 4)), chooser.choice((1, 2, 3))
        self.threads, self.isa = chooser.choice((1, 2)), chooser.choice(isas)
        self.overlap = chooser.random() < 0.7
        self.kill = chooser.choice(KILLS) if chooser.random() < 0.3 else None
        self.killed_rank = chooser.randrange(group.ranks)

    def __str__(self):
        return (f"{self.strategy} S={self.shard_size}, {self.group.name}, {self.gather_slots} gather and "
                f"{self.grad_slots} gradient slots, {self.threads} threads, {self.isa}, "
                f"overlap {'on' if self.overlap else 'off'}, killed in {self.kill}")

    def trainer(self, bench):
        o, words = self.group.o, [bench.program("synth"), "--steps", str(STEPS)]
        words += ["--sizes", ",".join(map(str, o["sizes"])), "--dtype", o["dtype"]]
        optimizer = o["optimizer"] if o["optimizer"] != "momentum" else "sgd"
        words += ["--optimizer", optimizer] + (["--momentum", "0.9", "--nesterov"] if o["optimizer"] == "momentum" else [])
        for name, value in o.items():
            if name not in ("sizes", "dtype", "wire", "kept", "optimizer"):
                words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
        return words

    def options(self):
        o = {"wire_dtype": self.group.o["wire"], "kept_grad": self.group.o["kept"], "threads": self.threads,
             "gather_slots": self.gather_slots, "grad_slots": self.grad_slots}
        if self.strategy.startswith("hybrid"):
            o["shard_size"] = self.shard_size
        if not self.overlap:
            o["no_overlap"] = True
        if self.kill:
            o["drill"] = f"kill-trainer:rank={self.killed_rank},step=1,phase={self.kill}"
        return o

    def run(self, bench):
        """The job's result, its accounts checked."""
        result = bench.run(self.group.ranks, self.strategy, self.trainer(bench), env={"ZEROD_ISA": self.isa}, limit=30,
                           **self.options())
        o, world = self.group.o, self.group.ranks
        units, plan = synth_model(o, world)
        g = Groups(self.strategy, world, self.shard_size)
        equal(result["steps"], STEPS, "steps")
        for rank, got in enumerate(result["ranks"]):
            want = memory(units, g, rank, o, (self.gather_slots, self.grad_slots))
            for which in ("memory", "memory_formula"):
                equal({k: got[which][k] for k in LINES}, want, f"rank {rank}'s {which}")
            equal(sum(got["memory"].values()), got["memory_total"], f"sum of rank {rank}'s memory lines")
            self.check_sent(rank, got["sent_per_step_by_group"],
                            *(traffic(units, plan, g, rank, o, STEPS, ahead) for ahead in (False, self.overlap)))
        return result


    def check_sent(self, rank, got, least, most):
        for group, low, high in zip(("within", "between"), least, most):
            for kind, numbers in low.items():
                for unit, n in numbers.items():
                    check(n <= got[group][kind][unit] <= high[kind][unit],
                          f"sent by rank {rank} in the last step, {group}, {kind} {unit}: {got[group][kind][unit]}, "
                          f"expected {n}" + (f" to {high[kind][unit]}" if n != high[kind][unit] else ""))


def groups(whole):
    if not whole:
        small = [Group(n, DTYPES[i % len(DTYPES)], 1 + i % 3, VARIANTS[i % len(VARIANTS)])
                 for i, n in enumerate((1, 2, 3, 4, 4, 4, 2, 4, 8))]
        return small + [Group(2, DTYPES[0], 1, {}, big=True)]
    made = []
    for (i, n), (d, dtypes), k in itertools.product(enumerate(range(1, 9)), enumerate(DTYPES), (1, 3)):
        for v in range(2):
            made.append(Group(n, dtypes, k, VARIANTS[(i + 2 * d + 3 * k + 5 * v) % len(VARIANTS)]))
    made += [Group(n, DTYPES[n % 4], 128, VARIANTS[n % len(VARIANTS)]) for n in (1, 2, 4, 8)]
    made += [Group(n, DTYPES[n % 4], 2, VARIANTS[(n + 1) % len(VARIANTS)], big=True) for n in (1, 2, 3, 4, 8)]
    return made


def run(bench, whole, seed, isas, tell=None):
    """(cells, orders that were compared, pairs of axis values that some cell had). Failed on the first cell."""
    chooser, count, orders, pairs = random.Random(seed), 0, 0, set()
    for group in groups(whole):
        hashes, digests = {}, {}
        for cell in group.cells(chooser, isas):
            try:
                result = cell.run(bench)
                order = group.order(cell.strategy, cell.shard_size)
                hash_, first = hashes.setdefault(order, (result["param_hash"], str(cell)))
                equal(result["param_hash"], hash_, f"param_hash, that of {first}")
                digest, _ = digests.setdefault(order, (result["losses"], str(cell)))
                equal(result["losses"], digest, f"digests of gathered parameters, those of {first}")
            except Failed as failure:
                raise Failed(f"seed {seed}: {cell}:\n{failure}") from None
            axes = (cell.strategy, f"S{cell.shard_size}", f"N{group.ranks}", f"slots{cell.gather_slots}",
                    f"threads{cell.threads}", cell.isa, f"overlap{cell.overlap}", f"kill{cell.kill}",
                    *map(str, (group.o["dtype"], group.o["micro_batches"], group.o["optimizer"])))
            pairs |= set(itertools.combinations(axes, 2))
            count += 1
        orders += len(hashes)
        if tell:
            tell(f"{count} cells, {group.name}: {len(hashes)} orders")
    return count, orders, len(pairs)
