"""One rank of a peer's job that stays alive between measurements. jobs.py (class Group) starts the
ranks with torchrun's environment and talks to them: each prints "ready {...}" once, then for every
line "N" on standard input takes N steps together and prints the seconds."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def start():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")


def timed(steps, step):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    dist.barrier()
    return time.perf_counter() - begin


def serve(step, **facts):
    print("ready", json.dumps({"torch": torch.__version__.split("+")[0], **facts}), flush=True)
    for line in sys.stdin:
        print(timed(int(line), step), flush=True)
    dist.destroy_process_group()
