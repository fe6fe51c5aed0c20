"""One operation, one rounding: the exact real result is rounded once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat import kernels
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import as_operand, check_rounding, common_shape, spread
from simfloat.arithmetic.plan import Plan, plan_for, result_dtype, round_all, take_draw
from simfloat.arithmetic.stream import BitStream
from simfloat.arithmetic.threads import scratch
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even

#: Round-to-odd in float64's 53 bits proves a single rounding to at most this many.
MOST_PRECISION = 50

ZERO = np.zeros(1)


def add(
    a: ArrayLike,
    b: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: BitStream | None = None,
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
    stream: BitStream | None = None,
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
    stream: BitStream | None = None,
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
    stream: BitStream | None = None,
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
    stream: BitStream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """a * b + c, the exact result rounded once to `format`; otherwise as :func:`simfloat.add`."""
    return operate("fma", (a, b, c), format, rounding, stream, observer)


def sqrt(
    x: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: BitStream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The square root of x, rounded once to `format`; of -0 it is -0, of other negative numbers NaN."""
    return operate("sqrt", (x,), format, rounding, stream, observer)


def operate(
    operation: str,
    operands: tuple[ArrayLike, ...],
    format: Format | str,
    rounding: Rounding,
    stream: BitStream | None,
    observer: Observer | None,
    dtype: type | None = None,
) -> NDArray[np.floating]:
    """Any of the operations above by name; `dtype` overrides the rule for the result's."""
    format = as_format(format)
    check_rounding(rounding)
    check_precision(format, rounding)
    arrays = [as_operand(x, name) for x, name in zip(operands, "abc", strict=False)]
    shape = common_shape(arrays)
    out = np.empty(shape, dtype or result_dtype(arrays, format))
    source = _source(operation, [spread(array, shape) for array in arrays], format, rounding)
    plan = plan_for(format, rounding, source.carrier)
    round_all(source, out, plan, operation=operation, draw=take_draw(stream, rounding), observer=observer)
    return out


def check_precision(format: Format, rounding: Rounding) -> None:
    """Raise ValueError for formats whose single rounding float64's arithmetic cannot prove."""
    if format.precision > MOST_PRECISION and not (format == FP64 and rounding.mode == "nearest_even"):
        raise ValueError(
            f"An operation is rounded once to formats of at most {MOST_PRECISION} bits of precision, or to FP64 under "
            f"nearest_even; {format} has precision {format.precision}, and the mode is {rounding}."
        )


class _Computed:
    """Exact results of an operation on vectors of one length; a vector of length 1 is a scalar."""

    carrier: type = np.float64

    def __init__(self, operation: str, vectors: list[NDArray], rounding: Rounding) -> None:
        self.operation = operation
        self.vectors = vectors
        # Under toward_negative an exact zero sum of unlike signs is -0.
        self.sign = -1.0 if rounding.mode == "toward_negative" else 1.0

    def block(self, start: int, stop: int) -> list[NDArray]:
        """The operands of the elements from start to stop."""
        return [vector if vector.size == 1 else vector[start:stop] for vector in self.vectors]

    def exact(self, start: int, stop: int) -> NDArray:
        exact = scratch("exact", stop - start, np.float64)
        a, b, c = (*self.block(start, stop), ZERO, ZERO)[:3]
        kernels.elementwise.exact_results[self.operation](a, b, c, self.sign, exact)
        return exact

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        plan.loop(self.exact(start, stop), words, out, plan.numbers)


class _Drawn(_Computed):
    """The same, rounded at random from more bits than float64 holds."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        a, b, c = (*self.block(start, stop), ZERO, ZERO)[:3]
        kernels.elementwise.drawn_results[self.operation](a, b, c, self.sign, words, out, plan.numbers)


class _Native(_Computed):
    """The same, rounded by the hardware, or to float64 by a kernel where the hardware has no such operation."""

    def __init__(self, operation: str, vectors: list[NDArray], rounding: Rounding, carrier: type) -> None:
        super().__init__(operation, vectors, rounding)
        self.carrier = carrier

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        result = scratch("native", stop - start, self.carrier)
        if self.operation in _NATIVE:
            with np.errstate(all="ignore"):
                _NATIVE[self.operation](*self.block(start, stop), out=result)
        else:
            a, b, c = (*self.block(start, stop), ZERO, ZERO)[:3]
            kernels.elementwise.double_results[self.operation](a, b, c, self.sign, result)
        plan.loop(result, words, out, plan.numbers)


def _source(operation: str, vectors: list[NDArray], format: Format, rounding: Rounding) -> _Computed:
    if rounding.mode == "nearest_even":
        if format == FP64:
            return _Native(operation, vectors, rounding, np.float64)
        if format == FP32 and operation in _NATIVE and all(vector.dtype == np.float32 for vector in vectors):
            return _Native(operation, vectors, rounding, np.float32)
    # A draw reads the exact result to `bits` bits below the last place, and two more for what lies below.
    if rounding.is_stochastic and not odd_suffices(format, rounding):
        return _Drawn(operation, vectors, rounding)
    return _Computed(operation, vectors, rounding)


def odd_suffices(format: Format, rounding: Rounding) -> bool:
    """Whether round-to-odd in float64 holds all that a draw reads, at every magnitude of the format."""
    bits = (rounding.bits or 0) + 2
    inside = format.emin - format.mantissa_bits - bits >= -1074 and format.emax < 1023
    return inside and format.precision + bits <= 53


_NATIVE: dict[str, Callable] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "sqrt": np.sqrt,
    "fma": lambda a, b, c, out: kernels.elementwise.native_fma(a, b, c, out),
}
