"""PyTorch's elementwise operations on float32 tensors by the definition, one rounding at a time, with fractions.

PyTorch's own kernels fuse some of these products and sums, and convert Python's numbers to float32.
"""

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import simfloat as sf
from tests.rounded import Rounded

f = Rounded(sf.FP32)


def scaled(factor, x):
    """factor * x, which for a factor of 1 or -1 is no product."""
    return x if factor == 1 else np.negative(x) if factor == -1 else f.mul(factor, x)


def mixed(a, b, weight):
    """a + weight * (b - a), or from the other end."""
    difference = f.sub(b, a)
    return f.add(a, f.mul(weight, difference)) if weight < 0.5 else f.sub(b, f.mul(1 - weight, difference))


#: By PyTorch's name.
STEPS = {
    "add": lambda a, b, alpha=1: f.add(a, scaled(alpha, b)),
    "sub": lambda a, b, alpha=1: f.sub(a, scaled(alpha, b)),
    "mul": f.mul,
    "div": f.div,
    "sqrt": f.sqrt,
    "reciprocal": lambda a: f.div(1.0, a),
    "addcmul": lambda a, b, c, value=1: f.add(a, f.mul(scaled(value, b), c)),
    "addcdiv": lambda a, b, c, value=1: f.add(a, f.div(scaled(value, b), c)),
    "lerp": mixed,
}


def _array(x):
    return x.numpy().astype(np.float64) if isinstance(x, torch.Tensor) else x


class SingleSteps(TorchDispatchMode):
    """A block in which these operations are carried out so; counters, which have no axes, are PyTorch's."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, options = func.overloadpacket.__name__, dict(kwargs or {})
        step = STEPS.get(name.rstrip("_"))
        if step is None or args[0].dtype != torch.float32 or not args[0].ndim:
            return func(*args, **options)
        out = args[0] if name.endswith("_") else options.pop("out", None)
        found = step(*map(_array, args), **{key: _array(x) for key, x in options.items()})
        result = torch.from_numpy(found.astype(np.float32))
        return result if out is None else out.copy_(result)
