"""Krylov methods, conjugate gradients and GMRES, with preconditioners."""

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
from simfloat.formats import Format
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.factorizations import LU
from simfloat.linalg.matrices import (
    ArithmeticOptions,
    InnerProducts,
    arithmetic_of,
    check_tolerance,
    in_range,
    matrix_of,
    names_options_of_scipy,
    numbers_of,
    result_array,
    right_hand_side,
    solve_with_factors,
    substitute,
)
from simfloat.sums.accumulator import Accumulator

#: A linear function of vectors in a format.
Operator = Callable[[NDArray], NDArray]


class KrylovSolution(NamedTuple):
    """The result of GMRES.

    `converged` is True if the residual met the tolerance, and `reason` says why the iteration ended.
    `residuals` are the norms of the residual that the method estimates in every step, the first one for x = 0.
    `true_residuals` are the norms of b - A x, measured in float64, for the x after each cycle. Both are relative to the
    norm of b.
    """

    x: Array
    converged: bool
    reason: str
    residuals: list[float]
    true_residuals: list[float]


class ConjugateGradients(NamedTuple):
    """The result of conjugate gradients.

    `converged` is True if the residual met the tolerance, and `reason` says why the iteration ended. `residuals` are
    the norms of the residuals r of the recurrence, the first one for x = 0. `true_residuals` are the norms of b - A x,
    measured in float64. Both are relative to the norm of b.
    """

    x: Array
    converged: bool
    reason: str
    residuals: list[float]
    true_residuals: list[float]


@names_options_of_scipy
@in_usual_environment
def cg(
    A: Any,
    b: Any,
    *,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    preconditioner: Any = None,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> ConjugateGradients:
    """Solve A x = b by conjugate gradients, from x = 0.

    With r = p = b and rho = r . r, every step computes in this order: q = A p; alpha = rho / (p . q); x = x + alpha
    p; r = r - alpha q; rho' = r . r; beta = rho' / rho; p = r + beta p. Each operation is rounded to the format, and
    every sum goes through `accumulate`. The three vector updates are fma operations: one rounding for each element.

    With a preconditioner M, every step also computes z = M r after r. Then rho is r . z, the first p is z, and p
    becomes z + beta p.

    The iteration converges when the norm of the residual r is at most `tolerance` times the norm of b. It ends without
    convergence if p . q is not positive, if a value leaves the range of the format (r . r may underflow to 0 although r
    is not 0), if a value reaches the largest number of a format or mode that saturates, or after `max_iterations`
    steps. r may continue to shrink when b - A x no longer does, so the result also has `true_residuals`, the norms of b
    - A x.

    Parameters:
        A: a real symmetric positive definite matrix (n, n).
        b: a vector (n,).
        tolerance: the bound of the residual relative to the norm of b; by default `eps` of the format.
        max_iterations: the largest number of steps; by default 10 n.
        preconditioner: M, near the inverse of A and symmetric positive definite: a matrix (n, n); a vector (n,), the
            diagonal of a diagonal matrix; the result of :func:`simfloat.linalg.lu` of a matrix near A, whose two
            triangular systems are solved in the format; or a function of an `Array` that returns n numbers, which
            are rounded to the format. By default none. With a preconditioner, the norm of r is measured in float64. Do
            not pass a factor of :func:`simfloat.linalg.cholesky`, but a function that solves with it.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        A `ConjugateGradients` with x, `converged`, `reason`, and the history of residuals.

    Raises:
        ValueError: if the shapes are wrong, if A is not a real matrix, or if the preconditioner is
            triangular and not diagonal.
        TypeError: for an option of SciPy; the message names the option of this function.

    Source: Hestenes and Stiefel, J. Res. NBS 49 (1952); Greenbaum, SIAM J. Matrix Anal. Appl. 18(3) (1997); with a
    preconditioner Golub and Van Loan, Matrix Computations, 4th ed., section 11.5.2.

    Examples:
        >>> result = sf.linalg.cg([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0], format=sf.BF16)
        >>> result.x, result.converged
        (array([0.0908203125, 0.63671875], BF16), True)
    """
    u, a, b = _read_system(A, b, ArithmeticOptions(format, rounding, accumulate, stream))
    tolerance, most = _read_limits(u, len(a), tolerance, max_iterations)
    return _iterate(u, a, b, as_operator(preconditioner, u, len(a), is_symmetric=True), tolerance, most)


def _check_not_a_factor(matrix: NDArray) -> None:
    """Raise ValueError for a triangular matrix that is not diagonal: it is a factor, and not symmetric."""
    below, above = bool(np.tril(matrix, -1).any()), bool(np.triu(matrix, 1).any())
    if below != above:
        outer, inner = ("L.T", "L, r, lower=True") if below else ("U", "U.T, r, lower=True")
        raise ValueError(
            "preconditioner is a triangular matrix, and cg multiplies by a symmetric one near the inverse of A. To "
            f"solve with a {'lower' if below else 'upper'} triangle of Cholesky's factorization, write "
            f"preconditioner=lambda r: sf.linalg.solve_triangular({outer}, sf.linalg.solve_triangular({inner}))."
        )


def _read_system(A: Any, b: Any, options: ArithmeticOptions) -> tuple[ArrayArithmetic, NDArray, NDArray]:
    """Return the arithmetic, the matrix and the right-hand side, which must be one vector."""
    u = arithmetic_of(A, options)
    a = matrix_of(A, u, square=True)
    numbers = right_hand_side(b, u, len(a))
    if numbers.ndim != 1:
        raise ValueError(f"b must be one vector, got shape {numbers.shape}.")
    return u, a, numbers


def _read_limits(u: ArrayArithmetic, n: int, tolerance: float | None, max_iterations: int | None) -> tuple[float, int]:
    tolerance = float(u.format.eps) if tolerance is None else tolerance
    check_tolerance(tolerance)
    most = max(10 * n, 1) if max_iterations is None else max_iterations
    check_count("max_iterations", most)
    return tolerance, most


def as_operator(preconditioner: Any, u: ArrayArithmetic, n: int, is_symmetric: bool = False) -> Operator | None:
    """Return a preconditioner as a function of values in the format; raise ValueError if it is invalid.

    If it must be symmetric, a triangular matrix that is not diagonal is refused.
    """
    if preconditioner is None:
        return None
    if isinstance(preconditioner, LU):
        p, lower, upper = preconditioner
        w = np.tril(numbers_of(lower, u, "lower"), -1) + np.triu(numbers_of(upper, u, "upper"))
        _check_preconditioner(w.shape, (n, n))
        return lambda r: solve_with_factors(u, w, p, r)
    if callable(preconditioner):
        return lambda r: _check_vector(numbers_of(preconditioner(result_array(r, u)), u, "preconditioner(r)"), n)
    matrix = numbers_of(preconditioner, u, "preconditioner")
    _check_preconditioner(matrix.shape, (n,), (n, n))
    if matrix.ndim == 1:
        return lambda r: u.compute("multiply", matrix, r)
    if is_symmetric:
        _check_not_a_factor(matrix)
    return lambda r: u.matmul(matrix, r)


def _check_preconditioner(shape: tuple[int, ...], *shapes: tuple[int, ...]) -> None:
    if shape not in shapes:
        texts = " or ".join(map(str, shapes))
        raise ValueError(f"preconditioner must have the shape {texts}, got {shape}.")


def _check_vector(z: NDArray, n: int) -> NDArray:
    if z.shape != (n,):
        raise ValueError(f"preconditioner(r) must return {n} numbers, got shape {z.shape}.")
    return z


class _Residuals(NamedTuple):
    """The measurement of residuals in float64, relative to the norm of b."""

    a: NDArray
    b: NDArray

    @property
    def norm(self) -> float:
        """The norm of b, or 1 if it is zero."""
        return norm_of(self.b) or 1.0

    def true(self, x: NDArray) -> float:
        """Return the norm of b - A x."""
        return (
            norm_of(np.asarray(self.b, np.float64) - np.asarray(self.a, np.float64) @ x.astype(np.float64)) / self.norm
        )

    def rounding_error(self, x: NDArray, format: Format) -> float:
        """Return 10 n u (|A| |x| + |b|): a residual that rounding errors explain."""
        size = float(np.linalg.norm(np.asarray(self.a, np.float64))) * norm_of(x) + norm_of(self.b)
        return 10 * len(x) * format.unit_roundoff * size / self.norm


def norm_of(x: NDArray) -> float:
    """Return the norm of a vector, measured in float64."""
    return float(np.linalg.norm(np.asarray(x, np.float64)))


def _iterate(
    u: ArrayArithmetic, a: NDArray, b: NDArray, precondition: Operator | None, tolerance: float, most: int
) -> ConjugateGradients:
    x, r, measured = np.zeros_like(b), b, _Residuals(a, b)
    p = z = b if precondition is None else precondition(b)
    rho = u.matmul(r, z).reshape(1)
    first = math.sqrt(rho[0]) if rho[0] > 0 else 0.0
    residuals, true = [1.0], [1.0]

    def end(converged: bool, reason: str) -> ConjugateGradients:
        return ConjugateGradients(result_array(x, u), converged, reason, residuals, true)

    product = "b . b" if precondition is None else "b . M b"
    if not rho[0]:
        why = "b is zero." if not b.any() else f"{product} is zero in {u.format}: scale b by a power of two."
        return end(not b.any(), why)
    for _ in range(most):
        if precondition is not None and not rho[0] > 0:
            return end(False, f"r . M r is {float(rho[0])}, not positive: the preconditioner is not positive definite.")
        q = u.matmul(a, p)
        curvature = u.matmul(p, q).reshape(1)
        if not in_range(u, rho, q, curvature):
            return end(False, f"A product left the range of {u.format}: scale A or b by a power of two.")
        if not curvature[0] and p.astype(np.float64) @ (a.astype(np.float64) @ p.astype(np.float64)) > 0:
            return end(False, f"p . A p is zero in {u.format}, and is not: scale A or b by a power of two.")
        if not curvature[0] > 0:
            why = f"p . A p is {float(curvature[0])}, not positive: A is not positive definite, or not in {u.format}."
            return end(False, why)
        alpha = u.compute("divide", rho, curvature)
        x = u.compute("fma", alpha, p, x)
        r = u.compute("fma", -alpha, q, r)
        if not in_range(u, x):
            return end(False, f"x left the range of {u.format}: scale b by a power of two.")
        z = r if precondition is None else precondition(r)
        before, rho = rho, u.matmul(r, z).reshape(1)
        # Without a preconditioner the recurrence has the norm of r, as the format computed it.
        if precondition is None:
            residuals.append(math.sqrt(rho[0]) / first if rho[0] >= 0 else math.nan)
        else:  # r . z is not the norm of r, and the method computes no other product of r
            residuals.append(norm_of(r) / measured.norm)
        true.append(measured.true(x))
        if not rho[0] and norm_of(r) > tolerance * measured.norm:
            return end(
                False, f"{product.replace('b', 'r')} is zero in {u.format}, and r is not: scale b by a power of two."
            )
        if residuals[-1] <= tolerance:
            return end(True, f"The residual fell to {residuals[-1]:.1e} of b's norm, at most {tolerance:.1e}.")
        p = u.compute("fma", u.compute("divide", rho, before), p, z)
    return end(False, f"After {most} steps the residual is still {residuals[-1]:.1e} of b's norm.")


@names_options_of_scipy
@in_usual_environment
def gmres(
    A: Any,
    b: Any,
    *,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    restart: int | None = None,
    preconditioner: Any = None,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> KrylovSolution:
    """Solve A x = b by GMRES, from x = 0, with modified Gram-Schmidt and Givens rotations.

    Each operation is rounded to the format, and every sum goes through `accumulate`. A cycle computes in this order:

    * beta = sqrt(r . r), and v_0 = r / beta; g_0 = beta.
    * In step k: w = A (M v_k). For j from 0 to k: h_j = v_j . w, then w = w - h_j v_j with one rounding for each
      element. h_(k+1) = sqrt(w . w).
    * The rotations (c, s) of earlier steps change neighbours: (h_j, h_(j+1)) become c h_j + s h_(j+1) and
      c h_(j+1) - s h_j, each a rounded product with the second element and an fma.
    * rho = sqrt(h_k h_k + h_(k+1) h_(k+1)), with the second square rounded first; c = h_k / rho, s = h_(k+1) / rho;
      h_k becomes rho. Then g_(k+1) = -s g_k, and g_k becomes c g_k. v_(k+1) = w / h_(k+1).
    * After the last step: y solves the triangular system of the h with g, as :func:`simfloat.linalg.solve_triangular`
      does. t is the sum of y_j v_j from zero with an fma for each element, in ascending order of j. x = x + M t.

    The next cycle starts from r = b - A x, one partial sum for each element that starts from b_i.

    The iteration converges when two conditions hold. The estimate |g_(k+1)| of the norm of the residual is at most
    `tolerance` times the norm of b. The norm of b - A x, measured in float64, is at most `tolerance` times the norm of
    b, or can be explained by rounding errors: it is at most 10 n u times the sum of |A| |x| and |b|, where |A| is the
    Frobenius norm. Otherwise another cycle begins. The iteration ends without convergence after `max_iterations` steps,
    if a value leaves the range of the format, or if rho is 0: A is then singular.

    Parameters:
        A: a real matrix (n, n).
        b: a vector (n,).
        tolerance: the bound of the residual relative to the norm of b; by default `eps` of the format.
        max_iterations: the largest number of steps in all cycles; by default 10 n.
        restart: the number of steps of a cycle; by default n.
        preconditioner: M, near the inverse of A, as in :func:`simfloat.linalg.cg`; it may be any matrix. It is applied
            from the right, so the residuals belong to A x = b.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        A `KrylovSolution` with x, `converged`, `reason`, and the history of residuals.

    Raises:
        ValueError: if the shapes are wrong, or A is not a real matrix.
        TypeError: for an option of SciPy; the message names the option of this function.

    Source: Saad and Schultz, SIAM J. Sci. Stat. Comput. 7 (1986); Saad, Iterative Methods for Sparse Linear Systems,
    2nd ed., algorithms 6.9 and 9.5.

    Examples:
        >>> result = sf.linalg.gmres([[4.0, 1.0], [-1.0, 3.0]], [1.0, 2.0], format=sf.FP16)
        >>> result.x, result.converged
        (array([0.0770263671875, 0.6923828125], FP16), True)
    """
    u, a, b = _read_system(A, b, ArithmeticOptions(format, rounding, accumulate, stream))
    tolerance, most = _read_limits(u, len(a), tolerance, max_iterations)
    steps = max(len(a), 1) if restart is None else restart
    check_count("restart", steps)
    precondition = as_operator(preconditioner, u, len(a)) or (lambda v: v)
    return _cycles(u, a, b, precondition, tolerance, most, steps)


def _cycles(
    u: ArrayArithmetic, a: NDArray, b: NDArray, precondition: Operator, tolerance: float, most: int, steps: int
) -> KrylovSolution:
    x, r, measured = np.zeros_like(b), b, _Residuals(a, b)
    # The estimates of later cycles are relative to the first residual, as those of the first cycle are.
    residuals, true, left, first = [1.0], [1.0], most, 0.0

    def end(converged: bool, reason: str) -> KrylovSolution:
        return KrylovSolution(result_array(x, u), converged, reason, residuals, true)

    while True:
        if not r.any():
            return end(True, "The residual is zero." if b.any() else "b is zero.")
        beta = rounded_norm(u, r)
        first = first or float(beta[0])
        if not in_range(u, beta):
            return end(False, f"r . r left the range of {u.format}: scale b by a power of two.")
        if not beta[0]:
            return end(False, f"r . r is zero in {u.format}, and r is not: scale b by a power of two.")
        cycle = minimize_residual(
            u, lambda v: u.matmul(a, precondition(v)), r, beta, tolerance * first, min(steps, left)
        )
        after = u.compute("add", x, precondition(cycle.combination))
        if not in_range(u, after):
            return end(False, f"x left the range of {u.format}: scale b by a power of two.")
        x, left = after, left - len(cycle.sizes)
        residuals += [size / first for size in cycle.sizes]
        true.append(measured.true(x))
        if residuals[-1] <= tolerance and true[-1] <= max(tolerance, measured.rounding_error(x, u.format)):
            return end(True, f"The residual fell to {residuals[-1]:.1e} of b's norm, at most {tolerance:.1e}.")
        if cycle.fault:
            return end(False, cycle.fault)
        if left <= 0:
            size = max(residuals[-1], true[-1])
            return end(False, f"After {most} steps the residual is still {size:.1e} of b's norm.")
        r = InnerProducts.of(u, b).final(b[:, np.newaxis], a, x[:, np.newaxis])[:, 0]


def rounded_norm(u: ArrayArithmetic, x: NDArray) -> NDArray:
    """Return sqrt(x . x) as an array of one element."""
    return u.compute("sqrt", u.matmul(x, x).reshape(1))


class Cycle(NamedTuple):
    """A cycle of GMRES: the combination of its vectors, the estimated residuals, and a fault that ended it."""

    combination: NDArray
    sizes: list[float]
    fault: str


def minimize_residual(
    u: ArrayArithmetic, apply: Operator, r: NDArray, beta: NDArray, limit: float, steps: int
) -> Cycle:
    """Carry out the steps of a cycle of :func:`gmres`, until the estimated residual is at most `limit`."""
    basis, g, fault = [u.compute("divide", r, beta)], [beta], ""
    columns: list[list[NDArray]] = []
    rotations, sizes = list[tuple[NDArray, NDArray]](), list[float]()
    for k in range(steps):
        # Modified Gram-Schmidt, as in Saad's algorithm 6.9: each projection is of the vector that is left.
        column, w = [], (product := apply(basis[k]))
        for v in basis:
            column.append(u.matmul(v, w).reshape(1))
            w = u.compute("fma", -column[-1], v, w)
        column.append(norm := rounded_norm(u, w))
        for j, (c, s) in enumerate(rotations):
            column[j : j + 2] = _rotate(u, c, s, column[j], column[j + 1])
        rho = u.compute("sqrt", u.compute("fma", column[k], column[k], u.compute("multiply", norm, norm)))
        if not in_range(u, w, rho, *column):
            fault = f"A product left the range of {u.format}: scale A or b by a power of two."
            break
        if not rho[0]:
            fault = f"A is singular, or became so in {u.format}: use a wider format."
            if product.any() and norm_of(product) ** 2 < u.format.smallest_subnormal:
                fault = f"The norm of A v is zero in {u.format}, and A v is not: scale A by a power of two."
            break
        c, s = u.compute("divide", column[k], rho), u.compute("divide", norm, rho)
        g[k:] = [u.compute("multiply", c, g[k]), u.compute("multiply", -s, g[k])]
        rotations.append((c, s))
        columns.append([*column[:k], rho])
        sizes.append(abs(float(g[-1][0])))
        if sizes[-1] <= limit or not norm[0]:
            break
        basis.append(u.compute("divide", w, norm))
    # After a fault, the steps before it still have a solution.
    triangle, t = np.zeros((len(columns), len(columns)), u.dtype), np.zeros_like(r)
    for k, column in enumerate(columns):
        triangle[: k + 1, k] = np.concatenate(column)
    if columns:
        for share, v in zip(substitute(u, triangle, np.concatenate(g[:-1]), lower=False), basis, strict=False):
            t = u.compute("fma", share.reshape(1), v, t)
    return Cycle(t, sizes, fault)


def _rotate(u: ArrayArithmetic, c: NDArray, s: NDArray, x: NDArray, y: NDArray) -> list[NDArray]:
    """Return c x + s y and c y - s x, each a rounded product with y and an fma."""
    first = u.compute("fma", c, x, u.compute("multiply", s, y))
    return [first, u.compute("fma", -s, x, u.compute("multiply", c, y))]
