"""New arrays, which begin where a line of the cache begins, and the bits of arrays.

A vector that crosses from one line to the next is loaded and stored as two. NumPy aligns to 16 bytes; a product of
matrices of 512 rows took 1.7 times as long where both of the arrays whose rows are read side by side, its right operand
and its sums, began in the middle of a line.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import CPU, Device, device_of
from simfloat.arithmetic.operands import FloatType

#: Bytes of a line of the cache.
LINE = 64

#: Elements below which an array is sooner made than aligned.
LEAST_ALIGNED = 1 << 14


def empty(shape: tuple[int, ...], dtype: FloatType, device: Device = CPU) -> NDArray[Any]:
    """An uninitialised array in C order."""
    if device is not CPU:
        return device.new_array("empty", shape, dtype)
    array = np.empty(shape, dtype)
    return (
        array
        if array.size < LEAST_ALIGNED
        else _cache_aligned_part(np.empty(array.size + LINE, dtype), shape, array.size)
    )


def zeros(shape: tuple[int, ...], dtype: FloatType, device: Device = CPU) -> NDArray[Any]:
    """An array of zeros in C order."""
    if device is not CPU:
        return device.new_array("zeros", shape, dtype)
    size = math.prod(shape)
    return (
        np.zeros(shape, dtype)
        if size < LEAST_ALIGNED
        else _cache_aligned_part(np.zeros(size + LINE, dtype), shape, size)
    )


def copy(x: NDArray, dtype: FloatType) -> NDArray[Any]:
    """The numbers in another type and in C order."""
    machine = device_of(x)
    if x.size < LEAST_ALIGNED and machine is CPU:
        return x.astype(dtype, "C")
    out = empty(x.shape, dtype, machine)
    out[...] = x
    return out


def is_cache_aligned(x: NDArray) -> bool:
    """Whether an array begins where a line does."""
    return x.__array_interface__["data"][0] % LINE == 0


def _cache_aligned_part(longer: NDArray, shape: tuple[int, ...], size: int) -> NDArray:
    """The first part of the vector that begins with a line, in this shape."""
    skipped = -longer.__array_interface__["data"][0] % LINE // longer.itemsize
    return longer[skipped : skipped + size].reshape(shape)


def image_of(x: NDArray) -> NDArray[np.unsignedinteger]:
    """The bits of float32 or float64 numbers as integers, in the same memory."""
    return x.view(np.uint32 if x.dtype == np.float32 else np.uint64)


def same_bits(a: NDArray, b: NDArray) -> bool:
    """Whether two arrays of floats hold the same numbers: -0 is not +0, and NaN is NaN."""
    if a is b:
        return True
    return a.dtype == b.dtype and a.shape == b.shape and bool((image_of(a) == image_of(b)).all())
