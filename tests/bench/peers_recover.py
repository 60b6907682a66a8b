"""FSDP2 under torchrun with a DCP checkpoint every 5 steps; rank 1 kills itself in step 12. Prints how
long after that the first step was done, and how many steps were done again.

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 \\
        torchrun --standalone --max-restarts 3 --nproc-per-node 4 peers_recover.py EMPTY_FOLDER
"""
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

STEPS, EVERY, DIES = 16, 5, 12
folder = sys.argv[1]
last, died = os.path.join(folder, "last"), os.path.join(folder, "died")

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8)))
for layer in model:
    fully_shard(layer)
fully_shard(model)
adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)


def state():
    parameters, optimizer = get_state_dict(model, adamw)
    return {"parameters": parameters, "optimizer": optimizer}


first = 0
if os.path.exists(last):
    with open(last) as f:
        first = int(f.read())
    kept = state()
    dcp.load(kept, checkpoint_id=os.path.join(folder, str(first)))
    set_state_dict(model, adamw, model_state_dict=kept["parameters"], optim_state_dict=kept["optimizer"])
for step in range(first, STEPS):
    model(torch.randn(32, 512)).square().mean().backward()
    adamw.step()
    adamw.zero_grad()
    if first:
        if rank == 0:
            with open(died) as f:
                when, where = json.load(f)
            print("recovered", time.time() - when, where - first, torch.__version__.split("+")[0], flush=True)
        break
    if (step + 1) % EVERY == 0:
        dcp.save(state(), checkpoint_id=os.path.join(folder, str(step + 1)))
        if rank == 0:
            with open(last, "w") as f:
                f.write(str(step + 1))
        dist.barrier()
    if step == DIES and rank == 1 and not os.path.exists(died):
        with open(died, "w") as f:
            json.dump([time.time(), step], f)
        os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
