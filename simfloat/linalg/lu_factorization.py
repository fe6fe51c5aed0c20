"""LU factorization with partial pivoting."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.array_arithmetic import ArrayArithmetic
from simfloat.checks import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.inner_products import InnerProducts
from simfloat.linalg.substitution import forward
from simfloat.linalg.systems import (
    COMPLEX_FACTORS,
    ArithmeticOptions,
    arithmetic_of,
    check_range,
    matrix_of,
    overflow_error,
    result_array,
)

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
