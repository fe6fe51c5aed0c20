"""Triangular systems: unknowns one after the other."""

from __future__ import annotations

from typing import Any

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
from simfloat.linalg.systems import (
    ArithmeticOptions,
    arithmetic_of,
    in_range,
    result_array,
    right_hand_side,
    solution_overflow_error,
    triangle_of,
)


@in_usual_environment
def solve_triangular(
    T: Any,
    b: Any,
    *,
    lower: bool = False,
    unit_diagonal: bool = False,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array:
    """The solution x of T x = b, for a triangular matrix T (n, n) and b (n,) or (n, columns).

    Unknowns are found in ascending order where T is `lower`, else in descending order: from b_i the products t_ik x_k
    are subtracted in the order in which the x_k were found, in one running sum of `accumulate` (by default every
    fused step is rounded to the format), and the sum is rounded to the format and divided by t_ii, one rounding; with
    `unit_diagonal` t_ii is taken for 1. Accumulators without a running sum sum the products first, and the sum is
    subtracted from b_i, one rounding. The other triangle of T is not read. Stochastic rounding in the format draws,
    for every unknown, for its division, then for the subtraction of its products from all that is left of b, in C
    order; with another accumulator as the products of matrices do, row by row.

    Raises ValueError for a zero on the diagonal, for wrong shapes, and where numbers leave the format's range.

    Examples:
        >>> sf.linalg.solve_triangular([[2.0, 0.0], [1.0, 3.0]], [1.0, 1.0], lower=True, format=sf.BF16)
        array([0.5, 0.1669921875], BF16)
    """
    check_flags(lower=lower, unit_diagonal=unit_diagonal)
    u = arithmetic_of(T, ArithmeticOptions(format, rounding, accumulate, stream))
    t = triangle_of(T, u, "T", lower)
    b = right_hand_side(b, u, len(t))
    zeros = np.flatnonzero(t.diagonal() == 0)
    if zeros.size and not unit_diagonal:
        raise ValueError(f"T is singular: its diagonal is zero at {int(zeros[0])}.")
    x = substitute(u, t, b, lower, unit_diagonal)
    if not in_range(u, x):
        raise solution_overflow_error(u.format)
    return result_array(x, u)


def substitute(u: ArrayArithmetic, t: NDArray, b: NDArray, lower: bool, unit_diagonal: bool = False) -> NDArray:
    """The solution of a triangular system, by numbers of the format."""
    if not lower:
        return substitute(u, t[::-1, ::-1], b[::-1], True, unit_diagonal)[::-1]
    sums = InnerProducts.of(u, b)
    x = np.array(b if b.ndim > 1 else b[:, np.newaxis], sums.dtype, order="C")
    forward(sums, t, x, unit_diagonal)
    return x.astype(u.dtype).reshape(b.shape)


def forward(sums: InnerProducts, t: NDArray, x: NDArray, unit_diagonal: bool) -> None:
    """Solve t x = b for a lower triangle, in the place of b."""
    n = len(t)
    if sums.leaf is None or n <= sums.leaf:
        return (_by_steps if sums.steps_are_operations else _by_sums)(sums, t, x, unit_diagonal)
    middle = sums.middle(0, n)
    forward(sums, t[:middle, :middle], x[:middle], unit_diagonal)
    x[middle:] = sums.partial(x[middle:], t[middle:, :middle], x[:middle])
    forward(sums, t[middle:, middle:], x[middle:], unit_diagonal)


def _by_steps(sums: InnerProducts, t: NDArray, x: NDArray, unit_diagonal: bool) -> None:
    """Solve t x = b by subtracting each unknown's products from all equations that are left."""
    for i in range(len(t)):
        if not unit_diagonal:
            x[i] = sums.u.compute("divide", x[i], t[i, i, ...])
        if i + 1 < len(t):
            x[i + 1 :] = sums.step(x[i + 1 :], t[i + 1 :, i], x[i])


def _by_sums(sums: InnerProducts, t: NDArray, x: NDArray, unit_diagonal: bool) -> None:
    """Solve t x = b by one sum for each unknown."""
    for i in range(len(t)):
        x[i] = sums.final(x[i], t[i, :i], x[:i])
        if not unit_diagonal:
            x[i] = sums.u.compute("divide", x[i], t[i, i, ...])
