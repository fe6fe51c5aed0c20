"""The parts that all of linear algebra shares: reading matrices, inner products, and triangular systems.

Reading matrices and right-hand sides has the words for what is wrong with them. A factorization is made of inner
products: numbers less sums of products, s - l u, in an accumulator's order. The unknowns of a triangular system are
found one after the other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.machines import is_on_gpu
from simfloat.arrays import Array
from simfloat.arrays.arithmetic import ArrayArithmetic, as_arithmetic, with_options
from simfloat.arrays.array import array, new_array, read_numbers
from simfloat.arrays.complex_parts import is_complex
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import Format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.sums import matmul
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.operands import first_outside_format
from simfloat.sums.sequential import SequentialSum


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


#: Columns or rows that are eliminated one by one, before products of matrices take over.
LEAF = 24


class InnerProducts(NamedTuple):
    """The sums s - sum over k of l_ik u_kj, where k ascends and the running sum starts from s_ij.

    Where a running sum goes on as if it had not been interrupted, blocks of products are subtracted by products of
    matrices, with the bits of one long sum: `splits` of them are taken apart, or None if sums are whole.
    """

    u: ArrayArithmetic
    accumulator: Accumulator
    splits: int | None

    @classmethod
    def of(cls, u: ArrayArithmetic, matrix: NDArray) -> InnerProducts:
        """Those of an arithmetic; ValueError if the matrix has numbers that no running sum can start from."""
        accumulator = u.accumulator
        if accumulator.takes_initial and accumulator.result is not None:
            place = first_outside_format(matrix, accumulator.result)
            if place is not None:
                raise ValueError(
                    f"Sums start from the numbers of the matrix, and {float(matrix[place])!r} is none of "
                    f"{accumulator.result}, the format of {accumulator}'s sums: take an accumulator of wider sums."
                )
        # What is drawn depends on which numbers are rounded in one call, and an observer counts single operations.
        apart = accumulator.resumes and not u.rounding.is_stochastic and u.current_observer is None
        return cls(u, accumulator, accumulator.chunk if apart else None)

    @property
    def leaf(self) -> int | None:
        """How many columns are eliminated one by one: a multiple of what sums can be taken apart in."""
        return None if self.splits is None else -(-LEAF // self.splits) * self.splits

    @property
    def steps_are_operations(self) -> bool:
        """Whether each step of a sum is an operation of the format, so that all elements may take it together.

        That is quicker than a sum for each where there are few products; and draws belong to operations.
        """
        format, rounding = self.u.format, self.u.rounding
        return self.accumulator in (
            SequentialSum(format, rounding=rounding),
            SequentialSum(format, rounding=rounding, products=format),
        )

    @property
    def dtype(self) -> Any:
        """The array type of running sums."""
        sums = self.accumulator.result
        return self.u.dtype if sums is None or (sums.fits_float32 and self.u.format.fits_float32) else np.float64

    def middle(self, first: int, last: int) -> int:
        """Where a range of more than a leaf is cut in two."""
        assert self.leaf is not None
        leaves = -(-(last - first) // self.leaf)
        return first + leaves // 2 * self.leaf

    def partial(self, s: NDArray, left: NDArray, right: NDArray) -> NDArray:
        """Running sums with more products subtracted; not rounded to the format yet."""
        return matmul(-left, right, accumulate=self.accumulator, initial=s, stream=self.u.stream)

    def final(self, s: NDArray, left: NDArray, right: NDArray) -> NDArray:
        """Running sums with their last products subtracted, rounded to the format."""
        u, depth = self.u, left.shape[-1]
        if not self.accumulator.takes_initial:
            return u.compute("subtract", s, u.matmul(left, right)) if depth else s
        if depth:
            return u.matmul(-left, right, initial=s)
        return s if self.accumulator.result in (None, u.format) else u.round(s)

    def step(self, s: NDArray, column: NDArray, row: NDArray) -> NDArray:
        """s - column row, one product for each element: an operation that rounds once, or twice with the product."""
        # Filled by hand: to broadcast takes longer than to compute.
        left, right = np.empty((2, *s.shape), s.dtype)
        left[...], right[...] = -column[:, np.newaxis], row
        if self.accumulator == SequentialSum(self.u.format, rounding=self.u.rounding):
            return self.u.compute("fma", left, right, s)
        return self.u.compute("add", s, self.u.compute("multiply", left, right))


@in_usual_environment
def solve_triangular(
    T: Any,
    b: Any,
    *,
    lower: bool = False,
    unit_diagonal: bool = False,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array:
    """The solution x of T x = b, for a triangular matrix T (n, n) and b (n,) or (n, columns).

    Unknowns are found in ascending order where T is `lower`, else in descending order: from b_i the products t_ik x_k
    are subtracted in the order in which the x_k were found, in one running sum of `accumulate` (by default every
    fused step is rounded to the format), and the sum is rounded to the format and divided by t_ii, one rounding; with
    `unit_diagonal` t_ii is taken for 1. Accumulators without a running sum sum the products first, and the sum is
    subtracted from b_i, one rounding. The other triangle of T is not read. Stochastic rounding in the format draws,
    for every unknown, for its division, then for the subtraction of its products from all that is left of b, in C
    order; with another accumulator as the products of matrices do, row by row.

    Raises ValueError for a zero on the diagonal, for wrong shapes, and where numbers leave the format's range.

    Examples:
        >>> sf.linalg.solve_triangular([[2.0, 0.0], [1.0, 3.0]], [1.0, 1.0], lower=True, format=sf.BF16)
        array([0.5, 0.1669921875], BF16)
    """
    check_flags(lower=lower, unit_diagonal=unit_diagonal)
    u = arithmetic_of(T, ArithmeticOptions(format, rounding, accumulate, stream))
    t = triangle_of(T, u, "T", lower)
    b = right_hand_side(b, u, len(t))
    zeros = np.flatnonzero(t.diagonal() == 0)
    if zeros.size and not unit_diagonal:
        raise ValueError(f"T is singular: its diagonal is zero at {int(zeros[0])}.")
    x = substitute(u, t, b, lower, unit_diagonal)
    if not in_range(u, x):
        raise solution_overflow_error(u.format)
    return result_array(x, u)


def substitute(u: ArrayArithmetic, t: NDArray, b: NDArray, lower: bool, unit_diagonal: bool = False) -> NDArray:
    """The solution of a triangular system, by numbers of the format."""
    if not lower:
        return substitute(u, t[::-1, ::-1], b[::-1], True, unit_diagonal)[::-1]
    sums = InnerProducts.of(u, b)
    x = np.array(b if b.ndim > 1 else b[:, np.newaxis], sums.dtype, order="C")
    forward(sums, t, x, unit_diagonal)
    return x.astype(u.dtype).reshape(b.shape)


def forward(sums: InnerProducts, t: NDArray, x: NDArray, unit_diagonal: bool) -> None:
    """Solve t x = b for a lower triangle, in the place of b."""
    n = len(t)
    if sums.leaf is None or n <= sums.leaf:
        return (_by_steps if sums.steps_are_operations else _by_sums)(sums, t, x, unit_diagonal)
    middle = sums.middle(0, n)
    forward(sums, t[:middle, :middle], x[:middle], unit_diagonal)
    x[middle:] = sums.partial(x[middle:], t[middle:, :middle], x[:middle])
    forward(sums, t[middle:, middle:], x[middle:], unit_diagonal)


def _by_steps(sums: InnerProducts, t: NDArray, x: NDArray, unit_diagonal: bool) -> None:
    """Solve t x = b by subtracting each unknown's products from all equations that are left."""
    for i in range(len(t)):
        if not unit_diagonal:
            x[i] = sums.u.compute("divide", x[i], t[i, i, ...])
        if i + 1 < len(t):
            x[i + 1 :] = sums.step(x[i + 1 :], t[i + 1 :, i], x[i])


def _by_sums(sums: InnerProducts, t: NDArray, x: NDArray, unit_diagonal: bool) -> None:
    """Solve t x = b by one sum for each unknown."""
    for i in range(len(t)):
        x[i] = sums.final(x[i], t[i, :i], x[:i])
        if not unit_diagonal:
            x[i] = sums.u.compute("divide", x[i], t[i, i, ...])
