"""Newton's iteration for the inverse and the square root of a matrix, with products of matrices only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.arithmetic import ArrayArithmetic
from simfloat.common import check_count
from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.matrices import (
    ArithmeticOptions,
    InnerProducts,
    arithmetic_of,
    check_tolerance,
    in_range,
    matrix_of,
    names_options_of_scipy,
    result_array,
)
from simfloat.sums.accumulator import Accumulator


class NewtonInverse(NamedTuple):
    """The result of Newton's iteration for the inverse.

    `converged` is True if the last residual is small enough, and `reason` says why the iteration ended. `residuals` are
    the norms of I - A X for every X, measured in float64 from the computed residual. The norm is the largest sum of
    magnitudes of a row.
    """

    x: Array
    converged: bool
    reason: str
    residuals: list[float]


class NewtonRoot(NamedTuple):
    """The result of Newton's iteration for the square root: `root` near A^(1/2), and `inverse_root` near A^(-1/2).

    `converged` and `reason` are those of `NewtonInverse`. `residuals` are the norms of I - Z Y.
    """

    root: Array
    inverse_root: Array
    converged: bool
    reason: str
    residuals: list[float]


@names_options_of_scipy
@in_usual_environment
def newton_inverse(
    A: Any,
    *,
    tolerance: float | None = None,
    max_iterations: int = 100,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> NewtonInverse:
    """Compute the inverse of A by Newton's iteration, X = X + X (I - A X).

    X starts from A^T times the largest power of two that is at most 1 / (norm_1(A) norm_inf(A)), measured in float64.
    Every step computes R = I - A X, then X = X + X R. Each element of R is one partial sum of `accumulate` that starts
    from the element of I and subtracts the products in ascending order; each element of the new X starts from the old
    one and adds them. An accumulator that cannot start from a value sums the products first.

    The iteration ends if the norm of R is at most `tolerance`, if it is below 1/2 and no longer shrinks, if a value
    leaves the range of the format, or after `max_iterations` steps. In the second and third case, the last step is
    undone.

    Parameters:
        A: a real matrix (n, n).
        tolerance: the bound of the norm of R for the end and for `converged`; by default none, and `converged` is True
            if the norm of R is below 1/2: the relative error of X is then below 1.
        max_iterations: the largest number of steps.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        A `NewtonInverse` with x, `converged`, `reason` and `residuals`.

    Raises:
        ValueError: if A is not a real square matrix, or an option is invalid.

    Source: Schulz, Z. Angew. Math. Mech. 13 (1933); Higham, Functions of Matrices, 2008, section 5.3 on the start.

    Examples:
        >>> result = sf.linalg.newton_inverse([[2.0, 1.0], [0.0, 4.0]], format=sf.FP16)
        >>> result.converged, result.x
        (True, array([[0.5, -0.125],
               [0.0, 0.25]], FP16))
    """
    u, a = _read(A, ArithmeticOptions(format, rounding, accumulate, stream), tolerance, max_iterations)
    wide = np.abs(np.asarray(a, np.float64))
    size = float(wide.sum(0).max(initial=0) * wide.sum(1).max(initial=0))
    # With this start the eigenvalues of X A are between 0 and 1, so the iteration converges for every regular matrix.
    # A power of two makes it exact, except for underflow.
    x = u.round(np.ldexp(np.asarray(a.T, np.float64), -math.frexp(size)[1] if size else 0))
    identity = np.eye(len(a), dtype=u.dtype)
    (x,), converged, reason, residuals = _improve(
        u,
        [x],
        lambda x: _subtract_product(u, identity, a, x),
        lambda r, x: [_subtract_product(u, x, -x, r)],
        tolerance,
        max_iterations,
    )
    return NewtonInverse(result_array(x, u), converged, reason, residuals)


@names_options_of_scipy
@in_usual_environment
def newton_sqrt(
    A: Any,
    *,
    tolerance: float | None = None,
    max_iterations: int = 100,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> NewtonRoot:
    """Compute A^(1/2) and A^(-1/2) by the coupled iteration of Newton and Schulz.

    A is first multiplied by the largest even power of two, 4^-k, with which its norm (the largest sum of magnitudes of
    a row, in float64) is below 1. Y starts from this matrix, and Z from I. Every step computes R = I - Z Y, as in
    :func:`simfloat.linalg.newton_inverse`; T = I + R / 2, an fma for each element; then the products Y T and T Z
    through `accumulate`, the new Y and Z. The results are 2^k Y and 2^-k Z. The iteration ends as in
    :func:`simfloat.linalg.newton_inverse`.

    Parameters:
        A: a real matrix (n, n) with positive eigenvalues, such as a symmetric positive definite one.
        tolerance: the bound of the norm of R, as in :func:`simfloat.linalg.newton_inverse`.
        max_iterations: the largest number of steps.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        A `NewtonRoot` with `root`, `inverse_root`, `converged`, `reason` and `residuals`.

    Raises:
        ValueError: if A is not a real square matrix, or an option is invalid.

    Source: Higham, Functions of Matrices, 2008, equation 6.35.

    Examples:
        >>> result = sf.linalg.newton_sqrt([[2.0]], format=sf.FP32)
        >>> result.root, result.inverse_root
        (array([[1.4142135381698608]], FP32), array([[0.7071067690849304]], FP32))
    """
    u, a = _read(A, ArithmeticOptions(format, rounding, accumulate, stream), tolerance, max_iterations)
    size = float(np.abs(np.asarray(a, np.float64)).sum(1).max(initial=0))
    # An even power, so that its root is a power of two and scales the results exactly.
    k = -(-math.frexp(size)[1] // 2) if size else 0
    identity, half = np.eye(len(a), dtype=u.dtype), np.full((1, 1), 0.5, u.dtype)

    def step(r: NDArray, y: NDArray, z: NDArray) -> list[NDArray]:
        t = u.compute("fma", half, r, identity)
        return [u.matmul(y, t), u.matmul(t, z)]

    start = [u.round(np.ldexp(np.asarray(a, np.float64), -2 * k)), identity]
    (y, z), converged, reason, residuals = _improve(
        u, start, lambda y, z: _subtract_product(u, identity, z, y), step, tolerance, max_iterations
    )
    root, inverse_root = (u.round(np.ldexp(np.asarray(x, np.float64), power)) for x, power in ((y, k), (z, -k)))
    return NewtonRoot(result_array(root, u), result_array(inverse_root, u), converged, reason, residuals)


def _read(A: Any, options: ArithmeticOptions, tolerance: float | None, most: int) -> tuple[ArrayArithmetic, NDArray]:
    check_count("max_iterations", most)
    if tolerance is not None:
        check_tolerance(tolerance)
    u = arithmetic_of(A, options)
    return u, matrix_of(A, u, square=True)


def _subtract_product(u: ArrayArithmetic, s: NDArray, left: NDArray, right: NDArray) -> NDArray:
    """Return s - left right, where each element is one sum that starts from s."""
    return InnerProducts.of(u, s).final(s, left, right)


def _improve(
    u: ArrayArithmetic,
    matrices: list[NDArray],
    residual: Callable[..., NDArray],
    step: Callable[..., list[NDArray]],
    tolerance: float | None,
    most: int,
) -> tuple[list[NDArray], bool, str, list[float]]:
    """Repeat a step while the residual shrinks."""
    r = residual(*matrices)
    residuals = [_largest_row_sum(r)]
    limit = 0.0 if tolerance is None else tolerance
    ended = f"After {most} steps"
    for _ in range(most):
        if residuals[-1] <= limit:
            ended = "The residual is zero:" if not residuals[-1] else "The tolerance is met:"
            break
        after = step(r, *matrices)
        r = residual(*after)
        size = _largest_row_sum(r)
        if not in_range(u, r, *after):
            ended = f"The next step left the range of {u.format}:"
            break
        if residuals[-1] < 0.5 and size >= residuals[-1]:
            ended = "The residual no longer shrinks:"
            break
        matrices = after
        residuals.append(size)
    converged = residuals[-1] < 0.5 if tolerance is None else residuals[-1] <= tolerance
    return matrices, converged, f"{ended} its norm is {residuals[-1]:.1e}.", residuals


def _largest_row_sum(r: NDArray) -> float:
    """Return the largest sum of magnitudes of a row, in float64."""
    return float(np.abs(np.asarray(r, np.float64)).sum(1).max(initial=0))
