"""Design §4 and §5 computed a second time, for the synthetic trainer's models: where everything lies, what a
rank holds and what it sends. From the issue's and layout.h's words, not from the C code."""
from model import up

ALIGN = 64
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
STATES = {"adamw": 2, "adam": 2, "lion": 1, "sgd": 0, "momentum": 1}
KINDS = ("all_gather", "reduce_scatter", "all_reduce")
MASK = (1 << 64) - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class Range:
    """A unit's tensors of one dtype, trainable or frozen: each at a multiple of 64, the whole of 64 N."""

    def __init__(self, sizes, dtype, frozen, world):
        self.dtype, self.frozen, self.tensors, at = dtype, frozen, [], 0
        for n in sizes:
            at = up(at, ALIGN)
            self.tensors.append((at, at + n))
            at += n
        self.padded = up(at, ALIGN * world)

    def real(self, start, count):
        return sum(max(0, min(end, start + count) - max(first, start)) for first, end in self.tensors)


class Unit:
    """tensors: (elements, dtype, frozen) of those that have a place."""

    def __init__(self, name, tensors, world):
        kinds = []
        for _, dtype, frozen in tensors:
            if (dtype, frozen) not in kinds:
                kinds.append((dtype, frozen))
        self.name = name
        self.ranges = [Range([n for n, d, f in tensors if (d, f) == kind], *kind, world) for kind in kinds]
        self.trained = [r for r in self.ranges if not r.frozen]
        self.param_bytes = sum(up(r.padded * BYTES[r.dtype], 64) for r in self.ranges)
        self.grad_elements = sum(r.padded for r in self.trained)
        self.load_bytes = 4 * sum(r.padded for r in self.ranges)


def synth_model(o, world):
    """Units and train plan (kind, index) of tests/e2e/synth for options |o|; see synth/shape.c."""
    units, sizes, dtype = [], o["sizes"], o["dtype"]
    if o.get("frozen"):
        units.append(("backbone", [(n + 3, dtype, True) for n in sizes]))
    first = len(units)
    for layer in range(o.get("layers", 2)):
        units.append((f"layer{layer}", [(n, "fp32" if o.get("mixed") and i % 4 == 2 else dtype,
                                         bool(o.get("frozen")) and i % 3 == 1) for i, n in enumerate(sizes)]))
    last, tied = len(units) - 1, o.get("tied") and len(units) - 1 > first
    if o.get("absent"):
        units.append(("expert", [(n // 2 + 1, dtype, False) for n in sizes]))
    units = [Unit(name, tensors, world) for name, tensors in units]
    plan = [("gather", u) for u in range(len(units))]
    for u in reversed(range(len(units))):
        plan.append(("gather", u))
        if units[u].trained:
            plan.append(("reduce", u))
        if tied and u == last:
            plan.append(("reduce", first))
    return units, plan


class Groups:
    """Sizes of the inner and the outer group, and the three placements."""

    def __init__(self, strategy, world, shard_size):
        size = {"ddp": 1, "zero1": 1, "zero2": world, "zero3": world}.get(strategy, shard_size)
        self.world, self.strategy = world, strategy
        self.inner, self.outer = size, world // size
        self.sharded = strategy in ("zero3", "hybrid_shard")  # parameters
        self.split = strategy == "zero1"                      # optimizer


def memory(units, g, rank, o, slots):
    """Lines of layout_memory: real elements, their padding, slots."""
    lines = dict.fromkeys(("params", "grads", "optimizer", "padding"), 0)
    share = rank % g.inner

    def hold(line, r, start, count, each):
        real = r.real(start, count)
        lines[line] += real * each
        lines["padding"] += (count - real) * each

    for r in (r for u in units for r in u.ranges):
        part = r.padded // g.inner
        if not g.sharded:
            hold("params", r, 0, r.padded, BYTES[r.dtype])
        elif r.frozen or r.dtype != "fp32":
            hold("params", r, share * part, part, BYTES[r.dtype])
        if not r.frozen:
            hold("grads", r, share * part, part, BYTES[o["kept"]])
            piece = (rank * (r.padded // g.world), r.padded // g.world) if g.split else (share * part, part)
            hold("optimizer", r, *piece, 4 * (1 + STATES[o["optimizer"]]))
    lines["gather_slots"] = slots[0] * max(u.param_bytes for u in units) if g.sharded else 0
    gradients = slots[1] * max(u.grad_elements for u in units) * BYTES[o["wire"]]
    lines["grad_slots"] = max(gradients, max(u.load_bytes for u in units))
    return lines


def is_absent(o, rank, step, micro_batch):
    return mix64(mix64(o["seed"] ^ rank) ^ mix64(step << 20 ^ micro_batch)) % 3 == 0


def traffic(units, plan, g, rank, o, step, ahead=False):
    """[within, between]: what |rank| sends in |step|. Readers that leave the expert out read nothing of it, or, when
    they had gathered it ahead of being asked, as much as the others."""
    sent = [{k: {"elements": 0, "bytes": 0} for k in KINDS} for _ in range(2)]

    def send(group, kind, elements, each):
        sent[group][kind]["elements"] += elements
        sent[group][kind]["bytes"] += elements * each

    peers = [r for r in range(rank - rank % g.inner, rank - rank % g.inner + g.inner) if r != rank]
    for k in range(o["micro_batches"]):
        for kind, u in plan:
            def present(r):
                return units[u].name != "expert" or not is_absent(o, r, step, k)
            for r in units[u].ranges:
                part = r.padded // g.inner
                if kind == "gather" and g.sharded:
                    send(0, "all_gather", part * sum(ahead or present(p) for p in peers), BYTES[r.dtype])
                elif kind == "reduce" and not r.frozen and present(rank):
                    send(0, "reduce_scatter", part * len(peers), BYTES[o["wire"]])
    for r in (r for u in units for r in u.trained):
        part, others = r.padded // g.inner, g.outer - 1
        if g.split:
            send(1, "reduce_scatter", part // g.outer * others, BYTES[o["kept"]])
            send(1, "all_gather", part // g.outer * others, BYTES[r.dtype])
        else:
            send(1, "all_reduce", 2 * (part // g.outer) * others, BYTES[o["kept"]])
            if not g.sharded:
                send(0, "all_gather", part * len(peers), BYTES[r.dtype])
    return sent
