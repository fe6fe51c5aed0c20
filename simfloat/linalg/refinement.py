"""Linear systems: elimination in one format, and iterative refinement in three."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate import exact, matmul
from simfloat.accumulate._sequential import as_accumulator
from simfloat.accumulate.accumulator import Accumulator
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.arrays.array_arithmetic import ArrayArithmetic, with_options
from simfloat.checks import check_count
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.lu_factorization import factored
from simfloat.linalg.substitution import substituted
from simfloat.linalg.systems import (
    ArithmeticOptions,
    arithmetic_of,
    in_range,
    matrix_of,
    result,
    right_hand_side,
    scaling_up,
    solution_overflowed,
)


class Refinement(NamedTuple):
    """What iterative refinement came to.

    For every x, the first one too: `backward_errors`, the norm of b - A x, as it was computed, relative to
    norm(A) norm(x) + norm(b); `forward_errors`, the norm of x less the solution, relative to the solution's;
    `corrections`, the norm of what was added to reach it, relative to the norm of x. All norms are largest elements
    (of A, rows' sums), measured in float64; the solution is that of A and b in the working format, to float64's
    accuracy, and forward errors are NaN where float64 does not find it.
    """

    x: Array
    converged: bool
    reason: str
    backward_errors: list[float]
    forward_errors: list[float]
    corrections: list[float]


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
    max_iterations: int = 50,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array | Refinement:
    """The solution x of A x = b, for A (n, n) and b (n,) or (n, columns): by elimination in the format of A.

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

    It ends when r is zero, when a correction is at most the unit roundoff of `work` relative to x, from the third on
    when it is more than half of the one before, each relative to its x (it is not added then), and after
    `max_iterations`. It has converged in the first two cases, and in the third where the backward error is at most
    sqrt(n) units roundoff of `work`; in none if that error is larger because what is below the smallest normal number
    of `work` vanishes. `rounding`, `accumulate` and `stream` are those of the factors, of what is rounded to their
    format, and of their triangular systems; the rest is rounded to nearest even. Corrections shrink while the condition
    number times the unit roundoff of `factor` is well below 1; residuals of twice the digits of `work` then bring x
    itself, and not only its residual, to the accuracy of `work`.

    Raises ValueError for a singular matrix, which has a pivot of exactly zero, where numbers leave a format's range
    (FP16: the message says by which power of two to scale), for `work` or `residual` without `factor`, and for a
    narrower `residual` than `work`. A small pivot is no error, as in LAPACK: where a matrix is singular but for its
    roundings, x is large, and refinement says that it does not converge. `lstsq` is the one that looks for lost rank.

    Source: Carson and Higham, SIAM J. Sci. Comput. 40(2), 2018.

    Examples:
        >>> A, b = np.random.default_rng(0).standard_normal((2, 50, 50))
        >>> found = sf.linalg.solve(A, b[0], factor=sf.FP16, work=sf.FP32, residual=sf.FP64)
        >>> found.converged, found.forward_errors[-1] < sf.FP32.eps
        (True, True)
    """
    options = ArithmeticOptions(format, rounding, accumulate, stream)
    if factor is None:
        if work is not None or residual is not None:
            raise ValueError(
                "work= and residual= belong to refinement, which needs factor=, the format of the factors."
            )
        u = arithmetic_of(A, options)
        a = matrix_of(A, u, square=True)
        b = right_hand_side(b, u, len(a))
        x = _by_factors(u, *factored(u, a), b)
        if not in_range(u, x):
            raise solution_overflowed(u.format)
        return result(x, u)
    if format is not None:
        raise ValueError("Refinement takes factor=, work= and residual= in place of format=.")
    if work is None and not isinstance(A, Array):
        raise ValueError("Refinement of a matrix without a format needs work=, the format of the solution.")
    check_count("max_iterations", max_iterations)
    in_factors = arithmetic_of(A, ArithmeticOptions(factor, rounding, accumulate, stream))
    in_work = with_options(in_factors, format=A.format if work is None else work, rounding="nearest_even")
    return _System(A, b, in_factors, in_work, residual).refined(max_iterations)


def _by_factors(u: ArrayArithmetic, w: NDArray, p: NDArray, b: NDArray) -> NDArray:
    """The solution by both factors."""
    return substituted(u, w, substituted(u, w, b[p], True, unit_diagonal=True), False)


class _System:
    """A system in its working format, and its factors."""

    def __init__(
        self,
        a: Any,
        b: Any,
        factors: ArrayArithmetic,
        work: ArrayArithmetic,
        residual: FormatLike | Accumulator | None,
    ) -> None:
        self.u = ArrayArithmetic(work.format, work.rounding, None, None)
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
        self.lu = factored(factors, matrix_of(self.a, factors))
        self.norm = float(np.abs(self.a).sum(1, np.float64).max(initial=0.0))
        self.solution = _solution(self.a, self.b)

    def refined(self, most: int) -> Refinement:
        """Corrections as long as they shrink."""
        x, found = np.zeros_like(self.b), Refinement(result(self.b, self.u), False, "", [], [], [])
        r = self.residual(x)
        converged, reason = False, f"After {most} corrections they still shrink: more of them would."
        for _ in range(most):
            d = self.correction(r)
            size = _largest(d) / (_largest(x) or _largest(d) or 1.0)
            if found.corrections[1:] and not size <= found.corrections[-1] / 2:
                converged, reason = self.verdict(found)
                break
            x = self.u.compute("add", x, d)
            if not in_range(self.u, x):
                raise solution_overflowed(self.u.format)
            r = self.residual(x)
            found.corrections.append(size)
            found.backward_errors.append(_largest(r) / (self.norm * _largest(x) + _largest(self.b) or 1.0))
            found.forward_errors.append(_largest(x - self.solution) / (_largest(self.solution) or 1.0))
            if not r.any():
                converged, reason = True, f"The residual is zero, summed by {self.order}."
                break
            if found.corrections[1:] and size <= self.u.format.unit_roundoff:
                converged = True
                reason = f"The last correction, {size:.1e} of x, is below {self.u.format}'s unit roundoff."
                break
        if self.vanished(x):
            converged = False
            reason = (
                f"Of x or the residual, what is below {self.u.format}'s smallest normal number vanishes: scale b up by "
                "a power of two, which scales the solution, or take a work= of larger range."
            )
        return found._replace(x=result(x, self.u), converged=converged, reason=reason)

    def vanished(self, x: NDArray) -> bool:
        """Whether x is no solution where corrections and residuals may have been rounded to zero."""
        size, scale = _largest(x), self.norm * _largest(x) + _largest(self.b)
        if min(size, scale) >= self.u.format.smallest_normal:
            return False
        a, initial = self.a.astype(np.float64), self.b.astype(np.float64)
        left = matmul(-a, x.astype(np.float64), accumulate=exact, output=FP64, initial=initial)
        return bool(_largest(left) > self.least_error * scale)

    @property
    def least_error(self) -> float:
        """The backward error that a solution in the working format has, about."""
        return math.sqrt(len(self.b)) * self.u.format.unit_roundoff

    def verdict(self, found: Refinement) -> tuple[bool, str]:
        """What it means that corrections shrink no more."""
        backward = found.backward_errors[-1]
        if backward <= self.least_error:
            format, summed = self.u.format, self.order.result
            is_short = summed is not None and summed.precision < 2 * format.precision
            return True, (
                f"Corrections shrink no more at {found.corrections[-1]:.1e} of x, with a backward error of "
                f"{backward:.1e}. A more precise {'residual' if is_short else 'work'}= would bring x nearer to the "
                "solution."
            )
        return False, (
            "Corrections do not shrink, for the condition number is too large: take a more precise factor= than "
            f"{self.factors.format}."
        )

    def residual(self, x: NDArray) -> NDArray:
        """b - A x, rounded to the working format."""
        order, format = self.order, self.u.format
        sums = matmul(-self.a, x, accumulate=order, output=format, initial=self.b)
        return sums.astype(self.u.dtype)

    def correction(self, r: NDArray) -> NDArray:
        """The solution of A d = r by the factors."""
        _, exponent = math.frexp(_largest(r))
        scaled = self.factors.round(np.ldexp(np.asarray(r, np.float64), 1 - exponent))
        d = _by_factors(self.factors, *self.lu, scaled)
        if not in_range(self.factors, d):
            format = self.factors.format
            raise ValueError(
                f"A correction left the range of {format}, whose largest is {format.max}, as the matrix is small or "
                f"nearly singular: {scaling_up(self.a, format)}."
            )
        return self.u.round(np.ldexp(np.asarray(d, np.float64), exponent - 1))


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
