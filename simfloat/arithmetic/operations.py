"""One operation, one rounding: the exact real result is rounded once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.exactness import check_precision
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import as_operand, common_shape, spread
from simfloat.arithmetic.plan import round_all
from simfloat.arithmetic.sources import source_for
from simfloat.arithmetic.stream import Stream, take_draw
from simfloat.arithmetic.target import Target, as_target, result_dtype
from simfloat.formats import FP32, Format, Rounding, nearest_even


def add(
    a: ArrayLike,
    b: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """a + b, the exact sum rounded once to `format`; operands broadcast.

    Operands are any float32 or float64 values, whatever the format. Specials follow IEEE 754-2019: inf - inf is NaN,
    an exact zero sum of unlike signs is +0, and -0 under toward_negative. float32 out if all operands are float32 and
    the format fits, else float64.

    Raises ValueError for formats of more than 50 bits of precision (FP64 under nearest_even excepted), shapes that do
    not broadcast, and what :func:`simfloat.round` refuses.
    """
    return operate("add", (a, b), format, rounding, stream, observer)


def subtract(
    a: ArrayLike,
    b: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """a - b, the exact difference rounded once to `format`; otherwise as :func:`simfloat.add`."""
    return operate("subtract", (a, b), format, rounding, stream, observer)


def multiply(
    a: ArrayLike,
    b: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """a * b, the exact product rounded once to `format`; 0 * inf is NaN; otherwise as :func:`simfloat.add`."""
    return operate("multiply", (a, b), format, rounding, stream, observer)


def divide(
    a: ArrayLike,
    b: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """a / b, the exact quotient rounded once to `format`; 0 / 0 is NaN, x / 0 infinite; otherwise as `add`."""
    return operate("divide", (a, b), format, rounding, stream, observer)


def fma(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """a * b + c, the exact result rounded once to `format`; otherwise as :func:`simfloat.add`."""
    return operate("fma", (a, b, c), format, rounding, stream, observer)


def sqrt(
    x: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The square root of x, rounded once to `format`; of -0 it is -0, of other negative numbers NaN."""
    return operate("sqrt", (x,), format, rounding, stream, observer)


def operate(
    operation: str,
    operands: tuple[ArrayLike, ...],
    format: Format | str,
    rounding: Rounding,
    stream: Stream | None,
    observer: Observer | None,
) -> NDArray[np.floating]:
    """Any of the operations above by name."""
    arrays = [as_operand(x, name) for x, name in zip(operands, "abc", strict=False)]
    target = as_target(arrays, format, rounding, stream, observer, operation)
    check_precision(target.format, rounding)
    return compute(operation, arrays, target)


def compute(operation: str, arrays: list[NDArray], target: Target) -> NDArray[np.floating]:
    """An operation on float arrays; nothing is checked but the shapes. The observer is told of the operation."""
    shape = common_shape(arrays)
    draw = take_draw(target.stream, target.rounding)
    make_source = source_for(operation, target.format, target.rounding, result_dtype(arrays, FP32) is np.float32)
    out = np.empty(shape, target.dtype)
    source = make_source(operation, [spread(a, shape) for a in arrays], target.rounding)
    round_all(source, out, target._replace(operation=operation), draw)
    return out
