"""Iterative refinement: factors in one format, corrections of x in another, residuals in a third."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy, deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arrays import Array
from simfloat.arrays.arithmetic import ArrayArithmetic, with_options
from simfloat.formats import FP32, FP64, Format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.linalg.factorizations import eliminate
from simfloat.linalg.krylov import minimize_residual, rounded_norm
from simfloat.linalg.matrices import (
    ArithmeticOptions,
    arithmetic_of,
    in_range,
    matrix_of,
    result_array,
    right_hand_side,
    scaling_up,
    solution_overflow_error,
    solve_with_factors,
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

    `x` is the solution. `converged` is True if refinement converged, and `reason` says why it ended. The other fields
    have one value for each x, including the first:

    * `backward_errors`: the norm of the computed residual b - A x, relative to norm(A) norm(x) + norm(b)
    * `forward_errors`: the norm of x minus the solution, relative to the norm of the solution
    * `corrections`: the norm of the last correction, relative to the norm of x before it
    * `residuals`: the norm of the exact residual b - A x, relative to the norm of b

    All norms are maximum norms (for A: of the row sums), measured in float64. A and b are first rounded to the working
    format. Forward errors refer to the solution of this rounded system, computed to float64 accuracy; they are NaN if
    it cannot be computed. For an ill-conditioned A, this solution is far from the solution for the values that were
    passed.

    For several right-hand sides, `x` has a column for each. `converged` is then a boolean array and every other field a
    list, with an element for each.
    """

    x: Array
    converged: Any
    reason: Any
    backward_errors: list[Any]
    forward_errors: list[Any]
    corrections: list[Any]
    residuals: list[Any]


class Method(NamedTuple):
    """The method that computes corrections: by the factors, or by GMRES with the factors as its preconditioner.

    `steps` is the format of the steps of GMRES, and `products` the format of the products of A and of the triangular
    systems in it.
    """

    refine: str = "lu"
    steps: FormatLike | None = None
    products: FormatLike | None = None


class RefinementCall(NamedTuple):
    """The arguments of a refinement."""

    a: Any
    b: Any
    factors: ArithmeticOptions
    work: FormatLike
    residual: FormatLike | Accumulator | None
    tolerance: float | None
    most: int
    method: Method = Method()

    def refine(self) -> Refinement:
        """Refine the solution of every right-hand side, and advise on those that have not converged."""
        system = self._system()
        if system.b.ndim == 1:
            return self._with_advice(system.refine(self.most))
        b, columns = np.asarray(self.b), range(system.b.shape[1])
        refinements = [self._replace(b=b[:, j])._with_advice(system.for_column(j).refine(self.most)) for j in columns]
        x = np.stack([each.x.numbers for each in refinements], 1) if refinements else system.b
        fields: Any = [[each[k] for each in refinements] for k in range(1, len(Refinement._fields))]
        return Refinement(result_array(x, system.u), np.array(fields[0], bool), *fields[1:])

    def _system(self) -> _System:
        in_factors = arithmetic_of(self.a, self.factors)
        in_work = with_options(in_factors, format=self.work, rounding=nearest_even)
        return _System(self.a, self.b, in_factors, in_work, self.residual, self.tolerance, self.method)

    def _with_advice(self, refinement: Refinement) -> Refinement:
        if refinement.converged or arithmetic_of(self.a, self.factors).current_observer is not None:
            return refinement
        return refinement._replace(reason=f"{refinement.reason} {self.advice(refinement)}")

    def advice(self, refinement: Refinement) -> str:
        """Try other options, and name the first that converges."""
        tried = []
        for text, run in self._other_options(refinement):
            tried.append(text)
            if run._converges():
                return f"With {text} it converges."
        return f"It converges with none of {'; '.join(tried)}." if tried else ""

    def _other_options(self, refinement: Refinement) -> Iterator[tuple[str, RefinementCall]]:
        """Yield options that may converge, each with its text."""
        work, factor = refinement.x.format, arithmetic_of(self.a, self.factors).format
        if len(refinement.corrections) == self.most:
            yield f"max_iterations={10 * self.most}", self._replace(most=10 * self.most)
        largest = max(_largest(refinement.x.numbers), _largest(np.asarray(self.b, np.float64)))
        if largest < work.smallest_normal / work.eps:
            power = -math.frexp(largest or 1.0)[1]
            yield f"b scaled by 2**{power}", self._replace(b=np.ldexp(np.asarray(self.b), power))
        largest_of_a = _largest(np.asarray(self.a, np.float64))
        if 0 < largest_of_a < factor.smallest_normal and not isinstance(self.a, Array):
            power = -math.frexp(largest_of_a)[1]
            a, b = (np.ldexp(np.asarray(x, np.float64), power) for x in (self.a, self.b))
            yield f"A and b scaled by 2**{power}", self._replace(a=a, b=b)
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
            return bool(self._replace(a=a, factors=factors)._system().refine(self.most).converged)
        except ValueError:
            return False


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
        method: Method,
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
        self.lu = eliminate(factors, matrix_of(self.a, factors))
        self.norm = float(np.abs(self.a).sum(1, np.float64).max(initial=0.0))
        self.solution = _solution(self.a, self.b) if self.b.ndim == 1 else self.b
        self.refines_by_gmres = method.refine == "gmres"
        if self.refines_by_gmres:
            wide = self.order.result or FP64 if method.products is None else method.products
            self.in_steps = with_options(self.u, format=method.steps)
            self.in_products = with_options(self.u, format=wide)
            self.wide_a = matrix_of(self.a, self.in_products)

    @property
    def correction_format(self) -> Format:
        """The format in which corrections are computed."""
        return self.in_steps.format if self.refines_by_gmres else self.factors.format

    def for_column(self, column: int) -> _System:
        """Return the system with one of the right-hand sides."""
        system = copy(self)
        system.b = np.ascontiguousarray(self.b[:, column])
        system.solution = _solution(self.a, system.b)
        return system

    def refine(self, most: int) -> Refinement:
        """Add corrections while they shrink."""
        x, r = np.zeros_like(self.b), self.b
        xs: list[NDArray] = []
        refinement = Refinement(result_array(self.b, self.u), False, "", [], [], [], [])
        worse, ended = 0, f"After {most} corrections, the last one {{last}} of x,"
        for _ in range(most):
            d = self.correction(r)
            if d is None:
                ended = f"After a correction of {{last}} of x the next one left the range of {self.correction_format}:"
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
        if converged or min(_largest(x) or math.inf, self.scale(x)) >= format.smallest_normal:
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
        """Solve A d = r, for r scaled by a power of two; return None if a value leaves the range of a format.

        Raises ValueError if the matrix is so small that this would happen even with a condition number of 1.
        """
        _, exponent = math.frexp(_largest(r))
        scaled = np.ldexp(np.asarray(r, np.float64), 1 - exponent)
        d, format = (self.by_gmres if self.refines_by_gmres else self.by_factors)(scaled), self.factors.format
        if d is not None:
            return self.u.round(np.ldexp(np.asarray(d, np.float64), exponent - 1))
        if self.norm * format.max < 1 and not self.refines_by_gmres:
            raise ValueError(
                f"A correction left the range of {format} (largest number {format.max}) because the matrix is small: "
                f"{scaling_up(self.a, format)}."
            )
        return None

    def by_factors(self, r: NDArray) -> NDArray | None:
        """Solve A d = r with the factors in their format."""
        d = solve_with_factors(self.factors, *self.lu, self.factors.round(r))
        return d if in_range(self.factors, d) else None

    def by_gmres(self, r: NDArray) -> NDArray | None:
        """Solve U^-1 L^-1 A d = U^-1 L^-1 r by one cycle of GMRES."""
        u, wide, (w, p) = self.in_steps, self.in_products, self.lu

        def by_factors(x: NDArray) -> NDArray:
            return u.round(solve_with_factors(wide, w.astype(wide.dtype), p, x))

        start = by_factors(wide.round(r))
        beta = rounded_norm(u, start)
        if not beta[0] or not in_range(u, start, beta):
            return None if start.any() else start
        # A correction with half of the digits of x suffices: the next residual corrects it.
        limit = math.sqrt(self.u.format.unit_roundoff) * float(beta[0])
        cycle = minimize_residual(
            u, lambda v: by_factors(wide.matmul(self.wide_a, wide.round(v))), start, beta, limit, len(r)
        )
        d = cycle.combination
        return d if in_range(u, d) else None


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
