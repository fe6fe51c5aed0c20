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

#: Corrections in a row, none of them smaller than those before, after which refinement ends.
PATIENCE = 5

#: Formats that are tried as `factor` and `work` where refinement has not converged.
WIDER = (FP32, FP64)


class Refinement(NamedTuple):
    """The result of iterative refinement, and its history.

    For every x, the first one too: `backward_errors`, the norm of the computed residual b - A x, relative to
    norm(A) norm(x) + norm(b); `forward_errors`, the norm of x less the solution, relative to the norm of the solution;
    `corrections`, the norm of the vector that was added to reach x, relative to the norm of x before; `residuals`, the
    norm of the exact residual b - A x, relative to the norm of b. All norms are largest elements (of A, sums of rows),
    measured in float64. A and b are those in the working format; the solution has the accuracy of float64, and forward
    errors are NaN if float64 does not find it.
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
    """Solve A x = b for A (n, n) and b (n,) or (n, columns), by elimination in the format of A or by refinement.

    b is rounded to that format first, from whatever it has; refinement, below, may keep more of it.

    Orders and roundings are those of :func:`simfloat.linalg.lu` with pivoting, then of
    :func:`simfloat.linalg.solve_triangular` twice.

    With `factor` it is iterative refinement in three precisions, for one vector b, and a `Refinement` is returned: x,
    whether and why it converged, and the history of errors. A and b are rounded to `work` (the format of A, if that is
    an array), which x is kept in, and A once more to `factor`, in which it is factored. From x = 0 every step

    * computes r = b - A x, one running sum for each element in the order `residual`: an accumulator, or a format for
      the sequential sum in it (`work`, where none is given); it is rounded to `work`;
    * scales r by the power of two that brings its largest element to [1, 2), rounds it to `factor`, solves with the
      factors in that format, and scales the correction back, rounded to `work`;
    * adds the correction to x in `work`.

    It ends when r is zero; when the exact residual is at most `tolerance` times the norm of b; without a `tolerance`,
    when a correction, from the second one, is at most the unit roundoff of `work` relative to x; when five corrections
    in a row, each relative to its x, are not smaller than the smallest before them (these five are undone); when a
    number leaves the range of a format (that correction is undone); and after `max_iterations` corrections.

    `converged` says if the exact residual of x is within the tolerance. Without a `tolerance` that is sqrt(n) units
    roundoff of `work`, relative to norm(A) norm(x) + norm(b): the residual of a solution that is rounded to `work`. If
    it has not converged, other options are tried: ten times as many iterations, if they ran out; b scaled by a power of
    two, if x or b is small; a more precise `factor`; a more precise `work`. `reason` names the first of them that
    converges (none is tried while an observer counts). `rounding`, `accumulate` and `stream` are those of the
    factors, of numbers that are rounded to their format, and of their triangular systems; all else is rounded to
    nearest even. Corrections shrink while the condition number times the unit roundoff of `factor` is below 1;
    residuals of twice the digits of `work` then bring x itself, and not only its residual, to the accuracy of `work`.

    Raises ValueError for a singular matrix, which has a pivot of exactly zero; if A, b, the factors or the first x
    leave the range of a format (FP16: the message says by which power of two to scale); for `work`, `residual` or
    `tolerance` without `factor`; and for a narrower `residual` than `work`. A small pivot is no error, as in LAPACK: if
    a matrix is singular but for its roundings, x is large, and refinement says that it does not converge. `lstsq` is
    the function that looks for lost rank.

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
                "work=, residual= and tolerance= belong to refinement, which needs factor=, the format of the factors."
            )
        u = arithmetic_of(A, options)
        a = matrix_of(A, u, square=True)
        b = right_hand_side(b, u, len(a))
        x = _by_factors(u, *eliminate(u, a), b)
        if not in_range(u, x):
            raise solution_overflow_error(u.format)
        return result_array(x, u)
    if format is not None:
        raise ValueError("Refinement takes factor=, work= and residual= in place of format=.")
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
    """What refinement is called with."""

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
        """Try other options, and name the first that converge."""
        tried = []
        for text, run in self._other_options(refinement):
            tried.append(text)
            if run._converges():
                return f"With {text} it converges."
        return f"It converges with none of {'; '.join(tried)}." if tried else ""

    def _other_options(self, refinement: Refinement) -> Iterator[tuple[str, _RefinementCall]]:
        """Options that may converge, each with its words."""
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
        """True if it converges. Random bits are drawn from a copy of the stream."""
        factors = self.factors._replace(stream=deepcopy(self.factors.stream))
        a = self.a.astype(self.a.format, stream=deepcopy(self.a.stream)) if isinstance(self.a, Array) else self.a
        try:
            return self._replace(a=a, factors=factors).refine().converged
        except ValueError:
            return False


def _by_factors(u: ArrayArithmetic, w: NDArray, p: NDArray, b: NDArray) -> NDArray:
    """The solution by both factors."""
    return substitute(u, w, substitute(u, w, b[p], True, unit_diagonal=True), False)


class _System:
    """A system in its working format, and its factors."""

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
                f"Residuals are summed in {self.u.format}, the working format, or in a wider one, got {self.order}."
            )
        self.a = matrix_of(a, self.u, square=True)
        self.b = right_hand_side(b, self.u, len(self.a))
        if self.b.ndim != 1:
            raise ValueError(f"Refinement takes one vector b, got shape {self.b.shape}.")
        self.lu = eliminate(factors, matrix_of(self.a, factors))
        self.norm = float(np.abs(self.a).sum(1, np.float64).max(initial=0.0))
        self.solution = _solution(self.a, self.b)

    def refine(self, most: int) -> Refinement:
        """Corrections as long as they shrink."""
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
                ended = "Corrections shrink no more at {last} of x:"
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
        """norm(A) norm(x) + norm(b)."""
        return self.norm * _largest(x) + _largest(self.b)

    def residual_limit(self, x: NDArray) -> float:
        """The largest residual within the tolerance, relative to the norm of b."""
        if self.tolerance is not None:
            return float(self.tolerance)
        return math.sqrt(len(self.b)) * self.u.format.unit_roundoff * self.scale(x) / (_largest(self.b) or 1.0)

    def is_within_tolerance(self, refinement: Refinement, x: NDArray) -> bool:
        """Whether the residual of the last x is within the tolerance."""
        return refinement.residuals[-1] <= self.residual_limit(x)

    def describe_residual(self, refinement: Refinement, x: NDArray, converged: bool) -> str:
        """Compare the residual with the tolerance in words."""
        side = "within" if converged else "above"
        text = (
            f"the residual is {refinement.residuals[-1]:.1e} of the norm of b, {side} the tolerance of "
            f"{self.residual_limit(x):.1e}."
        )
        format = self.u.format
        if converged or min(_largest(x), self.scale(x)) >= format.smallest_normal:
            return text
        return f"{text} Numbers below {format}'s smallest normal number lose digits or vanish, in x or its residual."

    def exact_residual(self, x: NDArray) -> NDArray[np.floating]:
        """b - A x, rounded once to float64."""
        wide, initial = self.a.astype(np.float64), self.b.astype(np.float64)
        return matmul(-wide, x.astype(np.float64), accumulate=exact, output=FP64, initial=initial)

    def residual(self, x: NDArray) -> NDArray:
        """b - A x, rounded to the working format."""
        order, format = self.order, self.u.format
        sums = matmul(-self.a, x, accumulate=order, output=format, initial=self.b, observer=self.u.current_observer)
        return sums.astype(self.u.dtype)

    def correction(self, r: NDArray) -> NDArray | None:
        """The solution of A d = r by the factors; None if it leaves their range.

        Raises ValueError if the matrix is so small that even one with a condition number of 1 would leave it.
        """
        _, exponent = math.frexp(_largest(r))
        scaled = self.factors.round(np.ldexp(np.asarray(r, np.float64), 1 - exponent))
        d, format = _by_factors(self.factors, *self.lu, scaled), self.factors.format
        if in_range(self.factors, d):
            return self.u.round(np.ldexp(np.asarray(d, np.float64), exponent - 1))
        if self.norm * format.max < 1:
            raise ValueError(
                f"A correction left the range of {format}, whose largest is {format.max}, as the matrix is small: "
                f"{scaling_up(self.a, format)}."
            )
        return None


def _largest(x: NDArray) -> float:
    return float(np.abs(x).max(initial=0.0))


def _solution(a: NDArray, b: NDArray) -> NDArray[np.float64]:
    """The solution to float64's accuracy, by refinement with exact residuals; NaN where that does not converge."""
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
