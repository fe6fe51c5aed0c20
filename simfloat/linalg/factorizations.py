"""Factorizations (LU with partial pivoting, Cholesky, Householder QR), and least squares by QR."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.arithmetic import ArrayArithmetic
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import Format
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.matrices import (
    COMPLEX_FACTORS,
    ArithmeticOptions,
    InnerProducts,
    arithmetic_of,
    check_range,
    check_squares,
    forward,
    in_range,
    matrix_of,
    overflow_error,
    result_array,
    right_hand_side,
    rounding_share,
    solution_overflow_error,
    substitute,
    triangle_of,
)
from simfloat.sums.accumulator import Accumulator

#: Number of columns to eliminate before the rest of the matrix is updated.
BLOCK = 96


class LU(NamedTuple):
    """The factors of A[permutation] = lower upper.

    `permutation` is the order of the rows, `lower` a unit lower trapezoid, and `upper` an upper trapezoid.
    """

    permutation: NDArray[np.intp]
    lower: Array
    upper: Array


@in_usual_environment
def lu(
    A: Any,
    *,
    pivot: bool = True,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> LU:
    """Factor A by Gaussian elimination with partial pivoting, so that A[permutation] is near lower upper.

    The order is right-looking (kij). Step k has three parts:

    * The pivot is the first of the largest |a_ik| for i >= k. Its row is exchanged with row k.
    * l_ik = a_ik / a_kk, with one rounding.
    * a_ij = a_ij - l_ik u_kj for all i, j > k, with an exact product and one rounding. With
      ``accumulate=sf.sequential(format, products=format)`` the product is rounded first.

    For every accumulator, element (i, j) is one partial sum: it starts from a_ij and subtracts the products l_ik u_kj
    in ascending order of k, for k < min(i, j). The sum is rounded to the format at its end, before it becomes a pivot
    or an element of upper, or is divided. An accumulator that cannot start from a value sums the products first; the
    sum is then subtracted from a_ij with one rounding.

    Stochastic rounding in the format uses the random bits of step k for the divisions, then for the updates in C
    order (if products are rounded: for all products, then for all sums). With another accumulator the order is that
    of matrix products, column by column: step k sums column k, divides, then sums row k. If A has more columns than
    rows, columns m and later follow after the last step: the updates of each step in C order, or the sums of each
    row.

    Parameters:
        A: a real matrix (m, n).
        pivot: False keeps the order of the rows.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The named tuple (permutation, lower, upper), an `LU`. With k = min(m, n), permutation is (m,), lower is (m, k)
        with a diagonal of ones, and upper is (k, n).

    Raises:
        ValueError: if no pivot is left: A is singular, or became singular by rounding.
        ValueError: if a value leaves the range of the format.
        ValueError: if A is not a real matrix.

    Source: Golub and Van Loan, Matrix Computations, 4th ed., section 3.4; Higham, Accuracy and Stability of Numerical
    Algorithms, 2nd ed., chapter 9.

    Examples:
        >>> rows, lower, upper = sf.linalg.lu([[1.0, 2.0], [3.0, 4.0]], format=sf.BF16)
        >>> rows, lower[1, 0], upper[1, 1]
        (array([1, 0]), array(0.333984375, BF16), array(0.6640625, BF16))
    """
    check_flags(pivot=pivot)
    arithmetic = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    w, p = eliminate(arithmetic, matrix_of(A, arithmetic, if_complex=COMPLEX_FACTORS), pivot)
    k = min(w.shape)
    lower = np.tril(w[:, :k], -1)
    np.fill_diagonal(lower, 1)
    return LU(p, result_array(lower, arithmetic), result_array(np.triu(w[:k]), arithmetic))


def eliminate(u: ArrayArithmetic, a: NDArray, pivot: bool = True) -> tuple[NDArray, NDArray[np.intp]]:
    """Return both factors in one array, and the order of the rows."""
    sums = InnerProducts.of(u, a)
    elimination = _Elimination(sums, a, np.array(a, sums.dtype), np.arange(len(a)), pivot)
    elimination.by_blocks()
    w = elimination.w.astype(u.dtype)
    check_range(u, "Elimination", a, w[w != a[elimination.p]])
    return w, elimination.p


class _Elimination(NamedTuple):
    """An elimination in progress: `w` contains finished elements and partial sums of the others."""

    sums: InnerProducts
    a: NDArray
    w: NDArray
    p: NDArray[np.intp]
    pivot: bool

    def by_blocks(self) -> None:
        """Eliminate columns in blocks; after each block, update the rest of the matrix by one matrix product."""
        sums, w = self.sums, self.w
        rank = min(w.shape)
        block = rank if sums.leaf is None else max(BLOCK // sums.leaf, 1) * sums.leaf
        for first in range(0, rank, block):
            last = min(first + block, rank)
            self._eliminate(first, last)
            if last < w.shape[1]:
                forward(sums, w[first:last, first:last], w[first:last, last:], unit_diagonal=True)
            if last < rank:
                w[last:, last:] = sums.partial(w[last:, last:], w[last:, first:last], w[first:last, last:])

    def _eliminate(self, first: int, last: int) -> None:
        """Eliminate columns first to last - 1 in all rows below, one half after the other."""
        sums, w = self.sums, self.w
        if sums.leaf is None or last - first <= sums.leaf:
            return (self._by_steps if sums.steps_are_operations else self._by_sums)(first, last)
        middle = sums.middle(first, last)
        self._eliminate(first, middle)
        forward(sums, w[first:middle, first:middle], w[first:middle, middle:last], unit_diagonal=True)
        w[middle:, middle:last] = sums.partial(
            w[middle:, middle:last], w[middle:, first:middle], w[first:middle, middle:last]
        )
        self._eliminate(middle, last)

    def _by_steps(self, first: int, last: int) -> None:
        """Eliminate one column after the other, and update the columns to the right after each."""
        w = self.w
        for k in range(first, last):
            self._choose_pivot(k)
            w[k + 1 :, k] = self.sums.u.compute("divide", w[k + 1 :, k], w[k, k, ...])
            if k + 1 < last:
                w[k + 1 :, k + 1 : last] = self.sums.step(w[k + 1 :, k + 1 : last], w[k + 1 :, k], w[k, k + 1 : last])

    def _by_sums(self, first: int, last: int) -> None:
        """Finish the sums of column k at and below row k, choose its pivot, divide; then finish row k."""
        sums, w = self.sums, self.w
        for k in range(first, last):
            w[k:, k] = sums.final(w[k:, k], w[k:, first:k], w[first:k, k])
            self._choose_pivot(k)
            w[k + 1 :, k] = sums.u.compute("divide", w[k + 1 :, k], w[k, k, ...])
            w[k, k + 1 : last] = sums.final(w[k, k + 1 : last], w[k, first:k], w[first:k, k + 1 : last])

    def _choose_pivot(self, k: int) -> None:
        """Exchange row k with the row of the pivot."""
        w, p, format = self.w, self.p, self.sums.u.format
        row = k + int(np.argmax(np.abs(w[k:, k]))) if self.pivot else k
        if w[row, k] == 0:
            left = np.any(w[k:, k]) and not self.pivot
            advice = "pass pivot=True" if left else f"it is singular, or became so in {format}; take a wider format"
            raise ValueError(f"The matrix has no pivot in column {k}: {advice}.")
        if not np.isfinite(w[row, k]):
            raise overflow_error(f"Column {k} of the elimination", self.a, format)
        if row != k:
            w[[k, row]], p[[k, row]] = w[[row, k]], p[[row, k]]


@in_usual_environment
def cholesky(
    A: Any,
    *,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array:
    """Factor a symmetric positive definite A into l l^T.

    Only the lower triangle of A is read. Step k has three parts, each with one rounding per element:

    * l_kk = sqrt(a_kk)
    * l_ik = a_ik / l_kk for i > k
    * a_ij = a_ij - l_ik l_jk for all i, j > k, with an exact product

    Other accumulators and rounded products work as in :func:`simfloat.linalg.lu`: element (i, j) is one partial sum,
    which starts from a_ij and subtracts l_ik l_jk in ascending order of k, for k < j. Stochastic updates of a step
    use random bits for all i, j > k in C order, including the upper triangle.

    Parameters:
        A: a real matrix (n, n).
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The lower triangle l (n, n).

    Raises:
        ValueError: if a pivot a_kk is not positive.
        ValueError: if a value leaves the range of the format.
        ValueError: if A is not a real square matrix.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapter 10.

    Examples:
        >>> sf.linalg.cholesky([[4.0, 2.0], [2.0, 3.0]], format=sf.BF16)
        array([[2.0, 0.0],
               [1.0, 1.4140625]], BF16)
    """
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = triangle_of(A, u, if_complex=COMPLEX_FACTORS)
    sums = InnerProducts.of(u, np.tril(a))
    w = np.array(a, sums.dtype)
    _by_halves(sums, w, 0, len(w))
    lower = np.tril(w)
    check_range(u, "The factor", a, lower[lower != a])
    return result_array(lower, u)


def _by_halves(sums: InnerProducts, w: NDArray, first: int, last: int) -> None:
    """Factor columns first to last - 1: one half, then the update of the other half, then the other half."""
    if sums.leaf is None or last - first <= sums.leaf:
        for k in range(first, last):
            if not sums.steps_are_operations:
                w[k:, k] = sums.final(w[k:, k], w[k:, first:k], w[k, first:k])
            _finish_column(sums.u, w, k)
            if sums.steps_are_operations and k + 1 < last:
                rows = w[k + 1 :, k]
                w[k + 1 :, k + 1 : last] = sums.step(w[k + 1 :, k + 1 : last], rows, rows[: last - k - 1])
        return
    middle = sums.middle(first, last)
    _by_halves(sums, w, first, middle)
    w[middle:, middle:last] = sums.partial(
        w[middle:, middle:last], w[middle:, first:middle], w[middle:last, first:middle].T
    )
    _by_halves(sums, w, middle, last)


def _finish_column(u: ArrayArithmetic, w: NDArray, k: int) -> None:
    """Compute the root of the pivot, and divide the column by it."""
    if not w[k, k] > 0:
        raise ValueError(
            f"The pivot of column {k} is {float(w[k, k])}, not positive: the matrix is not positive definite, or is no "
            f"longer so after rounding to {u.format}; add to its diagonal, or use a wider format."
        )
    w[k, k] = u.compute("sqrt", w[k : k + 1, k])[0]
    w[k + 1 :, k] = u.compute("divide", w[k + 1 :, k], w[k, k, ...])


class QR(NamedTuple):
    """The factors of A = q r: q has orthonormal columns, r is an upper trapezoid."""

    q: Array
    r: Array


class LeastSquares(NamedTuple):
    """The least-squares solution x, and the residual b - A x in the same format."""

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
    """Factor A into q r with Householder reflections I - tau v v^T.

    Columns are processed one after the other, and every operation is rounded to the format. For each column:

    * s = sqrt(x . x), where x is the column at and below the diagonal; the sum goes through `accumulate`. If s is 0,
      there is no reflection: the elements below the diagonal become 0. They must be small
      enough to be rounding errors of the column of A, by the default `rcond` of :func:`simfloat.linalg.lstsq`.
    * alpha = -s if x_0 >= 0, otherwise s; v_0 = x_0 - alpha; v_i = x_i / v_0; tau = v_0 / -alpha; then v_0 becomes 1.
    * For the columns a_j to the right of it: all w_j = v . a_j through `accumulate`, then all t_j = tau w_j,
      then all a_ij = a_ij - v_i t_j with one rounding, in C order.

    The last row has no reflection. q is the product of the reflections with the first k columns of the identity. The
    last reflection is applied first, each to the rows and columns from its diagonal element to the end. Stochastic
    modes use their random bits in this order.

    Parameters:
        A: a real matrix (m, n).
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The named tuple (q, r), a `QR`. With k = min(m, n), q is (m, k) with orthonormal columns, and r is (k, n) and
        upper trapezoidal.

    Raises:
        ValueError: if a value leaves the range of the format (x . x is the first to become infinite or 0), or reaches
            the largest number of a format or mode that saturates.
        ValueError: if A is not a real matrix.

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
    """Solve the least-squares problem min ||b - A x|| by QR.

    The reflections of :func:`simfloat.linalg.qr` are computed, then applied to b from first to last. x solves the
    triangular system in the order of :func:`simfloat.linalg.solve_triangular`. Each element of the residual b - A x
    is one partial sum that starts from b_i.

    A column k counts as dependent on the columns before it if |r_kk| is at most `rcond` times the norm of column k of
    A. The ratio is the sine of the angle between the column and their span, whatever the scales of the columns (the
    rule of LINPACK). Norms are measured in float64.

    Parameters:
        A: a real matrix (m, n) with m >= n.
        b: a vector (m,) or a matrix (m, columns).
        rcond: the limit for dependent columns, from 0 to below 1; by default max(m, n) times the unit roundoff of the
            format, but at most the square root of the unit roundoff. 0 rejects only exact zeros.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The named tuple (x, residual), a `LeastSquares`; x is (n,) or (n, columns), and the residual has the shape of b.

    Raises:
        ValueError: if A has more columns than rows.
        ValueError: if A is rank-deficient; the message names the first dependent column.
        ValueError: if a value leaves the range of the format, as in :func:`simfloat.linalg.qr`.

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
            f"Column {k} depends on the columns before it in {u.format}: of its norm {norms[k]:.1e} only {left[k]:.1e} "
            f"is independent of them, at most rcond = {least:.1e} of it. Leave it out, use a wider format or rcond=0."
        )
    x = substitute(u, r[:columns], c[:columns], lower=False)
    if not in_range(u, x):
        raise solution_overflow_error(u.format)
    residual = InnerProducts.of(u, b).final(right, a, x)
    return LeastSquares(result_array(x.reshape(columns, *b.shape[1:]), u), result_array(residual.reshape(b.shape), u))


def _least_sine(rcond: Any, format: Format, rows: int) -> float:
    """Return the relative norm up to which a column counts as dependent; `rows` is at least the number of columns."""
    if rcond is None:
        return rounding_share(format, rows)
    if isinstance(rcond, bool) or not isinstance(rcond, int | float | np.number) or not 0 <= rcond < 1:
        raise ValueError(f"rcond must be a number from 0 to below 1, got {rcond!r}.")
    return float(rcond)


def multiply_reflections(
    u: ArrayArithmetic, reflections: list[tuple[NDArray, NDArray]], rows: int, columns: int
) -> NDArray:
    """Multiply reflections, the last one applied first, with the first columns of the identity."""
    q = np.eye(rows, columns, dtype=u.dtype)
    for column, (v, tau) in reversed(list(enumerate(reflections))):
        reflect(u, v, tau, q[column:, column:])
    return q


def complete_columns(u: ArrayArithmetic, q: NDArray, norms: NDArray, columns: int) -> NDArray:
    """Return orthonormal columns: the first columns of q, which have a norm, then new ones."""
    count = int(np.count_nonzero(norms))
    if count == columns:
        return q
    # Only columns with a norm have a reflection.
    others = multiply_reflections(u, triangularize(u, q[:, :count].copy())[1], len(q), columns)
    return np.concatenate([q[:, :count], others[:, count:]], 1)


def triangularize(u: ArrayArithmetic, a: NDArray) -> tuple[NDArray, list[tuple[NDArray, NDArray]]]:
    """Return the upper trapezoid and the reflections (v, tau)."""
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
    """Return the new first element of x and the reflection (v, tau) that zeroes the other elements; x is part of a
    column of a.
    """
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
    """Replace a by (I - tau v v^T) a."""
    if a.shape[1] and tau[0]:
        w = u.matmul(v, a)
        t = u.compute("multiply", tau, w)
        less = u.compute("fma", -v[:, np.newaxis], t[np.newaxis], a)
        check_range(u, "The factorization", a, w, t, less[less != a], power=2)
        a[...] = less
