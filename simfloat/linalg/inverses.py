"""Inverses, determinants, norms and condition numbers, from the factors of elimination."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.arithmetic import ArrayArithmetic
from simfloat.arrays.array import array, read_numbers
from simfloat.environment import in_usual_environment
from simfloat.formats import Format
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.factorizations import NoPivotError, eliminate
from simfloat.linalg.jacobi import svd
from simfloat.linalg.matrices import (
    ArithmeticOptions,
    arithmetic_of,
    check_range,
    in_range,
    matrix_of,
    names_options_of_scipy,
    range_error,
    result_array,
    solve_with_factors,
    substitute,
)
from simfloat.sums.accumulator import Accumulator

#: The largest number of steps of the condition estimate. LAPACK has the same limit.
MOST_ESTIMATES = 5


@names_options_of_scipy
@in_usual_environment
def inv(
    A: Any,
    *,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array:
    """Compute the inverse of A: ``solve(A, identity)``, in the order of :func:`simfloat.linalg.solve`.

    Parameters:
        A: a real matrix (n, n).
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The inverse, an `Array` (n, n).

    Raises:
        ValueError: if A is singular, or became singular by rounding.
        ValueError: if a value leaves the range of the format, or A is not a real square matrix.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 14.3, method A.

    Examples:
        >>> sf.linalg.inv([[2.0, 1.0], [0.0, 4.0]], format=sf.FP16)
        array([[0.5, -0.125],
               [0.0, 0.25]], FP16)
    """
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u, square=True)
    x = solve_with_factors(u, *eliminate(u, a), np.eye(len(a), dtype=u.dtype))
    if not in_range(u, x):
        raise range_error("The inverse", u.format, "scale A up by a power of two, or use a format of larger range")
    return result_array(x, u)


@names_options_of_scipy
@in_usual_environment
def det(
    A: Any,
    *,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array:
    """Compute the determinant of A from the factors of :func:`simfloat.linalg.lu`.

    The diagonal of `upper` is multiplied in ascending order, each product rounded to the format. Then the sign changes
    if the permutation is odd. If a column has no pivot, the determinant is 0. A product may become 0 by underflow.

    Parameters:
        A: a real matrix (n, n).
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The determinant, a 0-dimensional `Array`.

    Raises:
        ValueError: if a value leaves the range of the format, or A is not a real square matrix.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 14.6.

    Examples:
        >>> sf.linalg.det([[1.0, 2.0], [3.0, 4.0]], format=sf.BF16)
        array(-1.9921875, BF16)
    """
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u, square=True)
    try:
        w, p = eliminate(u, a)
    except NoPivotError:
        return result_array(np.zeros((), u.dtype), u)
    product = np.ones(1, u.dtype)
    for k in range(len(w)):
        product = w[k : k + 1, k] if not k else u.compute("multiply", product, w[k : k + 1, k])
    if not in_range(u, product):
        excess = float(np.linalg.slogdet(a.astype(np.float64))[1]) / math.log(2) - math.log2(u.format.max)
        power = min(-math.ceil(max(excess, 0.0) / len(a)), -1)
        advice = f"scale the matrix, as by 2**{power}, which scales it by 2**{power * len(a)}"
        raise range_error("The determinant", u.format, f"{advice}, or use a format of larger range")
    # A permutation of n rows with c cycles is a product of n - c exchanges.
    is_odd = (len(p) - _count_cycles(p)) % 2
    return result_array((u.negate(product) if is_odd else product).reshape(()), u)


def _count_cycles(p: NDArray[np.intp]) -> int:
    """Return the number of cycles of a permutation."""
    order, cycles = p.tolist(), 0
    for start in range(len(order)):
        if order[start] >= 0:
            cycles += 1
        while order[start] >= 0:
            order[start], start = -1, order[start]
    return cycles


@names_options_of_scipy
@in_usual_environment
def norm(
    x: Any,
    ord: Any = None,
    *,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array:
    """Compute a norm, with the operations of ``np.linalg.norm`` of a `simfloat.array`.

    The 2-norm of a vector and the Frobenius norm are the root of the sum of the squares, where every square is rounded
    and the sum goes through `accumulate`. The other norms are sums or extremes of magnitudes. The 2-norm of a matrix is
    the first singular value of :func:`simfloat.linalg.svd`. Elements are not scaled: a square out of range makes the
    norm infinite, and the norm is 0 if all squares underflow to 0.

    Parameters:
        x: a vector or a matrix, real or complex.
        ord: as in NumPy: None, 1, 2, inf or -inf of vectors; None, "fro", 1, -1, 2, inf or -inf of matrices.
        format: the format to compute in; by default the format of x.
        rounding: the rounding mode; by default the mode of x, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of x, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of x.

    Returns:
        The norm, a 0-dimensional `Array`.

    Raises:
        ValueError: if `ord` is not the name of a norm.

    Examples:
        >>> sf.linalg.norm([3.0, 4.0], format=sf.BF16), sf.linalg.norm([[1.0, -2.0], [3.0, 4.0]], 1, format=sf.BF16)
        (array(5.0, BF16), array(6.0, BF16))
    """
    u = arithmetic_of(x, ArithmeticOptions(format, rounding, accumulate, stream))
    numbers = read_numbers(x, "x")
    if not isinstance(x, Array) or x.format != u.format:
        numbers = array(numbers, u.format, rounding=u.rounding, stream=u.stream).numbers
    operand: Any = result_array(numbers, u)
    if operand.ndim == 2 and ord == 2:
        return svd(operand).s.max()
    return cast(Array, np.linalg.norm(operand, ord))


@names_options_of_scipy
@in_usual_environment
def cond(
    A: Any,
    p: Any = 1,
    *,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array:
    """Estimate the condition number of A in the 1-norm, norm(A) norm(A^-1), without computing the inverse.

    A is factored as by :func:`simfloat.linalg.lu`. Hager's method then estimates the norm of the inverse. It starts
    from x = 1 / n in every element, and computes in this order, with every operation rounded to the format:

    * y solves A y = x, and the estimate is the sum of |y_i| through `accumulate`.
    * xi_i = 1 if y_i >= 0, otherwise -1. z solves A^T z = xi: first U^T, in ascending order, then L^T.
    * The estimate is final if max |z_i| is at most z . x, after five steps, or if it is not larger than the one before,
      which is then returned. Otherwise x becomes column j of the identity, for the first j with the largest |z_j|.

    The norm of A is the largest sum of |a_ij| of a column through `accumulate`. It is multiplied by the estimate.

    Parameters:
        A: a real matrix (n, n).
        p: the norm, which must be 1; NumPy's function has this argument.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The estimate, a 0-dimensional `Array`. Except for rounding it is a lower bound, usually within a factor of 3.
        It is meaningless if ``cond * u`` is 1 or more, with the unit roundoff u of the format.

    Raises:
        ValueError: if A is singular, or became singular by rounding.
        ValueError: if `p` is not 1, if a value leaves the range of the format, or if A is not a real square matrix.

    Source: Hager, SIAM J. Sci. Stat. Comput. 5 (1984); Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
    algorithm 15.1.

    Examples:
        >>> sf.linalg.cond([[1.0, 2.0], [3.0, 4.0]], format=sf.FP32)
        array(21.000003814697266, FP32)
    """
    if not (isinstance(p, int | float) and p == 1):
        raise ValueError(
            f"cond estimates the condition number in the 1-norm, p=1; got p={p!r}. In the inf-norm it is cond(A.T). In "
            "the 2-norm, divide the first of the singular values svd(A).s by the last one."
        )
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u, square=True)
    n, (w, permutation) = len(a), eliminate(u, a)
    x = u.compute("divide", np.ones(n, u.dtype), np.full(n, n, u.dtype))
    estimate = np.zeros(1, u.dtype)
    for _ in range(MOST_ESTIMATES if n else 0):
        y = solve_with_factors(u, w, permutation, x)
        before, estimate = estimate, u.sum(np.abs(y)).reshape(1)
        if not in_range(u, y, estimate):
            raise _condition_error(a, u.format)
        if estimate[0] <= before[0]:
            estimate = before
            break
        z = _solve_transposed(u, w, permutation, np.where(y >= 0, 1, -1).astype(u.dtype))
        if np.abs(z).max() <= u.matmul(z, x):
            break
        x = np.zeros(n, u.dtype)
        x[np.argmax(np.abs(z))] = 1
    largest = u.sum(np.abs(a), 0).max(initial=0).reshape(1)
    result = u.compute("multiply", largest, estimate)
    check_range(u, "The condition estimate", a, largest)
    if not in_range(u, result):
        raise _condition_error(a, u.format)
    return result_array(result.reshape(()), u)


def _condition_error(a: NDArray, format: Format) -> ValueError:
    """Return the error for an estimate out of range. Scaling A helps if only the norm of the inverse is too large."""
    with np.errstate(all="ignore"):
        is_small = bool(np.linalg.cond(a.astype(np.float64), 1) < format.max / 2)
    advice = "scale A up by a power of two, or" if is_small else "scaling A does not change a condition number;"
    return range_error("The condition estimate", format, f"{advice} use a format of larger range")


def _solve_transposed(u: ArrayArithmetic, w: NDArray, permutation: NDArray, b: NDArray) -> NDArray:
    """Solve the transposed system with the factors of A[permutation]."""
    z = np.empty_like(b)
    z[permutation] = substitute(u, w.T, substitute(u, w.T, b, True), False, unit_diagonal=True)
    return z
