"""Solvers of linear systems: elimination in one format, iterative refinement in three, and conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.arithmetic import ArrayArithmetic, with_options
from simfloat.common import check_count
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, FP64, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.factorizations import eliminate
from simfloat.linalg.matrices import (
    ArithmeticOptions,
    arithmetic_of,
    check_tolerance,
    in_range,
    matrix_of,
    result_array,
    right_hand_side,
    scaling_up,
    solution_overflow_error,
    substitute,
)
from simfloat.sums import exact, matmul
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.sequential import as_accumulator

#: Number of successive corrections without a decrease after which refinement ends.
PATIENCE = 5

#: Formats to try as `factor` and `work` if refinement has not converged.
WIDER = (FP32, FP64)


class Refinement(NamedTuple):
    """The result of iterative refinement, and its history.

    `x` is the solution; `converged` and `reason` say if and why refinement ended there. The other fields have one
    value for each x, including the first:

    * `backward_errors`: the norm of the computed residual b - A x, relative to norm(A) norm(x) + norm(b)
    * `forward_errors`: the norm of x minus the solution, relative to the norm of the solution
    * `corrections`: the norm of the last correction, relative to the norm of x before it
    * `residuals`: the norm of the exact residual b - A x, relative to the norm of b

    All norms are maximum norms (for A: of the row sums), measured in float64. A and b are those in the working
    format. The solution has float64 accuracy; if it cannot be computed, forward errors are NaN.
    """

    x: Array
    converged: bool
    reason: str
    backward_errors: list[float]
    forward_errors: list[float]
    corrections: list[float]
    residuals: list[float]


@overload
def solve(
    A: Any,
    b: Any,
    *,
    format: FormatLike | None = ...,
    rounding: RoundingLike | None = ...,
    accumulate: Accumulator | FormatLike | None = ...,
    stream: Stream | None = ...,
) -> Array: ...


@overload
def solve(
    A: Any,
    b: Any,
    *,
    factor: FormatLike,
    work: FormatLike | None = ...,
    residual: FormatLike | Accumulator | None = ...,
    tolerance: float | None = ...,
    max_iterations: int = ...,
    rounding: RoundingLike | None = ...,
    accumulate: Accumulator | FormatLike | None = ...,
    stream: Stream | None = ...,
) -> Refinement: ...


@in_usual_environment
def solve(
    A: Any,
    b: Any,
    *,
    factor: FormatLike | None = None,
    work: FormatLike | None = None,
    residual: FormatLike | Accumulator | None = None,
    tolerance: float | None = None,
    max_iterations: int = 50,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array | Refinement:
    """Solve A x = b, by elimination in one format or by iterative refinement in three.

    Without `factor`, b is rounded to the format of A. The order of operations is that of :func:`simfloat.linalg.lu`
    with pivoting, followed by :func:`simfloat.linalg.solve_triangular` twice.

    With `factor`, this is iterative refinement. A and b are rounded to `work`; A is then rounded to `factor` and
    factored in that format. From x = 0, every step

    * computes r = b - A x, one partial sum for each element in the order `residual`, rounded to `work`;
    * scales r by a power of two so that its largest element is in [1, 2), rounds it to `factor`, solves with the
      factors in that format, and scales the correction back, rounded to `work`;
    * adds the correction to x in `work`.

    Refinement ends in one of these cases:

    * r is zero;
    * with `tolerance`: the exact residual is at most `tolerance` times the norm of b;
    * without `tolerance`: a correction, from the second one, is at most the unit roundoff of `work` relative to x;
    * five successive corrections, each relative to its x, are not smaller than the smallest one before (these five
      are undone);
    * a value leaves the range of a format (that correction is undone);
    * after `max_iterations` corrections.

    Corrections shrink while the condition number times the unit roundoff of `factor` is below 1. If residuals have
    twice the digits of `work`, x itself (not only its residual) reaches the accuracy of `work`.

    If refinement has not converged and no observer is attached, other options are tried in this order: ten times as
    many iterations, if they ran out; b scaled by a power of two, if x or b is small; a more precise `factor`; a more
    precise `work`. `reason` names the first that converges.

    Parameters:
        A: a real matrix (n, n).
        b: a vector (n,) or a matrix (n, columns); for refinement, one vector.
        factor: the format of the factors; it selects refinement.
        work: the format of x; by default the format of A.
        residual: the accumulator of residuals, or a format at least as wide as `work`; by default `work`.
        tolerance: bound of the exact residual relative to the norm of b, for the end and for `converged`; by default,
            `converged` allows sqrt(n) times the unit roundoff of `work`, relative to norm(A) norm(x) + norm(b).
        max_iterations: the largest number of corrections.
        format: the format to compute in without `factor`; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A. In refinement, these three options
            apply to the factors, their triangular systems, and values rounded to `factor`.

    Returns:
        The solution, an `Array` with the shape of b; with `factor` a `Refinement`.

    Raises:
        ValueError: if A has a pivot of exactly zero. A small pivot is not an error, as in LAPACK: if A is singular
            except for rounding errors, x is large and refinement does not converge. Use `lstsq` to check the rank.
        ValueError: if A, b, the factors or the first x leave the range of a format; the message advises a scale.
        ValueError: if `work`, `residual` or `tolerance` is given without `factor`, or `residual` is narrower than
            `work`.

    Source: Carson and Higham, SIAM J. Sci. Comput. 40(2), 2018.

    Examples:
        >>> A, b = np.random.default_rng(0).standard_normal((2, 50, 50))
        >>> result = sf.linalg.solve(A, b[0], factor=sf.FP16, work=sf.FP32, residual=sf.FP64)
        >>> result.converged, result.forward_errors[-1] < sf.FP32.eps
        (True, True)
    """
    options = ArithmeticOptions(format, rounding, accumulate, stream)
    if factor is None:
        if work is not None or residual is not None or tolerance is not None:
            raise ValueError(
                "work=, residual= and tolerance= are options of refinement, which needs factor=, the format of the "
                "factors."
            )
        u = arithmetic_of(A, options)
        a = matrix_of(A, u, square=True)
        b = right_hand_side(b, u, len(a))
        x = _by_factors(u, *eliminate(u, a), b)
        if not in_range(u, x):
            raise solution_overflow_error(u.format)
        return result_array(x, u)
    if format is not None:
        raise ValueError("Refinement does not accept format=: use factor=, work= and residual=.")
    if work is None and not isinstance(A, Array):
        raise ValueError("Refinement of a matrix without a format needs work=, the format of the solution.")
    check_count("max_iterations", max_iterations)
    if tolerance is not None:
        check_tolerance(tolerance)
    options = ArithmeticOptions(factor, rounding, accumulate, stream)
    run = _RefinementCall(A, b, options, A.format if work is None else work, residual, tolerance, max_iterations)
    refinement = run.refine()
    if refinement.converged or arithmetic_of(A, options).current_observer is not None:
        return refinement
    return refinement._replace(reason=f"{refinement.reason} {run.advice(refinement)}")


class _RefinementCall(NamedTuple):
    """The arguments of a refinement."""

    a: Any
    b: Any
    factors: ArithmeticOptions
    work: FormatLike
    residual: FormatLike | Accumulator | None
    tolerance: float | None
    most: int

    def refine(self) -> Refinement:
        in_factors = arithmetic_of(self.a, self.factors)
        in_work = with_options(in_factors, format=self.work, rounding=nearest_even)
        return _System(self.a, self.b, in_factors, in_work, self.residual, self.tolerance).refine(self.most)

    def advice(self, refinement: Refinement) -> str:
        """Try other options, and name the first that converges."""
        tried = []
        for text, run in self._other_options(refinement):
            tried.append(text)
            if run._converges():
                return f"With {text} it converges."
        return f"It converges with none of {'; '.join(tried)}." if tried else ""

    def _other_options(self, refinement: Refinement) -> Iterator[tuple[str, _RefinementCall]]:
        """Yield options that may converge, each with its text."""
        work, factor = refinement.x.format, arithmetic_of(self.a, self.factors).format
        if len(refinement.corrections) == self.most:
            yield f"max_iterations={10 * self.most}", self._replace(most=10 * self.most)
        largest = max(_largest(refinement.x.numbers), _largest(np.asarray(self.b, np.float64)))
        if largest < work.smallest_normal / work.eps:
            power = -math.frexp(largest or 1.0)[1]
            yield f"b scaled by 2**{power}", self._replace(b=np.ldexp(np.asarray(self.b), power))
        factors = [wider for wider in WIDER if wider.precision > factor.precision]
        for wider in factors:
            yield f"factor={wider}", self._replace(factors=self.factors._replace(format=wider))
        for wider in (wider for wider in WIDER if wider.precision > work.precision):
            in_wider = self._replace(work=wider, residual=exact)
            yield f"work={wider}, residual=exact", in_wider
            for format in factors:
                text = f"factor={format}, work={wider}, residual=exact"
                yield text, in_wider._replace(factors=self.factors._replace(format=format))

    def _converges(self) -> bool:
        """True if refinement converges; random bits come from a copy of the stream."""
        factors = self.factors._replace(stream=deepcopy(self.factors.stream))
        a = self.a.astype(self.a.format, stream=deepcopy(self.a.stream)) if isinstance(self.a, Array) else self.a
        try:
            return self._replace(a=a, factors=factors).refine().converged
        except ValueError:
            return False


def _by_factors(u: ArrayArithmetic, w: NDArray, p: NDArray, b: NDArray) -> NDArray:
    """Solve with both factors."""
    return substitute(u, w, substitute(u, w, b[p], True, unit_diagonal=True), False)


class _System:
    """A linear system in its working format, and its factors."""

    def __init__(
        self,
        a: Any,
        b: Any,
        factors: ArrayArithmetic,
        work: ArrayArithmetic,
        residual: FormatLike | Accumulator | None,
        tolerance: float | None,
    ) -> None:
        self.u = ArrayArithmetic(work.format, work.rounding, None, None, observer=work.observer)
        self.tolerance = tolerance
        self.factors = factors
        self.order = as_accumulator(self.u.format if residual is None else residual)
        if self.order.result is not None and self.order.result.precision < self.u.format.precision:
            raise ValueError(
                f"residual must be at least as wide as the working format {self.u.format}, got {self.order}."
            )
        self.a = matrix_of(a, self.u, square=True)
        self.b = right_hand_side(b, self.u, len(self.a))
        if self.b.ndim != 1:
            raise ValueError(f"For refinement, b must be one vector, got shape {self.b.shape}.")
        self.lu = eliminate(factors, matrix_of(self.a, factors))
        self.norm = float(np.abs(self.a).sum(1, np.float64).max(initial=0.0))
        self.solution = _solution(self.a, self.b)

    def refine(self, most: int) -> Refinement:
        """Add corrections while they shrink."""
        x, r = np.zeros_like(self.b), self.b
        xs: list[NDArray] = []
        refinement = Refinement(result_array(self.b, self.u), False, "", [], [], [], [])
        worse, ended = 0, f"After {most} corrections, the last one {{last}} of x,"
        for _ in range(most):
            d = self.correction(r)
            if d is None:
                ended = f"After a correction of {{last}} of x the next one left the range of {self.factors.format}:"
                break
            size = _largest(d) / (_largest(x) or _largest(d) or 1.0)
            x = self.u.compute("add", x, d)
            if not xs and not in_range(self.u, x):
                raise solution_overflow_error(self.u.format)
            r = self.residual(x) if in_range(self.u, x) else np.full_like(x, np.nan)
            if not np.isfinite(r).all():
                ended = f"After a correction of {{last}} of x the next x left the range of {self.u.format}:"
                break
            xs.append(x)
            worse = worse + 1 if refinement.corrections and not size < min(refinement.corrections) else 0
            self.append(refinement, x, r, size)
            if not r.any():
                ended = f"The residual is zero, summed by {self.order}:"
                break
            if self.tolerance is not None and self.is_within_tolerance(refinement, x):
                ended = "The tolerance is met after a correction of {last} of x:"
                break
            if self.tolerance is None and refinement.corrections[1:] and size <= self.u.format.unit_roundoff:
                ended = f"The last correction, {{last}} of x, is below the unit roundoff of {self.u.format}:"
                break
            if worse == PATIENCE:
                xs = xs[:-PATIENCE]
                for history in refinement[3:]:
                    del history[-PATIENCE:]
                ended = "Corrections no longer shrink at {last} of x:"
                break
        if not xs:
            xs.append(np.zeros_like(self.b))
            self.append(refinement, xs[0], self.b, 0.0)
        x = xs[-1]
        converged = self.is_within_tolerance(refinement, x)
        reason = (
            f"{ended.format(last=f'{refinement.corrections[-1]:.1e}')} "
            f"{self.describe_residual(refinement, x, converged)}"
        )
        return refinement._replace(x=result_array(x, self.u), converged=converged, reason=reason)

    def append(self, refinement: Refinement, x: NDArray, r: NDArray, size: float) -> None:
        """Add an x to the history."""
        refinement.corrections.append(size)
        refinement.backward_errors.append(_largest(r) / (self.scale(x) or 1.0))
        refinement.forward_errors.append(_largest(x - self.solution) / (_largest(self.solution) or 1.0))
        refinement.residuals.append(_largest(self.exact_residual(x)) / (_largest(self.b) or 1.0))

    def scale(self, x: NDArray) -> float:
        """Return norm(A) norm(x) + norm(b)."""
        return self.norm * _largest(x) + _largest(self.b)

    def residual_limit(self, x: NDArray) -> float:
        """Return the largest residual within the tolerance, relative to the norm of b."""
        if self.tolerance is not None:
            return float(self.tolerance)
        return math.sqrt(len(self.b)) * self.u.format.unit_roundoff * self.scale(x) / (_largest(self.b) or 1.0)

    def is_within_tolerance(self, refinement: Refinement, x: NDArray) -> bool:
        """True if the residual of the last x is within the tolerance."""
        return refinement.residuals[-1] <= self.residual_limit(x)

    def describe_residual(self, refinement: Refinement, x: NDArray, converged: bool) -> str:
        """Return a sentence that compares the residual with the tolerance."""
        side = "within" if converged else "above"
        text = (
            f"the residual is {refinement.residuals[-1]:.1e} of the norm of b, {side} the tolerance of "
            f"{self.residual_limit(x):.1e}."
        )
        format = self.u.format
        if converged or min(_largest(x), self.scale(x)) >= format.smallest_normal:
            return text
        return (
            f"{text} Elements of x or its residual below the smallest normal number of {format} lose digits or vanish."
        )

    def exact_residual(self, x: NDArray) -> NDArray[np.floating]:
        """Return b - A x, rounded once to float64."""
        wide, initial = self.a.astype(np.float64), self.b.astype(np.float64)
        return matmul(-wide, x.astype(np.float64), accumulate=exact, output=FP64, initial=initial)

    def residual(self, x: NDArray) -> NDArray:
        """Return b - A x, rounded to the working format."""
        order, format = self.order, self.u.format
        sums = matmul(-self.a, x, accumulate=order, output=format, initial=self.b, observer=self.u.current_observer)
        return sums.astype(self.u.dtype)

    def correction(self, r: NDArray) -> NDArray | None:
        """Solve A d = r with the factors; return None if a value leaves their range.

        Raises ValueError if the matrix is so small that this would happen even with a condition number of 1.
        """
        _, exponent = math.frexp(_largest(r))
        scaled = self.factors.round(np.ldexp(np.asarray(r, np.float64), 1 - exponent))
        d, format = _by_factors(self.factors, *self.lu, scaled), self.factors.format
        if in_range(self.factors, d):
            return self.u.round(np.ldexp(np.asarray(d, np.float64), exponent - 1))
        if self.norm * format.max < 1:
            raise ValueError(
                f"A correction left the range of {format} (largest number {format.max}) because the matrix is small: "
                f"{scaling_up(self.a, format)}."
            )
        return None


def _largest(x: NDArray) -> float:
    return float(np.abs(x).max(initial=0.0))


def _solution(a: NDArray, b: NDArray) -> NDArray[np.float64]:
    """Return the solution with float64 accuracy, by refinement with exact residuals; NaN if that does not converge."""
    wide = a.astype(np.float64)
    unknown = np.full(len(b), math.nan)
    try:
        x = np.linalg.solve(wide, b.astype(np.float64))
        before = math.inf
        for _ in range(10):
            d = np.linalg.solve(wide, matmul(-wide, x, accumulate=exact, output=FP64, initial=b))
            if not _largest(d) < before:
                break
            x, before = x + d, _largest(d)
    except np.linalg.LinAlgError:
        return unknown
    return np.asarray(x if before <= 1e-12 * _largest(x) else unknown)


class ConjugateGradients(NamedTuple):
    """The result of conjugate gradients.

    `converged` and `reason` say if and why the iteration ended. `residuals` are the norms of the residuals r of the
    recurrence, the first one for x = 0; `true_residuals` are the norms of b - A x, measured in float64. Both are
    relative to the norm of b.
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
    """Solve A x = b by conjugate gradients, from x = 0.

    With r = p = b and rho = r . r, every step computes in this order: q = A p; alpha = rho / (p . q); x = x + alpha
    p; r = r - alpha q; rho' = r . r; beta = rho' / rho; p = r + beta p. Each operation is rounded to the format, and
    every sum goes through `accumulate`. The three vector updates are fma operations: one rounding for each element.

    The iteration converges when the norm of the residual r is at most `tolerance` times the norm of b. It ends
    without convergence if p . q is not positive, if a value leaves the range of the format (r . r may underflow to 0
    although r is not 0) or reaches the largest number of a format or mode that saturates, and after
    `max_iterations` steps. r may continue to shrink when b - A x no longer does, so the result also has
    `true_residuals`, the norms of b - A x.

    Parameters:
        A: a real symmetric positive definite matrix (n, n).
        b: a vector (n,).
        tolerance: the bound of the residual relative to the norm of b; by default `eps` of the format.
        max_iterations: the largest number of steps; by default 10 n.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        A `ConjugateGradients` with x, `converged`, `reason`, and the history of residuals.

    Raises:
        ValueError: if the shapes are wrong, or A is not a real matrix.

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
