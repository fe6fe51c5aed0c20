"""The method of conjugate gradients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.array_arithmetic import ArrayArithmetic
from simfloat.checks import check_count
from simfloat.environment import in_usual_environment
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.systems import (
    ArithmeticOptions,
    arithmetic_of,
    check_tolerance,
    in_range,
    matrix_of,
    result_array,
    right_hand_side,
)


class ConjugateGradients(NamedTuple):
    """What conjugate gradients came to.

    `residuals` are the norms of the residuals that the recurrence computes, the first one that of b, and
    `true_residuals` those of b - A x, measured in float64, both relative to the norm of b.
    """

    x: Array
    converged: bool
    reason: str
    residuals: list[float]
    true_residuals: list[float]


@in_usual_environment
def cg(
    A: Any,
    b: Any,
    *,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> ConjugateGradients:
    """Conjugate gradients for A x = b with a symmetric positive definite A (n, n), from x = 0.

    With r = p = b and rho = r . r, every step computes in this order, each operation rounded to the format and every
    sum through `accumulate`: q = A p; alpha = rho / (p . q); x = x + alpha p; r = r - alpha q; rho' = r . r;
    beta = rho' / rho; p = r + beta p. The three vector updates are fused: one rounding for each element.

    It converges when the computed residual's norm is at most `tolerance` (by default the format's eps) times that of
    b; it stops without where p . q is not positive, where numbers leave the format's range (r . r is 0 for a larger
    r) or reach its largest number if what lies beyond stops there, and after `max_iterations` (10 n), and says which.
    The computed residual may go on falling where b - A x does not: that is measured beside it.

    Raises ValueError for wrong shapes and for what is no real matrix.

    Source: Hestenes and Stiefel, J. Res. NBS 49 (1952); Greenbaum, SIAM J. Matrix Anal. Appl. 18(3) (1997).

    Examples:
        >>> result = sf.linalg.cg([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0], format=sf.BF16)
        >>> result.x, result.converged
        (array([0.0908203125, 0.63671875], BF16), True)
    """
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u, square=True)
    b = right_hand_side(b, u, len(a))
    if b.ndim != 1:
        raise ValueError(f"b must be one vector, got shape {b.shape}.")
    tolerance = float(u.format.eps) if tolerance is None else tolerance
    check_tolerance(tolerance)
    most = max(10 * len(a), 1) if max_iterations is None else max_iterations
    check_count("max_iterations", most)
    return _iterate(u, a, b, tolerance, most)


def _iterate(u: ArrayArithmetic, a: NDArray, b: NDArray, tolerance: float, most: int) -> ConjugateGradients:
    x, r, p = np.zeros_like(b), b, b
    rho = u.matmul(r, r).reshape(1)
    first, exact = math.sqrt(rho[0]), np.asarray(a, np.float64)
    norm = float(np.linalg.norm(np.asarray(b, np.float64))) or 1.0
    residuals, true = [1.0], [1.0]

    def end(converged: bool, reason: str) -> ConjugateGradients:
        return ConjugateGradients(result_array(x, u), converged, reason, residuals, true)

    if not rho[0]:
        why = "b is zero." if not b.any() else f"b . b is zero in {u.format}: scale b by a power of two."
        return end(not b.any(), why)
    for _ in range(most):
        q = u.matmul(a, p)
        curvature = u.matmul(p, q).reshape(1)
        if not in_range(u, rho, q, curvature):
            return end(False, f"A product left the range of {u.format}: scale A or b by a power of two.")
        if not curvature[0] > 0:
            why = f"p . A p is {float(curvature[0])}, not positive: A is not positive definite, or not in {u.format}."
            return end(False, why)
        alpha = u.compute("divide", rho, curvature)
        x = u.compute("fma", alpha, p, x)
        r = u.compute("fma", -alpha, q, r)
        if not in_range(u, x):
            return end(False, f"x left the range of {u.format}: scale b by a power of two.")
        before, rho = rho, u.matmul(r, r).reshape(1)
        residuals.append(math.sqrt(rho[0]) / first if rho[0] >= 0 else math.nan)
        true.append(float(np.linalg.norm(np.asarray(b, np.float64) - exact @ x.astype(np.float64))) / norm)
        if not rho[0] and float(np.linalg.norm(np.asarray(r, np.float64))) > tolerance * norm:
            return end(False, f"r . r is zero in {u.format}, and r is not: scale b by a power of two.")
        if residuals[-1] <= tolerance:
            return end(True, f"The residual fell to {residuals[-1]:.1e} of b's norm, at most {tolerance:.1e}.")
        p = u.compute("fma", u.compute("divide", rho, before), p, r)
    return end(False, f"After {most} steps the residual is still {residuals[-1]:.1e} of b's norm.")
