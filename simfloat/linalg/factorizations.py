"""Factorizations by elimination: LU with partial pivoting, and Cholesky."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.arithmetic import ArrayArithmetic
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.matrices import (
    COMPLEX_FACTORS,
    ArithmeticOptions,
    InnerProducts,
    advice_for_small,
    arithmetic_of,
    check_range,
    elimination_overflow_error,
    forward,
    matrix_of,
    names_options_of_scipy,
    result_array,
    triangle_of,
)
from simfloat.sums.accumulator import Accumulator

#: Number of columns to eliminate before the rest of the matrix is updated.
BLOCK = 96


class NoPivotError(ValueError):
    """All elements that could be the pivot of a column are zero."""


class LU(NamedTuple):
    """The factors of A[permutation] = lower upper.

    `permutation` is the order of the rows, `lower` a unit lower trapezoid, and `upper` an upper trapezoid.
    """

    permutation: NDArray[np.intp]
    lower: Array
    upper: Array


@names_options_of_scipy
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
        if self.sums.loop is not None:
            return self._in_panel(first, last)
        w = self.w
        for k in range(first, last):
            self._choose_pivot(k, w[k:, k])
            w[k + 1 :, k] = self.sums.u.compute("divide", w[k + 1 :, k], w[k, k, ...])
            if k + 1 < last:
                w[k + 1 :, k + 1 : last] = self.sums.step(w[k + 1 :, k + 1 : last], w[k + 1 :, k], w[k, k + 1 : last])

    def _in_panel(self, first: int, last: int) -> None:
        """Eliminate as `_by_steps` in a copy of the columns, which the loop updates in place."""
        w, sums, count = self.w, self.sums, last - first
        panel = w[first:, first:last].copy()
        lower = np.zeros((count, len(panel)), panel.dtype)  # finished columns, which the loop changes in the panel
        for k in range(count):
            column = panel[k:, k].copy()
            row = self._choose_pivot(first + k, column) - first
            if row != k:
                exchange_rows(panel, k, row)
                exchange_rows(lower[:k].T, k, row)
                column[0], column[row - k] = column[row - k], column[0]
            lower[k, k + 1 :] = sums.u.compute("divide", column[1:], column[0, ...])
            if k + 1 < count:
                # Rows of the panel are contiguous, and parts of rows are not: the loop updates whole rows in place, and
                # factors of zero keep finished columns finite. They are read from `lower`.
                right = panel[k : k + 1].copy()
                right[:, : k + 1] = 0
                sums.subtract(panel[k + 1 :], lower[k, k + 1 :, np.newaxis], right)
        for k in range(count):
            panel[k + 1 :, k] = lower[k, k + 1 :]
        w[first:, first:last] = panel

    def _by_sums(self, first: int, last: int) -> None:
        """Finish the sums of column k at and below row k, choose its pivot, divide; then finish row k."""
        sums, w = self.sums, self.w
        for k in range(first, last):
            w[k:, k] = sums.final(w[k:, k], w[k:, first:k], w[first:k, k])
            self._choose_pivot(k, w[k:, k])
            w[k + 1 :, k] = sums.u.compute("divide", w[k + 1 :, k], w[k, k, ...])
            w[k, k + 1 : last] = sums.final(w[k, k + 1 : last], w[k, first:k], w[first:k, k + 1 : last])

    def _choose_pivot(self, k: int, column: NDArray) -> int:
        """Exchange row k with the row of the pivot, and return it; `column` has the elements at and below row k."""
        w, p, format = self.w, self.p, self.sums.u.format
        place = int(np.argmax(np.abs(column))) if self.pivot else 0
        if column[place] == 0:
            left = np.any(column) and not self.pivot
            singular = (
                f"it is singular, or became so in {format}; {advice_for_small(self.a, format)}take a wider format"
            )
            advice = "pass pivot=True" if left else singular
            raise NoPivotError(f"The matrix has no pivot in column {k}: {advice}.")
        if not np.isfinite(column[place]):
            raise elimination_overflow_error(f"Column {k} of the elimination", self.a, self.pivot, format)
        if place:
            exchange_rows(w, k, k + place)
            p[k], p[k + place] = p[k + place], p[k]
        return k + place


def exchange_rows(x: NDArray, i: int, j: int) -> None:
    """Exchange two rows in place; indexing with lists takes three times as long."""
    row = x[i].copy()
    x[i], x[j] = x[j], row


@names_options_of_scipy
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
        small = "" if k or w[k, k] < 0 else advice_for_small(w, u.format)
        raise ValueError(
            f"The pivot of column {k} is {float(w[k, k])}, not positive: the matrix is not positive definite, or is no "
            f"longer so after rounding to {u.format}; {small or 'add to its diagonal, or '}use a wider format."
        )
    w[k, k] = u.compute("sqrt", w[k : k + 1, k])[0]
    w[k + 1 :, k] = u.compute("divide", w[k + 1 :, k], w[k, k, ...])
