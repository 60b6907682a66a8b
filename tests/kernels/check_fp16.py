"""fp16 against numpy: every half, every half's neighbourhood and ties, and random floats.

    check_fp16.py SHIM.so
"""
import ctypes

import numpy

import shim


def to_fp16(isa, x):
    out = numpy.full(x.size + 1, 0xABCD, numpy.uint16)
    shim.call("shim_to_fp16", isa, ctypes.c_size_t(x.size), shim.pointer(x), shim.pointer(out))
    assert out[-1] == 0xABCD
    return out[:-1]


def from_fp16(isa, h):
    out = numpy.zeros(h.size, numpy.float32)
    shim.call("shim_from_fp16", isa, ctypes.c_size_t(h.size), shim.pointer(h), shim.pointer(out))
    return out


def same(isa, what, inputs, got, expected):
    bad = numpy.flatnonzero(got != expected)
    assert bad.size == 0, (f"{isa}: {what} of {inputs[bad[0]]:#x} is {got[bad[0]]:#x}, "
                           f"not {expected[bad[0]]:#x} ({bad.size} differ)")


def check_to(isa, bits):
    bits = bits.astype(numpy.uint32)
    x = bits.view(numpy.float32)
    with numpy.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(numpy.float16).view(numpy.uint16)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    quiet = (bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x3FF).astype(numpy.uint16)
    same(isa, "to_fp16", bits, to_fp16(isa, x), numpy.where(nan, quiet, expected))


def main():
    random = shim.random()
    every = numpy.arange(65536, dtype=numpy.uint16)
    wide = every.view(numpy.float16).astype(numpy.float32).view(numpy.uint32).astype(numpy.int64)
    nan = (every & 0x7FFF) > 0x7C00
    # A NaN keeps its sign and payload; what numpy makes of a signalling one is its own business.
    payload = (every & 0x8000).astype(numpy.int64) << 16 | 0x7F800000 | \
        (every & 0x3FF).astype(numpy.int64) << 13
    wide = numpy.where(nan, payload, wide)
    ends = numpy.array([0x33000000, 0x33000001, 0x32FFFFFF, 0x00000001, 0x007FFFFF, 0x00800000,
                        0x387FFFFF, 0x38800000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000,
                        0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF], numpy.int64)
    for isa in shim.sets():
        for length in list(range(70)) + [65536]:  # vectors' remainders too
            back = from_fp16(isa, every[-length:].copy() if length else every[:0])
            same(isa, "from_fp16", every[-length:], back.view(numpy.uint32).astype(numpy.int64),
                 wide[-length:] if length else wide[:0])
        same(isa, "the way there and back", every, to_fp16(isa, from_fp16(isa, every)),
             numpy.where(nan, every | 0x200, every))
        # Halfway to the next half (a tie) lies 2^12 further in fp32's bits, for halves that are
        # denormal more; all of it is covered by the steps below.
        finite = wide[(every & 0x7FFF) < 0x7C00]
        for step in [0, 1, -1] + [s + d for e in range(12, 24) for s in (1 << e,) for d in (-1, 0, 1)]:
            check_to(isa, (finite + step) % 2**32)
        check_to(isa, numpy.concatenate([ends, ends | 0x80000000]))
        check_to(isa, random.integers(0, 2**32, 1 << 20, numpy.uint64))
        check_to(isa, random.integers(0x33000000 - 0x1000000, 0x47900000, 1 << 20, numpy.uint64))
        print(f"{isa}: all halves, their neighbours and ties, 2 Mi floats")


main()
