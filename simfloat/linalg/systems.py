"""Reading matrices and right-hand sides, and the words for what is wrong with them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.machines import is_on_gpu
from simfloat.arrays import Array
from simfloat.arrays.array import array, new_array, read_numbers
from simfloat.arrays.array_arithmetic import ArrayArithmetic, as_arithmetic, with_options
from simfloat.arrays.complex_parts import is_complex
from simfloat.formats import Format, nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike


class ArithmeticOptions(NamedTuple):
    """The options that all functions take: those that are None are the matrix's own."""

    format: FormatLike | None = None
    rounding: RoundingLike | None = None
    accumulate: Accumulator | FormatLike | None = None
    stream: Stream | None = None


def arithmetic_of(a: Any, options: ArithmeticOptions) -> ArrayArithmetic:
    """The arithmetic of a matrix: its own, with the options that are given, or theirs alone."""
    if isinstance(a, Array):
        u = with_options(a.arithmetic, **options._asdict())
    elif options.format is None:
        raise ValueError("A matrix without a format needs format=, or pass simfloat.array(A, format).")
    else:
        u = as_arithmetic(options.format, options.rounding or nearest_even, options.accumulate, options.stream)
    if not u.format.signed:
        raise ValueError(f"Linear algebra needs numbers of both signs, and {u.format} has none below zero.")
    return u


#: Messages for complex matrices: of systems, of factorizations, and of eigenvalues and singular values.
COMPLEX_SYSTEM = (
    "a complex system of order n is the real one of order 2 n with [[A.real, -A.imag], [A.imag, A.real]] and "
    "[b.real, b.imag]"
)
COMPLEX_FACTORS = (
    "only real matrices are factored; sf.linalg.solve and lstsq solve a complex system as the real one of twice the "
    "order with [[A.real, -A.imag], [A.imag, A.real]] and [b.real, b.imag]"
)
COMPLEX_VALUES = (
    "only real matrices are decomposed; each value of A is twice one of the real matrix "
    "[[A.real, -A.imag], [A.imag, A.real]] of twice the order"
)


def numbers_of(x: Any, u: ArrayArithmetic, name: str, if_complex: str = COMPLEX_SYSTEM) -> NDArray[np.floating]:
    """The numbers of a real operand, rounded to the format and new in memory.

    Raises ValueError for complex, infinite and undefined ones.
    """
    operand = (
        x if isinstance(x, Array) else array(x, u.format, rounding=u.rounding, stream=u.stream, observer=u.observer)
    )
    if is_complex(operand.numbers):
        raise ValueError(f"{name} is complex: {if_complex}.")
    if is_on_gpu(operand.numbers):
        raise ValueError(f"{name} is on a GPU, and linear algebra runs on the CPU: pass NumPy's numbers, {name}.get().")
    exact_numbers = operand.numbers
    numbers = exact_numbers.copy() if operand.format == u.format else u.round(exact_numbers)
    if not np.isfinite(numbers).all():
        if np.isfinite(exact_numbers if isinstance(x, Array) else np.asarray(x, np.float64)).all():
            raise ValueError(
                f"{name} has numbers beyond {u.format}'s largest, {u.format.max}: {scaling_advice(x, u.format)}."
            )
        raise ValueError(f"{name} holds infinities or NaN.")
    return numbers


def matrix_of(
    a: Any, u: ArrayArithmetic, name: str = "A", square: bool = False, if_complex: str = COMPLEX_SYSTEM
) -> NDArray[np.floating]:
    """The numbers of a matrix."""
    numbers = numbers_of(a, u, name, if_complex)
    _check_matrix(name, numbers.shape, square)
    return numbers


def triangle_of(
    a: Any, u: ArrayArithmetic, name: str = "A", lower: bool = True, if_complex: str = COMPLEX_SYSTEM
) -> NDArray[np.floating]:
    """The numbers of a square matrix of which one triangle is read: what the other one holds, even NaN, becomes 0."""
    triangle = read_numbers(a)
    if not is_on_gpu(triangle):
        _check_matrix(name, triangle.shape, True)
        triangle = np.tril(triangle) if lower else np.triu(triangle)
    return matrix_of(new_array(triangle, a.arithmetic) if isinstance(a, Array) else triangle, u, name, True, if_complex)


def _check_matrix(name: str, shape: tuple[int, ...], square: bool) -> None:
    if len(shape) != 2 or (square and shape[0] != shape[1]):
        raise ValueError(f"{name} must be a {'square ' if square else ''}matrix, got shape {shape}.")


def right_hand_side(b: Any, u: ArrayArithmetic, rows: int) -> NDArray[np.floating]:
    """The numbers of a vector or of several, as columns, rounded to the format from whatever they have."""
    numbers = numbers_of(b, u, "b")
    if numbers.ndim not in (1, 2) or numbers.shape[0] != rows:
        raise ValueError(f"b must be a vector of {rows} numbers or a matrix of {rows} rows, got shape {numbers.shape}.")
    return numbers


def result_array(numbers: NDArray, u: ArrayArithmetic) -> Array:
    """The array that a result is."""
    return new_array(np.ascontiguousarray(numbers, u.dtype), u)


def _scaling_exponent(a: Any, format: Format, power: int = 1) -> int:
    """The exponent of two by which numbers may be scaled, so that sums of their powers over all rows stay in range."""
    x = np.abs(np.asarray(a, np.float64))
    largest, rows = x.max(initial=0.0, where=np.isfinite(x)), max(x.shape[0] if x.ndim else 1, 1)
    return math.floor((math.log2(format.max) - math.log2(rows)) / power - math.log2(largest or 1.0))


def scaling_advice(a: Any, format: Format) -> str:
    """By which power of two to scale numbers so that sums of as many products as there are rows stay in range."""
    return f"scale the system, as by 2**{min(_scaling_exponent(a, format), -1)}, or use a format of larger range"


def scaling_up(a: Any, format: Format, power: int = 1) -> str:
    """By which power of two numbers may grow, where what is made of them is too small."""
    room = _scaling_exponent(a, format, power)
    return f"{f'scale it up, as by 2**{room}, or ' if room > 0 else ''}use a format of larger range"


def overflow_error(what: str, a: NDArray, format: Format) -> ValueError:
    """The error where numbers left the format's range."""
    return ValueError(
        f"{what} left the range of {format}, whose largest number is {format.max}: {scaling_advice(a, format)}."
    )


def in_range(u: ArrayArithmetic, *numbers: NDArray) -> bool:
    """Whether results are finite, and none stands where those stop that lie beyond."""
    return all(bool((np.abs(values) < u.clamp_limit).all()) for values in numbers)


def check_range(u: ArrayArithmetic, what: str, a: NDArray, *results: NDArray, power: int = 1) -> None:
    """Raise ValueError for results out of range, of sums of the powers of a matrix's numbers."""
    if not in_range(u, *results):
        raise overflow_error(what, np.asarray(a, np.float64) ** power, u.format)


def solution_overflow_error(format: Format) -> ValueError:
    """The error where a solution is too large: to scale the matrix, too, would leave it as it is."""
    return ValueError(
        f"The solution left the range of {format}, whose largest number is {format.max}: scale b down by a power of "
        "two, which scales the solution, or use a format of larger range."
    )


def check_tolerance(tolerance: Any) -> None:
    """Raise ValueError for a tolerance that is not a number from 0."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | np.number) or not tolerance >= 0:
        raise ValueError(f"tolerance must be a number from 0, got {tolerance!r}.")


def rounding_share(format: Format, size: int) -> float:
    """How much of a column's norm its roundings may be, in a matrix of that size.

    That is n units roundoff, and at most the root of one, where a long sum's bound says nothing more.
    """
    return min(size * format.unit_roundoff, math.sqrt(format.unit_roundoff))


def check_squares(x: NDArray, a: NDArray, original: NDArray, format: Format) -> None:
    """Refuse numbers whose sum of squares is zero, unless they are roundings of what they were computed `of`."""
    lost, norm = (float(np.linalg.norm(np.asarray(values, np.float64))) for values in (x, original))
    if lost > rounding_share(format, max(a.shape)) * norm:
        raise ValueError(
            f"The sum of squares of a column is zero in {format}, where its norm is {lost:.1e}: the matrix is too "
            f"small for that; {scaling_up(a, format, power=2)}."
        )
