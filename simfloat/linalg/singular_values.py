"""Singular values and vectors, by Jacobi's method on one side."""

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
from simfloat.linalg.householder import complete_columns
from simfloat.linalg.rotations import SWEEPS, PlaneRotation, convergence_error
from simfloat.linalg.systems import (
    COMPLEX_VALUES,
    ArithmeticOptions,
    arithmetic_of,
    check_range,
    check_squares,
    matrix_of,
    result_array,
)


class SVD(NamedTuple):
    """The factors of A = u diag(s) vh: orthonormal columns, singular values, descending, and orthonormal rows."""

    u: Array
    s: Array
    vh: Array


@in_usual_environment
def svd(
    A: Any,
    *,
    full_matrices: bool = False,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> SVD:
    """``(u, s, vh)`` with A (m, n) near u diag(s) vh: u (m, k), s (k,) and vh (k, n), k the lesser of m and n; u (m, m)
    and vh (n, n) with `full_matrices`.

    Hestenes's method: for m >= n sweeps over all pairs p < q of columns, row by row, every operation rounded to the
    format, sums through `accumulate`; for m < n the transposed matrix is decomposed.

    * alpha = a_p . a_p, beta = a_q . a_q, gamma = a_p . a_q. The pair is left alone where gamma is 0, or \\|gamma\\| no
      larger than m eps (sqrt(alpha) sqrt(beta)), two products, m eps being exact, which are computed in both cases.
    * Else both columns, and those of v, which begin as the identity, are rotated by the rotation of
      :func:`simfloat.linalg.eigh` for [[alpha, gamma], [gamma, beta]].

    After a sweep that leaves all pairs alone s_j = sqrt(a_j . a_j), all sums before all roots, then u_j = a_j / s_j,
    column by column. Where s_j is 0, and for what
    `full_matrices` adds, columns are those of the q of :func:`simfloat.linalg.qr` of the others. Stochastic modes draw
    in this order.

    Raises ValueError where numbers leave the format's range (a . a does first, to infinity, or to 0 for a column that
    is more than roundings of A), where 30 sweeps are not enough, and for what is no real matrix.

    Source: Golub and Van Loan, Matrix Computations, 4th ed., section 8.6.3; Demmel and Veselic, SIAM J. Matrix Anal.
    Appl. 13(4), 1992.

    Examples:
        >>> sf.linalg.svd([[0.0, 2.0], [3.0, 0.0]], format=sf.BF16).s
        array([3.0, 2.0], BF16)
    """
    check_flags(full_matrices=full_matrices)
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u, if_complex=COMPLEX_VALUES)
    is_wide = a.shape[0] < a.shape[1]
    left, s, right = orthogonalize_columns(u, a.T.copy() if is_wide else a)
    left = complete_columns(u, left, s, len(left) if full_matrices else len(s))
    if is_wide:
        left, right = right, left
    return SVD(result_array(left, u), result_array(s, u), result_array(right.T, u))


def orthogonalize_columns(u: ArrayArithmetic, matrix: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Columns that are orthogonal to each other and of norm 1, or 0; their norms, descending; and what turned them."""
    a, n = matrix.copy(), matrix.shape[1]
    v = np.eye(n, dtype=u.dtype)
    for _ in range(SWEEPS):
        if not sum(rotate_columns(u, a, v, p, q) for p in range(n) for q in range(p + 1, n)):
            break
        check_range(u, "The decomposition", matrix, a[a != matrix], v, power=2)
    else:
        raise convergence_error("Hestenes's method", u.format)
    squares = np.array([product(u, x, x)[0] for x in a.T], u.dtype)
    check_range(u, "The decomposition", matrix, squares, power=2)
    s = u.compute("sqrt", squares)
    check_squares(a[:, s == 0], matrix, matrix, u.format)
    for j in np.flatnonzero(s):
        a[:, j] = u.compute("divide", a[:, j].copy(), s[j : j + 1])
    order = np.argsort(-s, kind="stable")
    return np.where(s[order] == 0, np.zeros(1, a.dtype), a[:, order]), s[order], v[:, order]


def product(u: ArrayArithmetic, x: NDArray, y: NDArray) -> NDArray:
    """x . y, as an array of one element."""
    return u.matmul(x.copy(), y.copy()).reshape(1)


def rotate_columns(u: ArrayArithmetic, a: NDArray, v: NDArray, p: int, q: int) -> bool:
    """Whether two columns were rotated, which changes a and v in their places."""
    x, y = a[:, p].copy(), a[:, q].copy()
    alpha, beta, gamma = (product(u, first, second) for first, second in ((x, x), (y, y), (x, y)))
    check_range(u, "The decomposition", a, alpha, beta, gamma, power=2)
    limit = u.compute("multiply", u.compute("sqrt", alpha), u.compute("sqrt", beta))
    limit = u.compute("multiply", np.array([len(a) * u.format.eps]), limit)
    if not gamma[0] or abs(gamma[0]) <= limit[0]:
        return False
    rotation = PlaneRotation.of(u, alpha, beta, gamma)
    a[:, p], a[:, q] = rotation.apply(u, x, y)
    v[:, p], v[:, q] = rotation.apply(u, v[:, p].copy(), v[:, q].copy())
    return True
