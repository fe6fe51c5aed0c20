"""Jacobi methods: eigenvalues and eigenvectors of symmetric matrices, and singular values and vectors.

Both methods zero elements by rotations of two rows or columns; the second method works on one side of the matrix.
"""

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
    COMPLEX_VALUES,
    ArithmeticOptions,
    arithmetic_of,
    check_range,
    check_squares,
    matrix_of,
    names_options_of_scipy,
    result_array,
    triangle_of,
)
from simfloat.linalg.orthogonal import complete_columns
from simfloat.sums.accumulator import Accumulator

#: Maximum number of sweeps over all pairs; the methods converge in about log2(log2(1 / eps)) + 3 sweeps.
SWEEPS = 30


class PlaneRotation(NamedTuple):
    """The tangent, cosine and sine of an angle of at most 45 degrees, as arrays of one element."""

    t: NDArray
    c: NDArray
    s: NDArray

    @classmethod
    def of(cls, u: ArrayArithmetic, first: NDArray, last: NDArray, between: NDArray) -> PlaneRotation:
        """Return the rotation that diagonalizes [[first, between], [between, last]], every operation rounded.

        gap = last - first, tau = gap / (2 between), t = sign(tau) / (|tau| + sqrt(1 + tau^2)), where tau^2 + 1 is
        rounded once. If tau^2 + 1 reaches the largest number of the format, t = between / gap, the limit for large
        tau. c = 1 / sqrt(1 + t^2), also three operations, and s = t c. All are NaN if gap or 2 between exceeds the
        largest number.
        """
        one, largest = np.ones(1, u.dtype), u.format.max
        gap, twice = u.compute("subtract", last, first), u.compute("multiply", 2 * one, between)
        tau = u.compute("divide", gap, twice)
        square = u.compute("fma", tau, tau, one)
        if max(abs(float(last[0]) - float(first[0])), 2 * abs(float(between[0]))) > largest:
            t = np.full(1, np.nan, u.dtype)
        elif square[0] < largest:
            sign = np.where(tau < 0, -one, one)
            t = u.compute("divide", sign, u.compute("add", np.abs(tau), u.compute("sqrt", square)))
        else:
            t = u.compute("divide", between, gap)
        c = u.compute("divide", one, u.compute("sqrt", u.compute("fma", t, t, one)))
        return cls(t, c, u.compute("multiply", t, c))

    def apply(self, u: ArrayArithmetic, x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
        """Return (c x - s y, s x + c y), each with a rounded product and an fma."""
        turned = u.compute("fma", self.c, x, -u.compute("multiply", self.s, y))
        return turned, u.compute("fma", self.c, y, u.compute("multiply", self.s, x))


def convergence_error(what: str, format: Format) -> ValueError:
    """Return the error for rotations that do not converge."""
    return ValueError(
        f"{what} did not converge in {SWEEPS} sweeps in {format}: scale the matrix, or use a format of more bits."
    )


class Eigen(NamedTuple):
    """The eigenvalues in ascending order, and the eigenvectors as columns in the same order."""

    values: Array
    vectors: Array


@names_options_of_scipy
@in_usual_environment
def eigh(
    A: Any,
    *,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Eigen:
    """Compute eigenvalues and eigenvectors of a symmetric matrix: A is near vectors diag(values) vectors^T.

    This is the cyclic Jacobi method: sweeps over all pairs p < q, row by row, with every operation rounded to the
    format. Only the lower triangle of A is read. The method contains no sums.

    * A pair is skipped if |a_pq| is 0, or if adding it changes neither |a_pp| nor |a_qq|.
    * The rotation: tau = (a_qq - a_pp) / (2 a_pq); t = sign(tau) / (|tau| + sqrt(1 + tau^2)), where 1 + tau^2 is
      one fma. If 1 + tau^2 reaches the largest number of the format, t = a_pq / (a_qq - a_pp), the limit for large
      tau. c = 1 / sqrt(1 + t^2), also with an fma; s = t c.
    * In every row k, (a_kp, a_kq) become (c a_kp - s a_kq, c a_kq + s a_kp), each a rounded product with s and an
      fma: first all products s a_kq, then all new a_kp, then all products s a_kp with the old a_kp, then all new
      a_kq. The columns of vectors, which start as the identity, follow in the same way. Then a_pp becomes a_pp - t
      a_pq, and a_qq becomes a_qq + t a_pq, both from the old values with one fma; a_pq becomes 0, and rows p and q
      become columns p and q.

    The method ends after a sweep that skips all pairs; the skipped elements count as 0. Stochastic modes use their
    random bits in this order.

    Parameters:
        A: a real symmetric matrix (n, n).
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: has no effect on the values; the results store it as their accumulator.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The named tuple (values, vectors), an `Eigen`; values (n,) ascend, and vectors (n, n) have one eigenvector in
        each column.

    Raises:
        ValueError: if a value leaves the range of the format.
        ValueError: if 30 sweeps are not enough.
        ValueError: if A is not a real square matrix.

    Source: Golub and Van Loan, Matrix Computations, 4th ed., section 8.5.

    Examples:
        >>> sf.linalg.eigh([[2.0, 1.0], [1.0, 2.0]], format=sf.BF16).values
        array([1.0, 3.0], BF16)
    """
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = triangle_of(A, u, if_complex=COMPLEX_VALUES)
    values, vectors = diagonalize(u, a)
    order = np.argsort(values, kind="stable")
    return Eigen(result_array(values[order], u), result_array(vectors[:, order], u))


def diagonalize(u: ArrayArithmetic, matrix: NDArray) -> tuple[NDArray, NDArray]:
    """Return the eigenvalues in the order of the diagonal, and the eigenvectors."""
    symmetric = np.tril(matrix) + np.tril(matrix, -1).T
    a, n = symmetric.copy(), len(matrix)
    v = np.eye(n, dtype=u.dtype)
    for _ in range(SWEEPS):
        if not sum(rotate_pair(u, a, v, p, q) for p in range(n) for q in range(p + 1, n)):
            return a.diagonal().copy(), v
        check_range(u, "The eigenvalues", matrix, a[a != symmetric], v)
    raise convergence_error("Jacobi's method", u.format)


def rotate_pair(u: ArrayArithmetic, a: NDArray, v: NDArray, p: int, q: int) -> bool:
    """Rotate a pair, in place in a and v; return True unless the pair was skipped."""
    between = a[p, q : q + 1].copy()
    sizes = np.abs(a.diagonal()[[p, q]])
    if not between[0] or (u.compute("add", sizes, np.abs(between)) == sizes).all():
        return False
    first, last = a[p, p : p + 1].copy(), a[q, q : q + 1].copy()
    rotation = PlaneRotation.of(u, first, last, between)
    a[:, p], a[:, q] = rotation.apply(u, a[:, p].copy(), a[:, q].copy())
    v[:, p], v[:, q] = rotation.apply(u, v[:, p], v[:, q])
    a[p, p] = u.compute("fma", -rotation.t, between, first)[0]
    a[q, q] = u.compute("fma", rotation.t, between, last)[0]
    a[p, q] = a[q, p] = 0
    a[p], a[q] = a[:, p], a[:, q]
    return True


class SVD(NamedTuple):
    """The factors of A = u diag(s) vh: orthonormal columns, singular values in descending order, orthonormal rows."""

    u: Array
    s: Array
    vh: Array


@names_options_of_scipy
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
    """Compute the singular value decomposition: A is near u diag(s) vh.

    This is the method of Hestenes. For m >= n it sweeps over all pairs p < q of columns, row by row; every operation
    is rounded to the format, and sums go through `accumulate`. For m < n it decomposes the transposed matrix.

    * alpha = a_p . a_p, beta = a_q . a_q, gamma = a_p . a_q. The pair is skipped if gamma is 0, or if |gamma| is at
      most m eps (sqrt(alpha) sqrt(beta)). Both products in this bound are rounded, and m eps is an exact operand. The
      bound is computed even if gamma is 0.
    * Otherwise, both columns and the same columns of v, which starts as the identity, are rotated by the rotation of
      :func:`simfloat.linalg.eigh` for [[alpha, gamma], [gamma, beta]].

    After a sweep that skips all pairs, s_j = sqrt(a_j . a_j), all sums before all roots, then u_j = a_j / s_j, column
    by column. If s_j is 0, and for the columns that `full_matrices` adds, u_j is a column of the q of
    :func:`simfloat.linalg.qr` of the other columns. Stochastic modes use their random bits in this order.

    Parameters:
        A: a real matrix (m, n).
        full_matrices: True returns square u and vh.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The named tuple (u, s, vh), an `SVD`. With k = min(m, n), u is (m, k), s is (k,) in descending order, and vh is
        (k, n). With `full_matrices`, u is (m, m) and vh is (n, n).

    Raises:
        ValueError: if a value leaves the range of the format. The first such value is a sum a . a: it becomes infinite,
            or it becomes 0 although the column is larger than the rounding errors of A.
        ValueError: if 30 sweeps are not enough.
        ValueError: if A is not a real matrix.

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
    """Return orthogonal columns of norm 1 or 0, their norms in descending order, and the accumulated rotations."""
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
    """Return x . y as an array of one element."""
    return u.matmul(x.copy(), y.copy()).reshape(1)


def rotate_columns(u: ArrayArithmetic, a: NDArray, v: NDArray, p: int, q: int) -> bool:
    """Rotate two columns, in place in a and v; return True unless the pair was skipped."""
    x, y = a[:, p].copy(), a[:, q].copy()
    alpha, beta, gamma = (product(u, first, second) for first, second in ((x, x), (y, y), (x, y)))
    check_range(u, "The decomposition", a, alpha, beta, gamma, power=2)
    limit = u.compute("multiply", u.compute("sqrt", alpha), u.compute("sqrt", beta))
    limit = u.compute("multiply", np.array([len(a) * u.format.eps]), limit)
    if not gamma[0] or abs(gamma[0]) <= limit[0]:
        return False
    rotation = PlaneRotation.of(u, alpha, beta, gamma)
    a[:, p], a[:, q] = rotation.apply(u, x, y)
    v[:, p], v[:, q] = rotation.apply(u, v[:, p], v[:, q])
    return True
