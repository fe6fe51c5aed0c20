"""Householder's QR factorization, and least squares by it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.array_arithmetic import ArrayArithmetic
from simfloat.environment import in_usual_environment
from simfloat.formats import Format
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.inner_products import InnerProducts
from simfloat.linalg.substitution import substitute
from simfloat.linalg.systems import (
    COMPLEX_FACTORS,
    ArithmeticOptions,
    arithmetic_of,
    check_range,
    check_squares,
    in_range,
    matrix_of,
    result_array,
    right_hand_side,
    rounding_share,
    solution_overflow_error,
)


class QR(NamedTuple):
    """The factors of A = q r: orthonormal columns, and an upper trapezoid."""

    q: Array
    r: Array


class LeastSquares(NamedTuple):
    """The x that makes b - A x least, and that residual, in the same format."""

    x: Array
    residual: Array


@in_usual_environment
def qr(
    A: Any,
    *,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> QR:
    """``(q, r)`` with A (m, n) near q r: q (m, k) with orthonormal columns, r (k, n) upper trapezoidal, k the lesser.

    Householder's reflections I - tau v v^T, one column after the other, every operation rounded to the format:

    * s = sqrt(x . x) of the column x from the diagonal on, the sum through `accumulate`. Where s is 0 there is no
      reflection: what lies below the diagonal becomes 0, and may be no more than roundings of A's column, as much of
      its norm as the default `rcond` of :func:`simfloat.linalg.lstsq`;
    * alpha = -s where x_0 >= 0, else s; v_0 = x_0 - alpha; v_i = x_i / v_0; tau = v_0 / -alpha, and v_0 becomes 1;
    * columns a_j behind: every w_j = v . a_j through `accumulate`, then every t_j = tau w_j, then every a_ij =
      a_ij - v_i t_j with one rounding, in C order.

    The last row has no reflection. q is the product of the reflections, the last one applied first, to the first k
    columns of the identity, each to rows and columns from its diagonal on. Stochastic modes draw in this order.

    Raises ValueError where numbers leave the format's range (x . x does first, to infinity or to 0), and where they
    reach its largest number if what lies beyond stops there; and for what is no real matrix.

    Source: Golub and Van Loan, Matrix Computations, 4th ed., section 5.2; Higham, Accuracy and Stability of Numerical
    Algorithms, 2nd ed., chapter 19.

    Examples:
        >>> q, r = sf.linalg.qr([[3.0, 1.0], [4.0, 2.0]], format=sf.BF16)
        >>> r[0, 0], q[:, 0]
        (array(-5.0, BF16), array([-0.6015625, -0.80078125], BF16))
    """
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u, if_complex=COMPLEX_FACTORS)
    r, reflections = triangularize(u, a)
    k = min(a.shape)
    q = multiply_reflections(u, reflections, len(a), k)
    check_range(u, "The factorization", a, q, r[r != a], power=2)
    return QR(result_array(q, u), result_array(r[:k], u))


@in_usual_environment
def lstsq(
    A: Any,
    b: Any,
    *,
    rcond: float | None = None,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> LeastSquares:
    """``(x, residual)``: the x (n,) or (n, columns) that makes the norm of b - A x least, for A (m, n) with m >= n.

    The reflections of :func:`simfloat.linalg.qr` are found, then applied to b, first to last; x is the solution of the
    triangular system by the order of :func:`simfloat.linalg.solve_triangular`. The residual is b - A x, one running
    sum for each element, which starts from b_i.

    A column depends on those before it where r_kk, what reflections leave of it, is at most `rcond` times the norm of
    A's column k: that is the sine of its angle to their span, whatever the scales of columns (LINPACK's rule). By
    default `rcond` is the format's unit roundoff times max(m, n), and at most the root of the unit roundoff, where a
    long sum's bound says nothing more; 0 takes all but exact zeros. Norms are measured in float64.

    Raises ValueError for more columns than rows, for a matrix of lower rank, naming the first column that depends on
    others, and as :func:`simfloat.linalg.qr` does.

    Examples:
        >>> A, b = [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 3.0, 5.0]
        >>> sf.linalg.lstsq(A, b, format=sf.FP16).x
        array([0.99853515625, 2.001953125], FP16)
    """
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u)
    rows, columns = a.shape
    least = _least_sine(rcond, u.format, rows)
    if rows < columns:
        raise ValueError(f"Least squares need as many rows as columns or more, got shape {a.shape}.")
    b = right_hand_side(b, u, rows)
    r, reflections = triangularize(u, a)
    right = b if b.ndim > 1 else b[:, np.newaxis]
    c = right.copy()
    for column, (v, tau) in enumerate(reflections):
        reflect(u, v, tau, c[column:])
    check_range(u, "The factorization", a, r[r != a], c[c != right], power=2)
    norms = np.linalg.norm(np.asarray(a, np.float64), axis=0)
    left = np.abs(r.diagonal()).astype(np.float64)
    dependent = np.flatnonzero((left == 0) | (left <= least * norms))
    if dependent.size:
        k = int(dependent[0])
        raise ValueError(
            f"Column {k} depends on those before it in {u.format}: {left[k]:.1e} is left of its norm, {norms[k]:.1e}, "
            f"at most rcond = {least:.1e} of it. Leave it out, take a wider format, or pass rcond=0."
        )
    x = substitute(u, r[:columns], c[:columns], lower=False)
    if not in_range(u, x):
        raise solution_overflow_error(u.format)
    residual = InnerProducts.of(u, b).final(right, a, x)
    return LeastSquares(result_array(x.reshape(columns, *b.shape[1:]), u), result_array(residual.reshape(b.shape), u))


def _least_sine(rcond: Any, format: Format, rows: int) -> float:
    """What is left of a column's norm, at most, where it depends on others; a matrix has as many rows as columns."""
    if rcond is None:
        return rounding_share(format, rows)
    if isinstance(rcond, bool) or not isinstance(rcond, int | float | np.number) or not 0 <= rcond < 1:
        raise ValueError(f"rcond, what must be left of a column's norm, is a number from 0 below 1, got {rcond!r}.")
    return float(rcond)


def multiply_reflections(
    u: ArrayArithmetic, reflections: list[tuple[NDArray, NDArray]], rows: int, columns: int
) -> NDArray:
    """The product of reflections, the last one applied first, to so many columns of the identity."""
    q = np.eye(rows, columns, dtype=u.dtype)
    for column, (v, tau) in reversed(list(enumerate(reflections))):
        reflect(u, v, tau, q[column:, column:])
    return q


def complete_columns(u: ArrayArithmetic, q: NDArray, norms: NDArray, columns: int) -> NDArray:
    """Orthonormal columns, the first ones q, of which those without a norm are new, as many as asked for."""
    count = int(np.count_nonzero(norms))
    if count == columns:
        return q
    # Zeros have no reflections of their own.
    others = multiply_reflections(u, triangularize(u, q[:, :count].copy())[1], len(q), columns)
    return np.concatenate([q[:, :count], others[:, count:]], 1)


def triangularize(u: ArrayArithmetic, a: NDArray) -> tuple[NDArray, list[tuple[NDArray, NDArray]]]:
    """The upper trapezoid, and the reflections (v, tau) that made it."""
    r, reflections = a.copy(), []
    for k in range(min(len(a) - 1, a.shape[1])):
        x = r[k:, k].copy()
        alpha, v, tau = reflection(u, x, a)
        if not tau[0]:
            check_squares(x[1:], a, a[:, k], u.format)
        reflections.append((v, tau))
        r[k, k], r[k + 1 :, k] = alpha[0], 0
        reflect(u, v, tau, r[k:, k + 1 :])
    return r, reflections


def reflection(u: ArrayArithmetic, x: NDArray, a: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """What the first element of x, of a column of a, becomes, and the reflection (v, tau) that zeroes the others."""
    square = u.matmul(x, x).reshape(1)
    check_range(u, "The factorization", a, square, power=2)
    s = u.compute("sqrt", square)
    first, v = x[:1], x.copy()
    v[0] = 1
    if s[0] == 0:
        return first, v, np.zeros(1, u.dtype)
    alpha = -s if first[0] >= 0 else s
    pivot = u.compute("subtract", first, alpha)
    v[1:] = u.compute("divide", x[1:], pivot)
    return alpha, v, u.compute("divide", pivot, -alpha)


def reflect(u: ArrayArithmetic, v: NDArray, tau: NDArray, a: NDArray) -> None:
    """(I - tau v v^T) a, in the place of a."""
    if a.shape[1] and tau[0]:
        w = u.matmul(v, a)
        t = u.compute("multiply", tau, w)
        less = u.compute("fma", -v[:, np.newaxis], t[np.newaxis], a)
        check_range(u, "The factorization", a, w, t, less[less != a], power=2)
        a[...] = less
