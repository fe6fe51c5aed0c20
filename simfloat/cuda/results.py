"""What an array keeps of a result."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import scalar


@scalar
def kept(value, out):
    """A result in the type of `out`, every NaN as the one NaN: where a GPU changes the type, it makes another of it."""
    kind = out.dtype.type
    number = kind(value)
    return number if number == number else kind(np.nan)
