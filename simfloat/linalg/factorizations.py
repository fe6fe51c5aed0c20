"""Factorizations: LU with partial pivoting, Cholesky's, Householder's QR, and least squares by QR."""

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

#: Columns that are eliminated before the rest of the matrix is updated.
BLOCK = 96


class LU(NamedTuple):
    """The factors of A[permutation] = lower upper: the order of rows, the unit lower and the upper trapezoid."""

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
    """Gaussian elimination of A (m, n): ``(permutation, lower, upper)``, and A[permutation] is near lower upper.

    lower is (m, k) with a diagonal of ones, upper (k, n), k the lesser of both sizes.

    Right-looking (kij): at step k the pivot is the first of the largest |a_ik|, i from k, whose row is exchanged with
    row k (``pivot=False`` leaves rows where they are); l_ik = a_ik / a_kk, one rounding; then a_ij = a_ij - l_ik u_kj
    for all i and j behind k, one rounding, the product exact. With ``accumulate=sf.sequential(format,
    products=format)`` the product is rounded first. Whatever the accumulator: element (i, j) is one running sum, which
    starts from a_ij and takes the products -l_ik u_kj, k ascending below the lesser of i and j; it is rounded to the
    format where it ends, before it is a pivot, an element of u, or divided. Accumulators without a running sum sum the
    products, and the sum is subtracted from a_ij, one rounding.

    Stochastic rounding in the format draws for the divisions of step k, then for its updates in C order (where
    products are rounded, for all of them before the sums); with another accumulator column by column, as products of
    matrices do: step k sums column k, divides, then sums row k. The columns of a wide A from column m follow after the
    last step: the updates of each step in C order, or the sums of each row.

    Raises ValueError where no pivot is left (A is singular, or became so by rounding), where numbers leave the
    format's range, and for what is no real matrix.

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
    """Both factors in one array, and the order of rows."""
    sums = InnerProducts.of(u, a)
    elimination = _Elimination(sums, a, np.array(a, sums.dtype), np.arange(len(a)), pivot)
    elimination.by_blocks()
    w = elimination.w.astype(u.dtype)
    check_range(u, "Elimination", a, w[w != a[elimination.p]])
    return w, elimination.p


class _Elimination(NamedTuple):
    """An elimination under way: `w` holds finished elements, and running sums of others."""

    sums: InnerProducts
    a: NDArray
    w: NDArray
    p: NDArray[np.intp]
    pivot: bool

    def by_blocks(self) -> None:
        """Columns by blocks, with the update of all that is left as one product of matrices."""
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
        """Eliminate some columns, half of them first, in all rows below."""
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
        """One column after the other, each with an update of those behind."""
        w = self.w
        for k in range(first, last):
            self._choose_pivot(k)
            w[k + 1 :, k] = self.sums.u.compute("divide", w[k + 1 :, k], w[k, k, ...])
            if k + 1 < last:
                w[k + 1 :, k + 1 : last] = self.sums.step(w[k + 1 :, k + 1 : last], w[k + 1 :, k], w[k, k + 1 : last])

    def _by_sums(self, first: int, last: int) -> None:
        """Finish column k from row k on, choose its pivot, divide; then finish row k."""
        sums, w = self.sums, self.w
        for k in range(first, last):
            w[k:, k] = sums.final(w[k:, k], w[k:, first:k], w[first:k, k])
            self._choose_pivot(k)
            w[k + 1 :, k] = sums.u.compute("divide", w[k + 1 :, k], w[k, k, ...])
            w[k, k + 1 : last] = sums.final(w[k, k + 1 : last], w[k, first:k], w[first:k, k + 1 : last])

    def _choose_pivot(self, k: int) -> None:
        """Bring the row of the pivot to row k."""
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
    """The lower triangle l (n, n) with A near l l^T, for a symmetric positive definite A.

    Only the lower half of A is read: the other half may hold anything.

    At step k: l_kk = sqrt(a_kk), one rounding; l_ik = a_ik / l_kk, one rounding; then
    a_ij = a_ij - l_ik l_jk for all i and j behind k, one rounding, the product exact. Other accumulators, products
    that are rounded first, and random draws are as in :func:`simfloat.linalg.lu`: element (i, j) is one running sum,
    which starts from a_ij and takes -l_ik l_jk, k ascending below j; the updates of a step draw for all (i, j) behind
    k in C order, the upper half too.

    Raises ValueError for a pivot a_kk that is not positive, where numbers leave the format's range, and for what is no
    real square matrix.

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
    """Some columns, in all rows below: one half, its products subtracted from the other, which follows."""
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
    """The root of the pivot, and the column divided by it."""
    if not w[k, k] > 0:
        raise ValueError(
            f"The pivot of column {k} is {float(w[k, k])}, not positive: the matrix is not positive definite, or is no "
            f"longer in {u.format}; add to its diagonal, or take a wider format."
        )
    w[k, k] = u.compute("sqrt", w[k : k + 1, k])[0]
    w[k + 1 :, k] = u.compute("divide", w[k + 1 :, k], w[k, k, ...])


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
