"""Reading what users pass: arrays, formats, shapes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.formats import FP64, Format, Rounding

#: np.float32 or np.float64, as the type of an array's elements. (type[np.floating] is no dictionary key to mypy.)
FloatType: TypeAlias = Any

#: Round-to-odd in float64's 53 bits proves a single rounding to at most this many.
MOST_PRECISION = 50


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


def check_rounding(rounding: Any) -> None:
    """Raise ValueError unless `rounding` is a Rounding."""
    if not isinstance(rounding, Rounding):
        raise ValueError(f"rounding must be a simfloat.Rounding such as simfloat.nearest_even, got {rounding!r}.")


def check_precision(format: Format, rounding: Rounding) -> None:
    """Raise ValueError for formats whose single rounding float64's arithmetic cannot prove."""
    if format.precision > MOST_PRECISION and not (format == FP64 and rounding.mode == "nearest_even"):
        raise ValueError(
            f"An operation is rounded once to formats of at most {MOST_PRECISION} bits of precision, or to FP64 under "
            f"nearest_even; {format} has precision {format.precision}, and the mode is {rounding}."
        )


def check_no_nan(out: NDArray, format: Format) -> None:
    """Raise ValueError if there is a NaN among results in a format that has none."""
    if not np.isnan(out).any():
        return
    place = tuple(int(i) for i in np.argwhere(np.isnan(out))[0])
    what = "NaN" if format.signed else "NaN or negative"
    raise ValueError(f"{format} has no NaN, but the result at index {place} is {what}.")


def odd_suffices(format: Format, rounding: Rounding) -> bool:
    """Whether round-to-odd in float64 holds all that a draw reads, at every magnitude of the format."""
    bits = rounding.bits + 2
    inside = format.emin - format.mantissa_bits - bits >= -1074 and format.emax < 1023
    return inside and format.precision + bits <= 53


def result_dtype(operands: list[NDArray], format: Format) -> FloatType:
    """float32 if all operands are float32 and the format fits, else float64."""
    if not format.fits_float32:
        return np.float64
    for operand in operands:
        if operand.dtype != np.float32:
            return np.float64
    return np.float32
