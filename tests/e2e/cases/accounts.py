"""Memory and traffic equal the formulas (issue part 5, item 4); see model.py for the formulas."""
from harness import case, check, equal
from model import Unit, gpt_units, memory, traffic

LAYERS, CHANNELS, SEQ = 2, 40, 24  # tensors that leave padding in every unit
MEMORY = ("params", "grads", "optimizer", "gather_slots", "grad_slots", "padding")


def accounts(bench, ranks, strategy, dtype, k, slots):
    units = [Unit(tensors, ranks) for tensors in gpt_units(LAYERS, CHANNELS, SEQ)]
    param_bytes = 2 if dtype == "bf16" else 4
    gpt = {"layers": LAYERS, "channels": CHANNELS, "heads": 4, "seq": SEQ, "micro_batches": k, "dtype": dtype}
    results = {steps: bench.run(ranks, strategy, bench.gpt(**gpt, steps=steps), param_dtype=dtype,
                                gather_slots=slots, grad_slots=3) for steps in (2, 6)}
    per_step = traffic(units, ranks, strategy, param_bytes, k)
    ddp = traffic(units, ranks, "ddp", param_bytes, k)
    check(sum(u.padded - u.elements for u in units) > 0, "the model has no padding to account for")
    for rank in range(ranks):
        got, before = results[6]["ranks"][rank], results[2]["ranks"][rank]
        want = memory(units, ranks, rank, strategy, param_bytes, slots, 3)
        equal({m: got["memory"][m] for m in MEMORY}, {m: want[m] for m in MEMORY}, f"memory of rank {rank}")
        equal({m: got["memory_formula"][m] for m in MEMORY}, {m: want[m] for m in MEMORY},
              f"what rank {rank} calls the formula of memory")
        equal(sum(got["memory"].values()), got["memory_total"], f"sum of rank {rank}'s memory lines")
        equal(got["sent_per_step"], per_step, f"sent by rank {rank} in the last step")
        equal(got["sent_per_step_formula"], per_step, f"what rank {rank} calls the formula of traffic")
        equal(got["sent_per_step_ddp"], ddp, f"what rank {rank} calls ddp's")
        for kind in per_step:
            for what in ("elements", "bytes"):
                equal(got["sent"][kind][what] - before["sent"][kind][what], 4 * per_step[kind][what],
                      f"rank {rank}: {kind} {what} of 6 steps less those of 2")


for _ranks, _strategy, _dtype, _k, _slots in (
        (2, "ddp", "fp32", 1, 2), (2, "zero2", "fp32", 1, 2), (2, "zero3", "fp32", 1, 2), (3, "ddp", "bf16", 2, 2),
        (3, "zero2", "bf16", 2, 2), (3, "zero3", "bf16", 2, 4), (4, "zero3", "fp32", 2, 3)):
    case(f"accounts/{_strategy}_{_ranks}_ranks_{_dtype}_{_k}_micro_batches", seconds=4, ranks=_ranks, strategy=_strategy,
         dtype=_dtype, k=_k, slots=_slots)(accounts)
