"""The spacing of a format's numbers, the numbers next to a given one, and minima and maxima.

Callers round the minima and maxima: these are NaN if an operand is NaN, and -0 is below +0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.codes import encode, finite_codes, magnitudes
from simfloat.arithmetic.machines import as_array, device_of, is_on_gpu
from simfloat.arithmetic.operands import OperandLike, as_operand, broadcast_shape, exact_operand
from simfloat.arithmetic.target import result_dtype
from simfloat.common import message_text
from simfloat.environment import in_usual_environment
from simfloat.formats import Format, as_format
from simfloat.formats.catalog import FormatLike
from simfloat.formats.definition import floor_log2
from simfloat.formats.exact_numbers import Exact, is_float64


@in_usual_environment
def ulp(x: OperandLike, format: FormatLike) -> NDArray[np.floating]:
    """Return the spacing of the numbers of the format at |x|, the unit in the last place.

    At a power of two it is the spacing above. Below the smallest normal number, including 0, it is
    `smallest_subnormal`. Above the largest number it continues as if the exponent had no bound. In fixed point it is
    constant. It is NaN for infinities and NaN.

    Parameters:
        x: a number or an array.
        format: the format, or its name.

    Returns:
        An array of the shape of x. It is float32 if x is float32 and the format fits into float32, otherwise float64.

    Raises:
        ValueError: if x is not real or `format` is invalid, or if the spacing is beyond the range of float64.

    Examples:
        >>> sf.ulp([1.0, 1000.0, 0.0], sf.FP16)
        array([9.76562500e-04, 5.00000000e-01, 5.96046448e-08])
    """
    format = as_format(format)
    x = exact_operand(x)
    if x.dtype == object:
        return _map_elements(lambda number: _spacing(number, format), x)
    with np.errstate(invalid="ignore"):  # converting a signalling NaN
        magnitude = np.abs(x.astype(np.float64))
    exponent = np.frexp(magnitude)[1] - 1 - format.mantissa_bits
    spacing = np.ldexp(1.0, np.where(np.isfinite(magnitude), exponent, 0))
    spacing = np.where(magnitude < format.smallest_normal, format.smallest_subnormal, spacing)
    if format.is_fixed:
        spacing = np.full_like(spacing, format.eps)
    return np.where(np.isfinite(magnitude), spacing, np.nan).astype(result_dtype([x], format))


@in_usual_environment
def nextafter(x: ArrayLike, y: OperandLike, format: FormatLike) -> NDArray[np.floating]:
    """Return the number of the format next to `x` in the direction of `y`.

    The result is y if x and y are equal, and NaN if one of them is NaN. The neighbour of the largest number is
    infinity, or the number itself if the format has no infinity. In an unsigned format, the neighbour of zero downward
    is zero. The upper neighbour of the smallest negative number is -0, if the format has -0.

    Parameters:
        x: a number of the format, or an array of them.
        y: any number or array; x and y broadcast, as in numpy.nextafter.
        format: the format, or its name.

    Returns:
        float32 if x is float32 and the format fits into float32, otherwise float64.

    Raises:
        ValueError: naming the first x that is not a number of the format, and its index.

    Examples:
        >>> sf.nextafter(1.0, 2.0, sf.BF16)
        array(1.0078125)
        >>> sf.nextafter(448.0, np.inf, sf.E4M3)
        array(448.)
    """
    format = as_format(format)
    encode(x, format)  # raises ValueError if x is not a number of the format
    x, y = as_operand(x), exact_operand(y, "y")
    if y.dtype == object:  # only the direction matters: a y that is not a float64 value is not equal to any x
        y = _float64_directions(
            np.broadcast_to(x, broadcast_shape([x, y])), np.broadcast_to(y, broadcast_shape([x, y]))
        )
    dtype = result_dtype([x], format)
    shape, take = broadcast_shape([x, y]), device_of(x, y).to_device
    with np.errstate(invalid="ignore"):  # conversion of a signalling NaN
        x, y = (np.broadcast_to(take(one.astype(np.float64)), shape) for one in (x, y))
    number = (_next_fixed if format.is_fixed else _next)(x, y > x, format)
    # Adding +0 turns -0 into the zero of formats that have only one.
    number = np.where(x == y, y if format.has_negative_zero else y + 0.0, number)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, number).astype(dtype)


def _next_fixed(x: NDArray[np.float64], upward: NDArray[np.bool_], format: Format) -> NDArray[np.float64]:
    """Return the neighbours of fixed-point numbers; beyond the first and the last number, these numbers themselves."""
    units = np.where(np.isfinite(x), x, 0.0) / format.eps + np.where(upward, 1.0, -1.0)
    return np.clip(units * format.eps, format.min, format.max)


def _next(x: NDArray[np.float64], upward: NDArray[np.bool_], format: Format) -> NDArray[np.float64]:
    """Return the neighbours of numbers of any other format."""
    place = _places(np.abs(x), format)
    at_zero = (place == 0) & format.has_zero
    negative = np.where(at_zero, ~upward, np.signbit(x))
    number = _number_at(np.where(at_zero | (negative != upward), place + 1, place - 1), format)
    number = np.where(negative & (format.has_negative_zero | (number > 0)), -number, number)
    return number if format.signed else np.maximum(number, format.min)


def _map_elements(function: Callable[[Any], float], x: NDArray) -> NDArray[np.float64]:
    """Apply a function to every element; return float64."""
    return np.array([function(one) for one in x.reshape(-1).tolist()], np.float64).reshape(x.shape)


def _spacing(x: Exact, format: Format) -> float:
    """Return :func:`ulp` of a number that float64 may be unable to represent."""
    if isinstance(x, float):
        return math.nan if not math.isfinite(x) else format.smallest_subnormal
    if abs(x) < Fraction(format.smallest_normal):
        return format.smallest_subnormal
    exponent = floor_log2(abs(x)) - format.mantissa_bits
    if exponent > 1023:
        raise ValueError(f"The spacing of {format} at {message_text(x)}, 2^{exponent}, is beyond the range of float64.")
    return math.ldexp(1.0, exponent)


def _float64_directions(x: NDArray, y: NDArray) -> NDArray[np.float64]:
    """Return y, with values that float64 cannot represent replaced by the infinity in their direction from x."""
    pairs = zip(x.reshape(-1).tolist(), y.reshape(-1).tolist(), strict=True)
    return np.array(
        [float(to) if is_float64(to) else math.inf if to > one or math.isnan(one) else -math.inf for one, to in pairs]
    ).reshape(y.shape)


def _count_flushed_codes(format: Format) -> int:
    """Return the number of codes between zero and the first positive number, which also represent zero."""
    return (1 << format.mantissa_bits) - 1 if format.flushes else 0


def _places(magnitude: NDArray[np.float64], format: Format) -> NDArray[np.int64]:
    """Return the positions of magnitudes in the order of the format's magnitudes; 0 is 0, infinity is the last."""
    codes = finite_codes(magnitude, format).astype(np.int64)
    codes = np.where(np.isinf(magnitude), format.max_code + 1, codes)
    return np.maximum(codes - _count_flushed_codes(format), 0)


def _number_at(place: NDArray[np.int64], format: Format) -> NDArray[np.float64]:
    """Return the magnitude at a position; the first or last one for positions out of range."""
    codes = np.where(place > 0, place + _count_flushed_codes(format), 0)
    numbers = magnitudes(np.minimum(codes, format.max_code).astype(np.uint64), format)
    return np.where((codes > format.max_code) & format.has_infinity, np.inf, numbers)


def larger(a: NDArray, b: NDArray) -> NDArray:
    """Return the larger of two values: NaN if one is NaN, and +0 for zeros of unlike signs."""
    return _extremes(np.maximum, a, b, 1)


def smaller(a: NDArray, b: NDArray) -> NDArray:
    """Return the smaller of two values: NaN if one is NaN, and -0 for zeros of unlike signs."""
    return _extremes(np.minimum, a, b, -1)


def _extremes(choose: np.ufunc, a: NDArray, b: NDArray, sign: int) -> NDArray:
    """Return the larger (sign 1) or the smaller (sign -1) values."""
    a, b = a[()], b[()]  # a single number becomes a scalar, which arrays on any device accept
    with np.errstate(all="ignore"):  # signalling NaN and unused sums would raise warnings
        chosen = choose(a, b)
        # NumPy does not define which of two zeros it returns.
        if not is_on_gpu(chosen):
            if not (chosen == 0).any():
                return as_array(chosen)
            if not np.ndim(b) and b == 0 and np.signbit(b) == (sign < 0):  # the result for every pair of zeros
                return as_array(chosen + 0.0 if sign > 0 else -(0.0 - chosen))
        are_zeros = (a == 0) & (b == 0)
        # A sum of zeros is -0 only if both are.
        return np.where(are_zeros, sign * (sign * a + sign * b), chosen)


def largest(rows: NDArray) -> NDArray:
    """Return the largest value of each row, along the last axis: NaN if one is NaN, +0 for zeros of unlike signs."""
    return _with_signs(np.max(rows, axis=-1), np.signbit(rows).all(-1))


def least(rows: NDArray) -> NDArray:
    """Return the smallest value of each row, along the last axis: NaN if one is NaN, -0 for zeros of unlike signs."""
    return _with_signs(np.min(rows, axis=-1), np.signbit(rows).any(-1))


def _with_signs(extremes: NDArray, is_negative: NDArray) -> NDArray:
    """Give values these signs. Only zeros may have another one: NumPy does not define which of several zeros it
    returns."""
    one = extremes.dtype.type(1)
    return as_array(np.copysign(extremes, np.where(is_negative, -one, one)))


def place_of_largest(x: NDArray, axis: int | None = None, keepdims: bool = False) -> NDArray[np.integer]:
    """Return the position of the largest value along an axis, or in row-major order, like numpy.argmax."""
    return _place_of_first_nan(x, np.argmax(x, axis, keepdims=keepdims), axis, keepdims)


def place_of_least(x: NDArray, axis: int | None = None, keepdims: bool = False) -> NDArray[np.integer]:
    """Return the position of the smallest value along an axis, or in row-major order, like numpy.argmin."""
    return _place_of_first_nan(x, np.argmin(x, axis, keepdims=keepdims), axis, keepdims)


def _place_of_first_nan(x: NDArray, place: Any, axis: int | None, keepdims: bool) -> NDArray[np.integer]:
    """Return the position of the first NaN if one exists, otherwise `place`; CuPy returns the position of any NaN."""
    if not is_on_gpu(x):
        return place
    unknown = np.isnan(x)
    return np.where(unknown.any(axis, keepdims=keepdims), unknown.argmax(axis, keepdims=keepdims), place)


def clip_by_extremes(a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """Return a limited to the range: `low` if a is below it, then `high` if the result is above `high`."""
    return smaller(larger(a, low), high)


def clamp(a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """Return a limited to the range: `low` if a < low, `high` if a > high; for zeros of unlike signs, a itself."""
    a, low, high = a[()], low[()], high[()]
    return np.where(a < low, low, np.where(a > high, high, a))
