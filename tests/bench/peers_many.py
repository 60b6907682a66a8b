"""FSDP2 with many units of many small tensors: what setting up and the first step take. See
peers_serve.py; argument: units, tensors of each, elements of each."""
import sys
import time

import torch
import torch.nn as nn

import peers_serve

UNITS, TENSORS, ELEMENTS = map(int, sys.argv[1:4])


class Unit(nn.Module):
    def __init__(self):
        super().__init__()
        self.list = nn.ParameterList(nn.Parameter(torch.full((ELEMENTS,), 0.1)) for _ in range(TENSORS))

    def forward(self, x):
        return x + sum(p.sum() for p in self.list)


peers_serve.start()
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

begin = time.perf_counter()
mesh = init_device_mesh("cpu", (peers_serve.WORLD,))
model = nn.Sequential(*(Unit() for _ in range(UNITS)))
for unit in model:
    fully_shard(unit, mesh=mesh)
fully_shard(model, mesh=mesh)
adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)
setup = time.perf_counter() - begin


def step():
    model(torch.zeros(())).backward()
    adamw.step()
    adamw.zero_grad()


first = peers_serve.timed(1, step)
peers_serve.serve(step, setup=setup, first=first)
