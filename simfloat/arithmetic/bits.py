"""The bits of arrays of floats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def image_of(x: NDArray) -> NDArray[np.unsignedinteger]:
    """The bits of float32 or float64 numbers as integers, in the same memory."""
    return x.view(np.uint32 if x.dtype == np.float32 else np.uint64)


def same_bits(a: NDArray, b: NDArray) -> bool:
    """Whether two arrays of floats hold the same numbers: -0 is not +0, and NaN is NaN."""
    return a.dtype == b.dtype and a.shape == b.shape and bool((image_of(a) == image_of(b)).all())
