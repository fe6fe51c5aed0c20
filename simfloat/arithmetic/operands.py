"""Reading what users pass: arrays, formats, shapes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: np.float32 or np.float64, as the type of an array's elements. (type[np.floating] is no dictionary key to mypy.)
FloatType: TypeAlias = Any


def as_operand(x: ArrayLike, name: str = "x") -> NDArray[np.floating]:
    """`x` as a float32 array if it is one, else as float64; memory as it is.

    Raises ValueError for what float64 cannot hold exactly.
    """
    if type(x) is np.ndarray and (x.dtype == np.float32 or x.dtype == np.float64):
        return x
    if type(x) is float:
        return np.array(x)
    if hasattr(x, "__cuda_array_interface__"):
        raise ValueError(f"{name} is an array on a GPU; pass a NumPy array, for example cupy.asnumpy({name}).")
    try:
        array = np.asarray(x)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array of numbers.") from None
    if array.dtype.kind == "f" and array.dtype.itemsize == 4:
        return array.astype(np.float32)  # the machine's byte order
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise ValueError(f"{name} must hold real numbers that float64 can hold, got dtype {array.dtype}.")
    wide = array.astype(np.float64)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and not np.array_equal(wide.astype(object), array):
        raise ValueError(f"{name} holds integers that float64 cannot hold exactly; round them to float64 first.")
    return wide


def flat(array: NDArray) -> NDArray:
    """The elements in C order as one aligned, writeable vector, the form that kernels are compiled for."""
    # Contiguity first: asking a broadcast array whether it is writeable raises a warning.
    flags = array.flags
    plain = flags.c_contiguous and flags.carray
    return (array if plain else np.array(array, order="C")).reshape(-1)


def common_shape(operands: list[NDArray]) -> tuple[int, ...]:
    """The shape that the operands broadcast to."""
    shape = operands[0].shape
    for operand in operands:
        if operand.shape != shape:
            break
    else:
        return shape
    try:
        return np.broadcast_shapes(*(operand.shape for operand in operands))
    except ValueError:
        shapes = " and ".join(str(operand.shape) for operand in operands)
        raise ValueError(f"Shapes {shapes} do not broadcast.") from None


def spread(operand: NDArray, shape: tuple[int, ...]) -> NDArray:
    """The operand's elements for a result of `shape` in C order; one element stays one."""
    if operand.shape == shape or operand.size == 1:
        return flat(operand)
    return flat(np.broadcast_to(operand, shape))
