"""Cholesky factorization."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.array_arithmetic import ArrayArithmetic
from simfloat.environment import in_usual_environment
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.inner_products import InnerProducts
from simfloat.linalg.systems import (
    COMPLEX_FACTORS,
    ArithmeticOptions,
    arithmetic_of,
    check_range,
    result_array,
    triangle_of,
)


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
