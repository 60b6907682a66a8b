"""Collectives on gloo: answers lines "KIND BYTES REPEATS" with seconds, see peers_serve.py. BYTES as in
collectives.c: what a rank has gathered, or gives to be summed."""
import json
import sys

import torch
import torch.distributed as dist

import peers_serve

peers_serve.start()
WORLD = peers_serve.WORLD
print("ready", json.dumps({"torch": torch.__version__.split("+")[0]}), flush=True)
held = torch.zeros(0)
for line in sys.stdin:
    kind, size, repeats = line.split()
    n = int(size) // 4
    if held.numel() != n:
        held = torch.zeros(n)
        part = torch.zeros(n // WORLD)
    call = {"all-gather": lambda: dist.all_gather_into_tensor(held, part),
            "reduce-scatter": lambda: dist.reduce_scatter_tensor(part, held),
            "all-reduce": lambda: dist.all_reduce(held)}[kind]
    print(peers_serve.timed(int(repeats), call), flush=True)
dist.destroy_process_group()
