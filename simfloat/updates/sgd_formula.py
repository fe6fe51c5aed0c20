"""What SGD adds to a parameter, in the arithmetic of updates: the formula of PyTorch, which both front ends have."""

from __future__ import annotations

from types import SimpleNamespace

from numpy.typing import NDArray

from simfloat.updates.update_arithmetic import UpdateArithmetic


def sgd(step: UpdateArithmetic, gradient: NDArray, options: SimpleNamespace) -> NDArray:
    """-lr * m, with m = momentum * m + (1 - dampening) * d and d = g + weight_decay * w; m is d without momentum.

    With Nesterov's momentum it is -lr * (d + momentum * m). But for that by the momentum where m is made, a factor of 1
    or -1 is no product.
    """
    d = step.with_decay(gradient, options.weight_decay)
    if options.momentum:
        if "momentum_buffer" in step.state:
            take = 1.0 - options.dampening
            x, take = (step.times(take, d), None) if abs(take) == 1.0 else (d, take)
            m = step.moment("momentum_buffer", x, keep=options.momentum, take=take)
        else:
            m = step.begin("momentum_buffer", d)
        d = step.add(d, step.times(options.momentum, m)) if options.nesterov else m
    return step.times(-options.lr, d)
