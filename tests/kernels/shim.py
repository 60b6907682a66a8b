"""Loads tests/kernels/shim.c for the Python tests of this folder. argv[1] is the library."""
import ctypes
import os
import sys
import time

import numpy

ADAMW, ADAM, SGD, LION = 1, 2, 3, 4


class Options(ctypes.Structure):  # struct optimizer_options
    _fields_ = [("kind", ctypes.c_int), ("beta1", ctypes.c_double), ("beta2", ctypes.c_double),
                ("epsilon", ctypes.c_double), ("weight_decay", ctypes.c_double),
                ("momentum", ctypes.c_double), ("nesterov", ctypes.c_bool),
                ("clip_value", ctypes.c_double)]


library = ctypes.CDLL(sys.argv[1])


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def call(function, isa, *arguments):
    """False: this CPU lacks the instruction set."""
    code = getattr(library, function)(isa.encode(), *arguments)
    assert code in (0, -9), f"{function} on {isa}: status {code}"
    return code == 0


def sets():
    """The instruction sets that this CPU has."""
    nothing = numpy.zeros(1, numpy.float32)
    return [isa for isa in ("plain", "avx2", "avx512")
            if call("shim_to_fp16", isa, ctypes.c_size_t(0), pointer(nothing), pointer(nothing))]


def random():
    seed = int(os.environ.get("ZEROD_SEED", time.time_ns() % 2**32))
    print(f"ZEROD_SEED={seed}")
    return numpy.random.default_rng(seed)


def run_steps(isa, options, clip, lr, gradients, p):
    """The parameters after each row of |gradients| was a step."""
    p = p.copy()
    s1, s2 = numpy.zeros_like(p), numpy.zeros_like(p)
    assert call("shim_steps", isa, ctypes.byref(options), ctypes.c_double(clip),
                ctypes.c_double(lr), ctypes.c_uint64(len(gradients)), ctypes.c_size_t(p.size),
                pointer(gradients), pointer(p), pointer(s1), pointer(s2))
    return p
