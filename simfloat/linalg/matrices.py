"""Shared parts of linear algebra: reading matrices, inner products, and triangular systems.

The functions that read matrices and right-hand sides raise the errors for invalid ones. Factorizations consist of
inner products: values minus sums of products, s - l u, in the order of an accumulator. The unknowns of a triangular
system are computed one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.machines import is_on_gpu
from simfloat.arrays import Array
from simfloat.arrays.arithmetic import ArrayArithmetic, as_arithmetic, with_options
from simfloat.arrays.array import array, new_array, read_numbers
from simfloat.arrays.complex_parts import is_complex, round_parts
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import Format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.exact_numbers import sign_of
from simfloat.formats.rounding import RoundingLike
from simfloat.sums import matmul
from simfloat.sums.accumulator import Accumulator, Engine, Region, takes_stacks
from simfloat.sums.bounds import format_bounds
from simfloat.sums.operands import OperandBounds, Problem, first_outside_format
from simfloat.sums.sequential import SequentialSum

#: The parameters and the result of a solver.
Options = ParamSpec("Options")
Result = TypeVar("Result")


class ArithmeticOptions(NamedTuple):
    """The options of all functions; None means the option of the matrix."""

    format: FormatLike | None = None
    rounding: RoundingLike | None = None
    accumulate: Accumulator | FormatLike | None = None
    stream: Stream | None = None


def arithmetic_of(a: Any, options: ArithmeticOptions) -> ArrayArithmetic:
    """Return the arithmetic of a matrix with the options that are given; for a plain array, these options are all."""
    if isinstance(a, Array):
        u = with_options(a.arithmetic, **options._asdict())
    elif options.format is None:
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            advice = "pass the matrix itself"
            if {"permutation", "lower", "upper"} <= set(a._fields):
                advice = "y = solve_triangular(lower, b[permutation], lower=True), then solve_triangular(upper, y)"
            raise ValueError(f"A must be a matrix, got {type(a).__name__}({', '.join(a._fields)}): {advice}.")
        raise ValueError("A matrix without a format needs format=, or pass simfloat.array(A, format).")
    else:
        u = as_arithmetic(options.format, options.rounding or nearest_even, options.accumulate, options.stream)
    if not u.format.signed:
        raise ValueError(f"Linear algebra needs a signed format, and {u.format} has no negative numbers.")
    return u


#: Messages for complex matrices: linear systems, factorizations, eigenvalues and singular values.
COMPLEX_SYSTEM = (
    "a complex system of order n is solved by sf.linalg.lstsq(A, b), or as the real one of order 2 n with "
    "[[A.real, -A.imag], [A.imag, A.real]] and [b.real, b.imag]"
)
COMPLEX_FACTORS = (
    "only real matrices are factored; sf.linalg.qr factors complex ones, and to solve a complex system write "
    "sf.linalg.lstsq(A, b)"
)
#: No message: QR and least squares take complex matrices.
TAKES_COMPLEX = ""
COMPLEX_VALUES = (
    "only real matrices are decomposed; each value of A is twice one of the real matrix "
    "[[A.real, -A.imag], [A.imag, A.real]] of twice the order"
)


def numbers_of(x: Any, u: ArrayArithmetic, name: str, if_complex: str = COMPLEX_SYSTEM) -> NDArray[np.floating]:
    """Return the values of a real operand, rounded to the format, as a new array.

    Raises ValueError if the operand is complex, infinite or NaN.
    """
    operand = x if isinstance(x, Array) else _as_array(x, u, name)
    if is_complex(operand.numbers) and if_complex:
        raise ValueError(f"{name} is complex: {if_complex}.")
    if is_on_gpu(operand.numbers):
        raise ValueError(f"{name} is on a GPU, and linear algebra runs on the CPU: pass a NumPy array, {name}.get().")
    exact_numbers = operand.numbers
    numbers = exact_numbers.copy()
    if operand.format != u.format:
        numbers = (round_parts if is_complex(numbers) else ArrayArithmetic.round)(u, numbers)
    if not np.isfinite(numbers).all():
        values = exact_numbers if isinstance(x, Array) else read_numbers(x)
        is_exact = values.dtype == object
        if all(math.isfinite(sign_of(value)) for value in values.flat) if is_exact else np.isfinite(values).all():
            advice = "scale the system" if is_exact else scaling_advice(values, u.format)
            raise ValueError(f"{name} has values beyond the largest number of {u.format}, {u.format.max}: {advice}.")
        raise ValueError(f"{name} contains infinities or NaN.")
    return numbers


def _as_array(x: Any, u: ArrayArithmetic, name: str) -> Array:
    """Return `simfloat.array` of an operand, which has this name in messages."""
    return array(read_numbers(x, name), u.format, rounding=u.rounding, stream=u.stream, observer=u.observer)


def matrix_of(
    a: Any, u: ArrayArithmetic, name: str = "A", square: bool = False, if_complex: str = COMPLEX_SYSTEM
) -> NDArray[np.floating]:
    """Return the values of a matrix; ValueError if it is not a matrix, or not square if `square` is True."""
    numbers = numbers_of(a, u, name, if_complex)
    _check_matrix(name, numbers.shape, square)
    return numbers


def triangle_of(
    a: Any, u: ArrayArithmetic, name: str = "A", lower: bool = True, if_complex: str = COMPLEX_SYSTEM
) -> NDArray[np.floating]:
    """Return the values of one triangle of a square matrix; the other triangle, which may contain NaN, becomes 0."""
    triangle = read_numbers(a, name)
    if not is_on_gpu(triangle):
        _check_matrix(name, triangle.shape, True)
        triangle = np.tril(triangle) if lower else np.triu(triangle)
    return matrix_of(new_array(triangle, a.arithmetic) if isinstance(a, Array) else triangle, u, name, True, if_complex)


def _check_matrix(name: str, shape: tuple[int, ...], square: bool) -> None:
    if len(shape) != 2 or (square and shape[0] != shape[1]):
        raise ValueError(f"{name} must be a {'square ' if square else ''}matrix, got shape {shape}.")


def right_hand_side(b: Any, u: ArrayArithmetic, rows: int, if_complex: str = COMPLEX_SYSTEM) -> NDArray[np.floating]:
    """Return the values of a vector, or of several as columns, rounded to the format."""
    numbers = numbers_of(b, u, "b", if_complex)
    if numbers.ndim not in (1, 2) or numbers.shape[0] != rows:
        raise ValueError(
            f"b must be a vector of {rows} elements or a matrix of {rows} rows, got shape {numbers.shape}."
        )
    return numbers


def result_array(numbers: NDArray, u: ArrayArithmetic) -> Array:
    """Return a result as an `Array`."""
    dtype = np.result_type(u.dtype, np.complex64) if is_complex(numbers) else u.dtype
    return new_array(np.asarray(numbers, dtype, order="C"), u)


def magnitudes(a: Any) -> NDArray[np.float64]:
    """Return the magnitudes of real or complex numbers in float64."""
    x = np.asarray(a)
    return np.abs(x if is_complex(x) else np.asarray(a, np.float64))


def _scaling_exponent(a: Any, format: Format, power: int = 1) -> int:
    """Return the exponent of the power of two by which values may be scaled while sums of their powers over all rows
    stay in range.
    """
    x = magnitudes(a)
    largest, rows = x.max(initial=0.0, where=np.isfinite(x)), max(x.shape[0] if x.ndim else 1, 1)
    return math.floor((math.log2(format.max) - math.log2(rows)) / power - math.log2(largest or 1.0))


def scaling_advice(a: Any, format: Format) -> str:
    """Return advice: the power of two by which to scale, so that sums over all rows stay in range."""
    return f"scale the system, as by 2**{min(_scaling_exponent(a, format), -1)}, or use a format of larger range"


def scaling_up(a: Any, format: Format, power: int = 1) -> str:
    """Return advice: the power of two by which values may grow, if results are too small."""
    room = _scaling_exponent(a, format, power)
    return f"{f'scale it up, as by 2**{room}, or ' if room > 0 else ''}use a format of larger range"


def advice_for_small(a: NDArray, format: Format) -> str:
    """Return "scale it up, or", with a power of two, if all elements are subnormal or zero; otherwise no text."""
    largest = magnitudes(a).max(initial=0.0)
    if largest >= format.smallest_normal:
        return ""
    return f"scale it up, as by 2**{_scaling_exponent(a, format, 2)}, or " if largest else "scale it up, or "


def elimination_overflow_error(what: str, a: NDArray, pivot: bool, format: Format) -> ValueError:
    """Return the error for an elimination that left the range; it names a scale, from the elimination in float64."""
    w, largest = a.astype(np.float64), magnitudes(a).max()
    scaled, factor = largest, 0.0  # the largest value that scaling changes; the largest multiplier, which it does not
    with np.errstate(all="ignore"):
        for k in range(len(w) - 1):
            row = k + int(np.argmax(np.abs(w[k:, k]))) if pivot else k
            w[[k, row]] = w[[row, k]]
            factors = w[k + 1 :, k] / w[k, k]
            w[k + 1 :, k:] -= np.outer(factors, w[k, k:])
            factor = np.fmax(factor, np.abs(factors).max())
            scaled = np.fmax(scaled, np.fmax.reduce(np.abs(w[k + 1 :, k + 1 :]), None, initial=0.0))
    power = min(math.floor(math.log2(format.max) - math.log2(scaled)), -1) if np.isfinite(scaled) else 0
    can_scale = power < 0 and factor <= format.max and largest * 2.0**power >= format.smallest_normal
    advice = "pass pivot=True, or " * (not pivot) + f"scale the system, as by 2**{power}, or " * bool(can_scale)
    return range_error(what, format, f"{advice}use a format of larger range")


def overflow_error(what: str, a: NDArray, format: Format) -> ValueError:
    """Return the error for values that left the range of the format, with a scale for sums over all rows."""
    return range_error(what, format, scaling_advice(a, format))


def range_error(what: str, format: Format, advice: str) -> ValueError:
    """Return the error for values that left the range of the format."""
    return ValueError(f"{what} left the range of {format}, whose largest number is {format.max}: {advice}.")


def in_range(u: ArrayArithmetic, *numbers: NDArray) -> bool:
    """True if results are finite and none has reached the number at which larger results saturate."""
    parts = [part for x in numbers for part in ((x.real, x.imag) if is_complex(x) else (x,))]
    return all(bool((np.abs(values) < u.clamp_limit).all()) for values in parts)


def check_range(u: ArrayArithmetic, what: str, a: NDArray, *results: NDArray, power: int = 1) -> None:
    """Raise ValueError for results out of range; `power` is the power of the elements of `a` in the results."""
    if not in_range(u, *results):
        raise overflow_error(what, magnitudes(a) ** power, u.format)


def solution_overflow_error(format: Format) -> ValueError:
    """Return the error for a solution that is too large; scaling A and b together would not change it."""
    advice = "scale b down by a power of two, which scales the solution, or use a format of larger range"
    return range_error("The solution", format, advice)


#: Options of SciPy -> what to write here.
OPTIONS_OF_SCIPY = {
    "rtol": "tolerance=",
    "tol": "tolerance=",
    "atol": "tolerance=, which is relative to the norm of b",
    "maxiter": "max_iterations=",
    "M": "preconditioner=",
    "pivoting": "pivot=",
    "fmt": "format=",
    "dtype": "format=",
}

#: Options of NumPy and SciPy without a counterpart -> what to do instead.
OTHER_OPTIONS = {
    "x0": "it starts from x = 0. To continue from x0, solve for the right-hand side b - A x0, and add the result to x0",
    "callback": "the result has the residual of every step, as .residuals",
    "UPLO": "it reads the lower triangle of A. For the upper one, pass A.T",
    "lower": "it reads the lower triangle of A and returns the lower factor l. The upper factor is l.T",
    "mode": "q and r have min(m, n) columns and rows. r alone is the attribute .r of the result",
    "compute_uv": "the singular values alone are the attribute .s of the result",
    "axis": "numpy.linalg.norm(x, axis=...) of x = simfloat.array(..., format) has this option",
    "trans": "pass T.T, with lower=True if T is upper triangular",
    "assume_a": "it factors by elimination. For a positive definite A, call cholesky, and solve_triangular twice",
}


def names_options_of_scipy(function: Callable[Options, Result]) -> Callable[Options, Result]:
    """Decorate a function: an option of SciPy raises TypeError, which says what to write instead."""

    @wraps(function)
    def call(*args: Options.args, **options: Options.kwargs) -> Result:
        for name in filter(OTHER_OPTIONS.get, options):
            if name not in signature(function).parameters:
                raise TypeError(f"{function.__name__} has no option {name}=: {OTHER_OPTIONS[name]}.")
        for name in filter(OPTIONS_OF_SCIPY.get, options):
            meaning, parameters = OPTIONS_OF_SCIPY[name], signature(function).parameters
            if "b" not in parameters:
                meaning = meaning.partition(",")[0]
            if meaning.partition("=")[0] in parameters:
                raise TypeError(f"{function.__name__} has no option {name}=: write {meaning}.")
        return function(*args, **options)

    return call


def check_tolerance(tolerance: Any) -> None:
    """Raise ValueError if a tolerance is not a number of at least 0."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | np.number) or not tolerance >= 0:
        raise ValueError(f"tolerance must be a number of at least 0, got {tolerance!r}.")


def rounding_share(format: Format, size: int) -> float:
    """Return the share of the norm of a column that may be due to rounding, in a matrix of this size.

    This is n times the unit roundoff, but at most its square root: beyond it, the bound of a long sum has no meaning.
    """
    return min(size * format.unit_roundoff, math.sqrt(format.unit_roundoff))


def check_squares(x: NDArray, a: NDArray, original: NDArray, format: Format) -> None:
    """Raise ValueError if a sum of squares is zero, unless x may be rounding errors of `original`."""
    lost, norm = (float(np.linalg.norm(magnitudes(values))) for values in (x, original))
    if lost > rounding_share(format, max(a.shape)) * norm:
        raise ValueError(
            f"The sum of squares of a column is zero in {format}, although its norm is {lost:.1e}: the elements are "
            f"too small; {scaling_up(a, format, power=2)}."
        )


#: Number of columns or rows that are eliminated one by one before matrix products are used; and if a loop is called
#: without the preparation of a product, which takes longer than a small product. With the loop, LU of 1000 columns in
#: BF16 took half of the time on an AMD Zen 3. With 4 or 16 columns it took a tenth longer.
LEAF, LOOP_LEAF = 24, 16

#: The largest number of multiply-adds for which the loop is called without the preparation.
MOST_UNPREPARED = 1 << 22

#: The region of a tile without random bits.
REGION = Region(0, 0, 0, None)


@lru_cache(maxsize=64)
def _loop_for_all(accumulator: Accumulator, format: Format) -> Engine | None:
    """Return a compiled loop in float32 for all sums of numbers of the format that start from such numbers, or None."""
    if not isinstance(accumulator, SequentialSum) or accumulator.format != format or not format.fits_float32:
        return None
    bounds = format_bounds(format)
    operand = OperandBounds(bounds, format, True)
    engine = accumulator.engine(
        Problem(operand, operand, MOST_UNPREPARED, format, accumulator.rounding, initial=bounds)
    )
    return engine if takes_stacks(engine) and engine.carrier is np.float32 else None


class InnerProducts(NamedTuple):
    """Sums s_ij - sum over k of l_ik u_kj, where k ascends and the partial sum starts from s_ij.

    If an accumulator can interrupt and resume a partial sum without changing its bits, blocks of products are
    subtracted by matrix products. `splits` is the number of products between possible interruptions, or None if sums
    cannot be split.
    """

    u: ArrayArithmetic
    accumulator: Accumulator
    splits: int | None
    loop: Engine | None = None

    @classmethod
    def of(cls, u: ArrayArithmetic, matrix: NDArray) -> InnerProducts:
        """Return the inner products of an arithmetic; ValueError if an element of the matrix cannot start a partial
        sum.
        """
        accumulator = u.accumulator
        if accumulator.takes_initial and accumulator.result is not None:
            place = first_outside_format(matrix, accumulator.result)
            if place is not None:
                raise ValueError(
                    f"Sums start from the elements of the matrix, and {float(matrix[place])!r} is not a number of "
                    f"{accumulator.result}, the format of {accumulator}: use an accumulator with a wider format."
                )
        # Random bits depend on the values that one call rounds, and an observer counts single operations.
        apart = accumulator.resumes and not u.rounding.is_stochastic and u.current_observer is None
        loop = _loop_for_all(accumulator, u.format) if apart else None
        return cls(u, accumulator, accumulator.chunk if apart else None, loop)

    @property
    def leaf(self) -> int | None:
        """The number of columns that are eliminated one by one: a multiple of `splits`."""
        if self.splits is None:
            return None
        return min(LEAF, LOOP_LEAF) if self.loop else -(-LEAF // self.splits) * self.splits

    @property
    def steps_are_operations(self) -> bool:
        """True if each step of a sum is an operation of the format, so that one call can compute it for all elements.

        With few products this is faster than one sum for each element. Random bits are also assigned to operations.
        """
        format, rounding = self.u.format, self.u.rounding
        return self.accumulator in (
            SequentialSum(format, rounding=rounding),
            SequentialSum(format, rounding=rounding, products=format),
        )

    @property
    def dtype(self) -> Any:
        """The array type of partial sums."""
        sums = self.accumulator.result
        return self.u.dtype if sums is None or (sums.fits_float32 and self.u.format.fits_float32) else np.float64

    def middle(self, first: int, last: int) -> int:
        """Return the index at which a range of more than one leaf is split."""
        assert self.leaf is not None
        leaves = -(-(last - first) // self.leaf)
        return first + leaves // 2 * self.leaf

    def partial(self, s: NDArray, left: NDArray, right: NDArray) -> NDArray:
        """Subtract further products from partial sums, without rounding to the format."""
        if self.loop is not None and s.size * left.shape[-1] <= MOST_UNPREPARED:
            sums = np.array(s, order="C")
            self.subtract(sums, left, right)
            return sums
        return matmul(-left, right, accumulate=self.accumulator, initial=s, stream=self.u.stream)

    def subtract(self, s: NDArray, left: NDArray, right: NDArray) -> None:
        """Subtract further products from partial sums in place, by the loop; `s` is in C order."""
        assert self.loop is not None
        self.loop.run(np.ascontiguousarray(-left), np.ascontiguousarray(right), s, REGION)

    def final(self, s: NDArray, left: NDArray, right: NDArray) -> NDArray:
        """Subtract the last products from partial sums, and round to the format."""
        u, depth = self.u, left.shape[-1]
        if not self.accumulator.takes_initial:
            return u.compute("subtract", s, u.matmul(left, right)) if depth else s
        if depth:
            return u.matmul(-left, right, initial=s)
        return s if self.accumulator.result in (None, u.format) else u.round(s)

    def step(self, s: NDArray, column: NDArray, row: NDArray) -> NDArray:
        """Return s - column row, one product for each element, as an operation with one rounding, or two with a
        rounded product.
        """
        # Assign instead of broadcasting, which takes longer than the computation.
        left, right = np.empty((2, *s.shape), s.dtype)
        left[...], right[...] = -column[:, np.newaxis], row
        if self.accumulator == SequentialSum(self.u.format, rounding=self.u.rounding):
            return self.u.compute("fma", left, right, s)
        return self.u.compute("add", s, self.u.compute("multiply", left, right))


@names_options_of_scipy
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
    """Solve T x = b for a triangular matrix T.

    Unknowns are computed in ascending order if T is `lower`, otherwise in descending order. For unknown i, the
    products t_ik x_k are subtracted from b_i in the order in which the x_k were computed, as one partial sum of
    `accumulate` (by default a chain of fma operations, each rounded to the format). The sum is rounded to the format
    and divided by t_ii with one rounding. An accumulator that cannot start from a value sums the products first; the
    sum is then subtracted from b_i with one rounding.

    Stochastic rounding in the format uses random bits for the division of each unknown, then for the subtraction of
    its products from the rest of b in C order. With another accumulator the order is that of matrix products, row by
    row.

    Parameters:
        T: a real matrix (n, n); its other triangle is not read.
        b: a vector (n,) or a matrix (n, columns).
        lower: True if T is a lower triangle.
        unit_diagonal: True to use 1 for every t_ii.
        format: the format to compute in; by default the format of T.
        rounding: the rounding mode; by default the mode of T, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of T, or the sequential sum in
            `format` and `rounding`. A format means the sequential sum in it to nearest even, whatever `rounding` is.
        stream: the random bits of stochastic rounding; by default the stream of T.

    Returns:
        The solution x, an `Array` with the shape of b.

    Raises:
        ValueError: if the diagonal contains a zero, unless `unit_diagonal` is True.
        ValueError: if the shapes are wrong.
        ValueError: if a value leaves the range of the format.

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
    """Return the solution of a triangular system whose values are in the format."""
    if not lower:
        return substitute(u, t[::-1, ::-1], b[::-1], True, unit_diagonal)[::-1]
    sums = InnerProducts.of(u, b)
    x = np.array(b if b.ndim > 1 else b[:, np.newaxis], sums.dtype, order="C")
    forward(sums, t, x, unit_diagonal)
    return x.astype(u.dtype).reshape(b.shape)


def solve_with_factors(u: ArrayArithmetic, w: NDArray, p: NDArray, b: NDArray) -> NDArray:
    """Solve a system with the factors of elimination, both in w, and its order of rows p."""
    return substitute(u, w, substitute(u, w, b[p], True, unit_diagonal=True), False)


def forward(sums: InnerProducts, t: NDArray, x: NDArray, unit_diagonal: bool) -> None:
    """Solve t x = b for a lower triangle; `x` contains b and is overwritten."""
    n = len(t)
    if sums.leaf is None or n <= sums.leaf:
        return (_by_steps if sums.steps_are_operations else _by_sums)(sums, t, x, unit_diagonal)
    middle = sums.middle(0, n)
    forward(sums, t[:middle, :middle], x[:middle], unit_diagonal)
    x[middle:] = sums.partial(x[middle:], t[middle:, :middle], x[:middle])
    forward(sums, t[middle:, middle:], x[middle:], unit_diagonal)


def _by_steps(sums: InnerProducts, t: NDArray, x: NDArray, unit_diagonal: bool) -> None:
    """Solve t x = b by subtracting the products of each unknown from all remaining equations."""
    if sums.loop is not None:
        rows = np.ascontiguousarray(x)
        for i in range(len(t)):
            if not unit_diagonal:
                rows[i] = sums.u.compute("divide", rows[i], t[i, i, ...])
            if i + 1 < len(t):
                sums.subtract(rows[i + 1 :], t[i + 1 :, i : i + 1], rows[i : i + 1])
        x[...] = rows
        return
    for i in range(len(t)):
        if not unit_diagonal:
            x[i] = sums.u.compute("divide", x[i], t[i, i, ...])
        if i + 1 < len(t):
            x[i + 1 :] = sums.step(x[i + 1 :], t[i + 1 :, i], x[i])


def _by_sums(sums: InnerProducts, t: NDArray, x: NDArray, unit_diagonal: bool) -> None:
    """Solve t x = b with one sum for each unknown."""
    for i in range(len(t)):
        x[i] = sums.final(x[i], t[i, :i], x[:i])
        if not unit_diagonal:
            x[i] = sums.u.compute("divide", x[i], t[i, i, ...])
