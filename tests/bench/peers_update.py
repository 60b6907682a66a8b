"""AdamW and the whole update of a step (unscale, clip, AdamW, bf16 copy) against PyTorch's and
DeepSpeed's, in one process: ours is whole.c by ctypes. bench_update has the machine's ceiling."""
import ctypes
import logging
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import table  # noqa: E402
import torch  # noqa: E402

N, ROUNDS, SCALE = 32 << 20, 5, 1024.0
VERSION = table.short(torch.__version__)

library = ctypes.CDLL(os.path.join(table.build(), "lib", "libbench_whole.so"))
library.whole_new.restype = ctypes.c_void_p
library.whole_new.argtypes = [ctypes.c_uint64, ctypes.c_uint]
library.whole_update.restype = library.whole_adamw.restype = ctypes.c_double
library.whole_update.argtypes = library.whole_adamw.argtypes = library.whole_del.argtypes = [ctypes.c_void_p]


def seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


class Peer:
    """Parameters, gradients and one of their optimizers."""

    def __init__(self, name, make):
        self.name = name
        self.p = torch.nn.Parameter(torch.full((N,), 0.5))
        self.g = torch.full((N,), 1e-3)
        self.p.grad = self.g
        self.copy = torch.empty(N, dtype=torch.bfloat16)
        self.optimizer = make([self.p])

    def adamw(self):
        return 28 * N / seconds(self.optimizer.step)

    def whole(self):
        def passes():
            self.g.mul_(1 / SCALE)
            torch.nn.utils.clip_grad_norm_([self.p], 1.0)
            self.optimizer.step()
            self.copy.copy_(self.p.detach())
        self.g.fill_(1.0)  # what it multiplies with is part of the state
        return 34 * N / seconds(passes)


def deepspeed(parameters):
    os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
    for name in ("torch.utils.cpp_extension", "DeepSpeed"):
        logging.getLogger(name).setLevel(logging.ERROR)  # that there is no GPU is known
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return DeepSpeedCPUAdam(parameters, lr=1e-4, adamw_mode=True)


PEERS = (("torch fused", lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True)),
         ("torch foreach", lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=True)),
         ("DeepSpeed CPUAdam", deepspeed))


def rows(threads, wanted):
    torch.set_num_threads(threads)
    words = f", {threads} thread{'s' if threads > 1 else ''}"
    for name, make in wanted:
        against = name.replace("torch", f"torch {VERSION}")
        whole = library.whole_new(N, threads)
        try:
            peer = Peer(name, make)
            pair = table.alternate(lambda: 28 * N / library.whole_adamw(whole) / 1e9, lambda: peer.adamw() / 1e9, ROUNDS)
            table.row("adamw" + words, "GB/s", *pair, against)
            pair = table.alternate(lambda: 34 * N / library.whole_update(whole) / 1e9, lambda: peer.whole() / 1e9, ROUNDS)
            table.row("whole update" + words, "GB/s", *pair, against + " + 3")
        except Exception as e:
            table.not_run("adamw, whole update" + words, against, str(e) or type(e).__name__)
        library.whole_del(whole)


wanted = [x for x in PEERS if not sys.argv[1:] or x[0] in sys.argv[1:]]
for threads in (1, 2):
    rows(threads, wanted)
