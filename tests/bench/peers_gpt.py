"""The GPT of client/examples/gpt in PyTorch, on gloo: DDP, ZeRO-1 or FSDP2. See peers_serve.py.
Runs on torch 1.13 (without FSDP2) and newer."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import peers_serve

p = argparse.ArgumentParser()
p.add_argument("--mode", choices=("ddp", "zero1", "fsdp2"), required=True)
for name in ("layers", "heads", "channels", "seq", "batch"):
    p.add_argument("--" + name, type=int, required=True)
o = p.parse_args()


def attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, o.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(attention(q, k, v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        c = o.channels
        self.bytes, self.places = nn.Embedding(256, c), nn.Embedding(o.seq, c)
        self.blocks = nn.ModuleList(Block(c) for _ in range(o.layers))
        self.norm, self.head = nn.LayerNorm(c), nn.Linear(c, 256, bias=False)

    def forward(self, x, target):
        h = self.bytes(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), target.flatten())


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (peers_serve.WORLD,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def optimizer(model):
    options = {"lr": 3e-4, "weight_decay": 0.1}
    if o.mode == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **options)
    if o.mode == "ddp":
        try:
            return torch.optim.AdamW(model.parameters(), fused=True, **options)
        except (TypeError, RuntimeError):  # too old for a fused one on CPUs
            return torch.optim.AdamW(model.parameters(), foreach=True, **options)
    return torch.optim.AdamW(model.parameters(), **options)


peers_serve.start()
model = GPT()
count = sum(x.numel() for x in model.parameters())
model = sharded(model) if o.mode == "fsdp2" else nn.parallel.DistributedDataParallel(model)
adamw = optimizer(model)
random = torch.Generator().manual_seed(peers_serve.RANK)


def step():
    text = torch.randint(0, 256, (o.batch, o.seq + 1), generator=random)
    model(text[:, :-1], text[:, 1:]).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adamw.step()
    adamw.zero_grad(set_to_none=True)


peers_serve.timed(2, step)
peers_serve.serve(step, parameters=count)
