"""Optimizers against PyTorch, and Lion against its published formula in float64.

    check_torch.py SHIM.so

PyTorch rounds in another order, so bits differ. Over 100 steps of fp32 the two may be apart by what
rounding can do: each step rounds parameters of size P three times at most (ours twice; PyTorch's
AdamW once more for its decay), and moves them by the learning rate times a direction of size D
whose own error is some 16 roundings: steps * 2^-24 * (3 P + 16 lr D).
"""
import numpy
import torch

import shim
from shim import Options

STEPS, N, LR, ROUNDING = 100, 4099, 1e-2, 2.0**-24


def torch_steps(make, gradients, p, clip, clip_value):
    q = torch.nn.Parameter(torch.from_numpy(p.copy()))
    optimizer = make([q])
    for g in gradients:
        q.grad = torch.from_numpy(g.copy())
        if clip:
            torch.nn.utils.clip_grad_norm_([q], clip)
        if clip_value:
            torch.nn.utils.clip_grad_value_([q], clip_value)
        optimizer.step()
    return q.detach().numpy()


def check(name, options, reference, gradients, p, direction, clip=0.0):
    tolerance = STEPS * ROUNDING * (3 * float(abs(p).max() + 1) + 16 * LR * direction)
    outcomes = []
    for isa in shim.sets():
        got = shim.run_steps(isa, options, clip, LR, gradients, p)
        apart = float(abs(got.astype(numpy.float64) - reference).max())
        moved = float(abs(got - p).max())
        print(f"{name:24} {isa:7} apart {apart:.2e} of {tolerance:.2e}, moved {moved:.2e}")
        assert moved > 100 * tolerance, "the test would see nothing"
        assert apart <= tolerance, f"{name}: {apart} apart"
        outcomes.append(got.tobytes())
    assert len(set(outcomes)) == 1, f"{name}: instruction sets differ"


def lion(options, gradients, p):
    """Chen et al. 2023, algorithm 2. NaN: where the sign's argument is too near 0 to tell."""
    p, m = p.astype(numpy.float64), numpy.zeros(p.size)
    for g in gradients.astype(numpy.float64):
        c = options.beta1 * m + (1 - options.beta1) * g
        p = numpy.where(abs(c) < 16 * ROUNDING * abs(gradients).max(), numpy.nan, p)
        p = p - LR * (numpy.sign(c) + options.weight_decay * p)
        m = options.beta2 * m + (1 - options.beta2) * g
    return p


def main():
    random = shim.random()
    p = random.normal(size=N).astype(numpy.float32)
    scale = 2.0 ** random.integers(-6, 3, size=N)
    gradients = ((random.normal(size=(STEPS, N)) + 0.3) * scale).astype(numpy.float32)
    top = float(abs(gradients).max())
    adam = dict(beta1=0.9, beta2=0.95, epsilon=1e-8)
    for wd in (0.0, 0.1):
        for clip, value in ((0.0, 0.0), (20.0, 0.0), (0.0, 0.5), (20.0, 0.1)):
            def against(name, options, make, direction):
                check(f"{name} wd {wd} clip {clip} {value}", options,
                      torch_steps(make, gradients, p, clip, value), gradients, p, direction, clip)

            common = dict(weight_decay=wd, clip_value=value)
            against("adamw", Options(kind=shim.ADAMW, **adam, **common),
                    lambda q: torch.optim.AdamW(q, LR, (0.9, 0.95), 1e-8, wd), 10)
            against("adam", Options(kind=shim.ADAM, **adam, **common),
                    lambda q: torch.optim.Adam(q, LR, (0.9, 0.95), 1e-8, wd), 10)
            size = value or min(top, clip or top)
            for momentum, nesterov in ((0.0, False), (0.9, False), (0.9, True)):
                against(f"sgd {momentum}{' nesterov' if nesterov else ''}",
                        Options(kind=shim.SGD, momentum=momentum, nesterov=nesterov, **common),
                        lambda q: torch.optim.SGD(q, LR, momentum, 0, wd, nesterov),
                        size / (1 - momentum))
        options = Options(kind=shim.LION, beta1=0.9, beta2=0.99, weight_decay=wd)
        expected = lion(options, gradients, p)
        told = ~numpy.isnan(expected)
        assert told.sum() > N * 0.9, "too few signs are clear"
        check(f"lion wd {wd}", options, expected[told],
              numpy.ascontiguousarray(gradients[:, told]), p[told], 1)


main()
