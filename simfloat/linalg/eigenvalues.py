"""Eigenvalues and eigenvectors of symmetric matrices, by Jacobi's method."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.array_arithmetic import ArrayArithmetic
from simfloat.environment import in_usual_environment
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.rotations import SWEEPS, PlaneRotation, convergence_error
from simfloat.linalg.systems import (
    COMPLEX_VALUES,
    ArithmeticOptions,
    arithmetic_of,
    check_range,
    result_array,
    triangle_of,
)


class Eigen(NamedTuple):
    """The eigenvalues, ascending, and the eigenvectors that belong to them, as columns."""

    values: Array
    vectors: Array


@in_usual_environment
def eigh(
    A: Any,
    *,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Eigen:
    """``(values, vectors)`` with A near vectors diag(values) vectors^T, for a symmetric A (n, n), of which the lower
    triangle is read.

    Jacobi's cyclic method: sweeps over all pairs p < q, row by row, every operation rounded to the format.

    * A pair is left alone where \\|a_pq\\| is 0, or changes neither \\|a_pp\\| nor \\|a_qq\\| when it is added to both.
    * The rotation: tau = (a_qq - a_pp) / (2 a_pq); t = sign(tau) / (\\|tau\\| + sqrt(1 + tau^2)), 1 + tau^2 being one
      fma; where that reaches the format's largest number, t = a_pq / (a_qq - a_pp), the limit for large tau;
      c = 1 / sqrt(1 + t^2), likewise; s = t c.
    * In every row k, (a_kp, a_kq) become (c a_kp - s a_kq, c a_kq + s a_kp), a rounded product with s and an fma: first
      all products s a_kq, then all new a_kp, then all products s a_kp with the old a_kp, then all new a_kq. The columns
      of vectors, which begin as the identity, follow in the same way. Then a_pp becomes a_pp - t a_pq, and a_qq becomes
      a_qq + t a_pq, both of the old values, one fma each; a_pq becomes 0, and rows p and q become columns p and q.

    It ends with a sweep that leaves all pairs alone; pairs that it left alone count as 0. No sum is made, so that
    `accumulate` changes nothing. Stochastic modes draw in this order.

    Raises ValueError where numbers leave the format's range, where 30 sweeps are not enough, and for what is no square
    real matrix.

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
    """The eigenvalues in the order in which they appear, and the eigenvectors."""
    symmetric = np.tril(matrix) + np.tril(matrix, -1).T
    a, n = symmetric.copy(), len(matrix)
    v = np.eye(n, dtype=u.dtype)
    for _ in range(SWEEPS):
        if not sum(rotate_pair(u, a, v, p, q) for p in range(n) for q in range(p + 1, n)):
            return a.diagonal().copy(), v
        check_range(u, "The eigenvalues", matrix, a[a != symmetric], v, power=2)
    raise convergence_error("Jacobi's method", u.format)


def rotate_pair(u: ArrayArithmetic, a: NDArray, v: NDArray, p: int, q: int) -> bool:
    """Whether the pair was rotated, which changes a and v in their places."""
    between = a[p, q : q + 1].copy()
    sizes = np.abs(a.diagonal()[[p, q]])
    if not between[0] or (u.compute("add", sizes, np.abs(between)) == sizes).all():
        return False
    first, last = a[p, p : p + 1].copy(), a[q, q : q + 1].copy()
    rotation = PlaneRotation.of(u, first, last, between)
    a[:, p], a[:, q] = rotation.apply(u, a[:, p].copy(), a[:, q].copy())
    v[:, p], v[:, q] = rotation.apply(u, v[:, p].copy(), v[:, q].copy())
    a[p, p] = u.compute("fma", -rotation.t, between, first)[0]
    a[q, q] = u.compute("fma", rotation.t, between, last)[0]
    a[p, q] = a[q, p] = 0
    a[p], a[q] = a[:, p], a[:, q]
    return True
