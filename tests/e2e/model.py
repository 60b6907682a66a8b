"""The tiny GPT's tensors, and design §4 and §5 computed on their own, from the issue's words."""
import json
import struct

import numpy as np

ALIGN = 64
STATES = ("params", "grads", "optimizer")


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack("<Q", data[:8])
    return {name: np.frombuffer(data[8 + n:][slice(*t["data_offsets"])], "<f4").reshape(t["shape"])
            for name, t in json.loads(data[8:8 + n]).items() if name != "__metadata__"}


def largest_difference(a, b):
    if a.keys() != b.keys():
        return float("inf"), "the set of tensors"
    return max((float(np.abs(a[k].astype(np.float64) - b[k]).max()), k) for k in a)


def gpt_units(layers, channels, seq, vocab=256):
    """Element counts of tensors, a list per unit, in registration order."""
    c = channels
    block = [c, c, 3 * c * c, 3 * c, c * c, c, c, c, 4 * c * c, 4 * c, 4 * c * c, c]
    return [[vocab * c, seq * c]] + [list(block) for _ in range(layers)] + [[c, c, vocab * c]]


def up(n, multiple):
    return (n + multiple - 1) // multiple * multiple


class Unit:
    """Where a unit's tensors lie: each at a multiple of 64 elements, the whole a multiple of 64 N."""

    def __init__(self, tensors, ranks):
        self.ranges, at = [], 0
        for n in tensors:
            at = up(at, ALIGN)
            self.ranges.append((at, at + n))
            at += n
        self.elements = sum(tensors)
        self.padded = up(at, ALIGN * ranks)
        self.part = self.padded // ranks

    def real(self, rank):
        """Elements of tensors in rank's part."""
        lo, hi = rank * self.part, (rank + 1) * self.part
        return sum(max(0, min(end, hi) - max(start, lo)) for start, end in self.ranges)


def memory(units, ranks, rank, strategy, param_bytes, gather_slots, grad_slots):
    """Design §5, exact: lines of real elements and the padding beside them."""
    whole, part = sum(u.elements for u in units), sum(u.real(rank) for u in units)
    whole_pad, part_pad = sum(u.padded for u in units) - whole, sum(u.part for u in units) - part
    largest = max(u.padded for u in units)
    sharded = {"ddp": (), "zero2": ("grads", "optimizer"), "zero3": STATES}[strategy]
    bytes_each = {"params": param_bytes, "grads": 4, "optimizer": 12}
    if strategy == "zero3" and param_bytes == 4:
        bytes_each["params"] = 0  # the gather reads the fp32 master
    lines = {s: bytes_each[s] * (part if s in sharded else whole) for s in STATES}
    lines["padding"] = sum(bytes_each[s] * (part_pad if s in sharded else whole_pad) for s in STATES)
    lines["gather_slots"] = gather_slots * largest * param_bytes if strategy == "zero3" else 0
    lines["grad_slots"] = grad_slots * largest * 4
    return lines


def traffic(units, ranks, strategy, param_bytes, micro_batches, gathers=2):
    """Elements and bytes that a rank sends in a step; each unit is gathered |gathers| times."""
    once = sum(u.part for u in units) * (ranks - 1)
    sent = {kind: {"elements": 0, "bytes": 0} for kind in ("all_gather", "reduce_scatter", "all_reduce")}

    def add(kind, elements, each):
        sent[kind]["elements"] += elements
        sent[kind]["bytes"] += elements * each

    if strategy == "ddp":
        add("all_reduce", 2 * once, 4)
    else:
        add("reduce_scatter", micro_batches * once, 4)
        add("all_gather", (micro_batches * gathers if strategy == "zero3" else 1) * once, param_bytes)
    return sent
