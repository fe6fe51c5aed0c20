"""The arithmetic of an optimizer step, for both front ends, and the formulas of SGD and RMSprop.

`UpdateArithmetic` has all array operations of updates, each rounded by its role at the place of the parameter. If all
of them are elementwise, `update_programs.run_as_program` records the operations of a formula
(`update_programs.RecordedStep`) and runs them as one program for every parameter with the same update rules.

`sgd` and `rmsprop` return the value that is added to a parameter: the formulas of PyTorch, used by both front ends.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import Observer
from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.machines import as_array
from simfloat.arithmetic.target import notify
from simfloat.formats import Format
from simfloat.kernels.rounding.events import UNCHANGED, events_for, wants_optional_counts
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.moments import round_with_scale
from simfloat.simulation.place import Place

#: The name of the Kahan compensation: the rounding errors of the parameter so far, negated.
COMPENSATION = "compensation"

#: The name of the step counter of a parameter.
STEP = "step"

#: Names and types of scalars that belong to a whole parameter, and are exact under every policy.
COUNTERS: dict[str, type[np.floating]] = {STEP: np.float64, "mu_product": np.float32}

#: An array, or a scalar, which is an exact float64 operand.
Operand = NDArray | float


class UpdateArithmetic:
    """The arithmetic of the update of one parameter at its place, and the optimizer state of the parameter.

    Results are rounded to `weights`, moments to `optimizer_state`; scalars are exact operands. An observer receives
    the events of the final addition at the path of the parameter, the events of a moment at its name below (operation
    ``moment``), and all others at ``update`` below. `gradient` is the gradient of this step, if known: elements of a
    moment with a zero gradient do not count as unchanged.
    """

    __slots__ = ("_place", "_weight", "gradient", "state")

    def __init__(self, place: Place, weight: NDArray, state: dict[str, NDArray]) -> None:
        self._place, self._weight, self.state = place, weight, state
        self.gradient: NDArray | None = None

    @property
    def weight(self) -> NDArray:
        """The values of the parameter in `weights`: of the master copy, if there is one."""
        return self._weight

    @property
    def format(self) -> Format:
        """The format of results."""
        return self._place.weights

    @property
    def _is_compensated(self) -> bool:
        """True for an update with Kahan's compensation."""
        return self._place.is_compensated

    @property
    def _moment_cast(self) -> Cast:
        """The cast of moments when they are stored."""
        return self._place.moment_cast

    def add(self, a: Operand, b: Operand) -> NDArray:
        """Return a + b, rounded to `weights`."""
        return self._apply("add", a, b)

    def subtract(self, a: Operand, b: Operand) -> NDArray:
        """Return a - b, rounded to `weights`."""
        return self._apply("subtract", a, b)

    def multiply(self, a: Operand, b: Operand) -> NDArray:
        """Return a * b, rounded to `weights`."""
        return self._apply("multiply", a, b)

    def divide(self, a: Operand, b: Operand) -> NDArray:
        """Return a / b, rounded to `weights`."""
        return self._apply("divide", a, b)

    def sqrt(self, x: NDArray) -> NDArray:
        """Return the square root, rounded to `weights`."""
        return self._apply("sqrt", x)

    def rsqrt(self, x: NDArray) -> NDArray:
        """Return 1 / sqrt(x), rounded to `weights`."""
        return self._apply("rsqrt", x)

    def sign(self, x: NDArray) -> NDArray:
        """Return -1, 0 or 1, exactly; NaN for NaN."""
        return np.sign(x)

    def negative(self, x: NDArray) -> NDArray:
        """Return -x, exactly."""
        return as_array(-x)

    def magnitude(self, x: NDArray) -> NDArray:
        """Return |x|, rounded to `weights`."""
        return self._place.to_update.round(as_array(np.abs(x)))

    def at_least(self, least: float, x: NDArray) -> NDArray[np.float64]:
        """Return the larger of a scalar and x, exactly."""
        return as_array(np.maximum(x.astype(np.float64), least))

    def mix(self, keep: float, a: NDArray, take: float, b: NDArray) -> NDArray:
        """Return keep * a + take * b: two products and a sum, each rounded to `weights`."""
        return self.add(self.multiply(keep, a), self.multiply(take, b))

    def times(self, factor: float, x: NDArray) -> NDArray:
        """Return factor * x, rounded to `weights`; for a factor of 1 or -1, return x or -x."""
        if factor == 1.0:
            return x
        return self.negative(x) if factor == -1.0 else self.multiply(factor, x)

    def with_decay(self, d: NDArray, weight_decay: float) -> NDArray:
        """Return d + weight_decay * w, product and sum rounded to `weights`; d if weight_decay is zero."""
        return self.add(d, self.times(weight_decay, self.weight)) if weight_decay else d

    def root_mean_square(self, x: NDArray) -> NDArray:
        """Return the root of the mean of x^2: squares, sum, quotient and root rounded to `weights`."""
        return self.sqrt(self.mean(self.multiply(x, x)))

    def mean(self, x: NDArray, axis: int | None = None) -> NDArray:
        """Return the mean along an axis, which is kept, or of all elements: sum and quotient rounded to `weights`."""
        sums = self.sum(x, axis)
        return self.divide(sums, float(x.size // sums.size))

    def sum(self, x: NDArray, axis: int | None = None) -> NDArray:
        """Sum along an axis, which is kept, or over all elements, by `reduce` of the policy, rounded to `weights`."""
        axes = tuple(range(x.ndim)) if axis is None else (axis % x.ndim,)
        shape = () if axis is None else tuple(1 if i in axes else size for i, size in enumerate(x.shape))
        return self._place.to_update.with_operation("sum").sum(x, axes).reshape(shape)

    def matmul(self, a: NDArray, b: NDArray) -> NDArray:
        """Return a @ b as a forward contraction: operands rounded to `compute`, sums by `accumulate`, rounded to
        `weights`.
        """
        place = self._place
        return place.to_update.with_operation("matmul").matmul(a, b, place.input(), place.input())

    def count(self) -> float:
        """Return the number of this step of the parameter, starting with 1, and store it."""
        self.state[STEP] = np.array(self.state.get(STEP, 0.0) + 1.0)
        return float(self.state[STEP])

    def product(self, name: str, factor: float) -> float:
        """Return the float32 product of this factor and all earlier ones, as PyTorch does, and store it."""
        self.state[name] = np.array(np.float32(self.state.get(name, 1.0)) * np.float32(factor))
        return float(self.state[name])

    def previous_moment(self, name: str, shape: tuple[int, ...]) -> NDArray:
        """Return the moment of this name after the last step; zeros before the first step."""
        return self.state[name] if name in self.state else np.zeros(shape, np.float32, like=self.weight)

    def begin(self, name: str, value: Operand) -> NDArray:
        """Return the stored moment of this name; in the first step, `value` rounded to `optimizer_state`.

        An observer receives the events if `value` is an array. A scalar only fills the moment, which the step then
        updates.
        """
        return self.state[name] if name in self.state else self._store_rounded(name, value)

    def moment(self, name: str, x: NDArray, *, keep: float | None = None, take: float | None = None) -> NDArray:
        """Compute m = keep * m + take * x and store it under `name`; m starts as zeros.

        Products are rounded to `weights`; without a factor there is no product. The sum is rounded to
        `optimizer_state`. An element that keeps its value under a nonzero gradient is counted as unchanged.
        """
        before = self.previous_moment(name, x.shape)
        a = before if keep is None else self.multiply(keep, before)
        b = x if take is None else self.multiply(take, x)
        return self._store_sum(name, a, b)

    def lerp(self, name: str, x: NDArray, share: float) -> NDArray:
        """Compute m = m + share * (x - m) and store it under `name`; m starts as zeros. This is `lerp` of PyTorch.

        The difference and its product are rounded to `weights`, the sum to `optimizer_state`. For a share of at least
        1/2, the formula is x - (1 - share) * (x - m).
        """
        before = self.previous_moment(name, x.shape)
        # PyTorch has both forms. The second starts from x, so that a share of 1 gives x.
        difference = self.subtract(x, before)
        a, b = before, x
        if share < 0.5:
            b = self.multiply(share, difference)
        else:
            a, b = x, self.negative(self.multiply(1.0 - share, difference))
        return self._store_sum(name, a, b)

    def mean_square(self, name: str, x: NDArray, keep: float) -> NDArray:
        """Compute v = keep * v + ((1 - keep) * x) * x and store it under `name`; v starts as zeros.

        Products are rounded to `weights`, except a product by 1; the sum is rounded to `optimizer_state`.
        """
        # PyTorch's addcmul multiplies its factor by the first operand; x * x * (1 - keep) would have other bits.
        a = self.multiply(keep, self.previous_moment(name, x.shape))
        b = self.multiply(self.times(1 - keep, x), x)
        return self._store_sum(name, a, b)

    def keep(self, name: str, x: NDArray) -> NDArray:
        """Round x to `optimizer_state` and store it under `name`."""
        return self._store_rounded(name, x)

    def largest(self, name: str, x: NDArray) -> NDArray:
        """Return the elementwise maximum of x over all steps, and store it under `name`."""
        largest = self._larger(x, self.state.get(name, x))
        if self._moment_cast.scale is None:
            self.state[name] = largest
        else:
            self._store_scaled(name, largest, is_observed=False)
        return largest

    def larger(self, a: NDArray, b: NDArray) -> NDArray:
        """Return the elementwise maximum, exactly."""
        return self._larger(a, b)

    def advance(self, u: NDArray) -> None:
        """Add a part of the update to the parameter, by the role `update` of the policy; further parts follow."""
        self._weight = self._last_addition(u)

    def shrink(self, factor: float) -> None:
        """Multiply the parameter by a factor, rounded to `weights`, before the additions."""
        self._weight = self.multiply(factor, self.weight)

    def finish(self, u: NDArray) -> None:
        """Add the update u to the parameter, by the role `update` of the policy."""
        self.store(self._last_addition(u))

    def store(self, weight: NDArray) -> None:
        """Store the new values of the parameter."""
        raise ValueError(f"{type(self).__name__} stores nothing.")

    def _last_addition(self, u: NDArray) -> NDArray:
        """Return the new values of the parameter."""
        w = self.weight
        if not self._is_compensated:
            return self._add_to_parameter(w, u)
        # Kahan 1965, as algorithm 1 of arXiv 2010.06192.
        lost = self.state.get(COMPENSATION)
        u = u if lost is None else self.subtract(u, lost)
        s = self._add_to_parameter(w, u)
        self.state[COMPENSATION] = self.subtract(self.subtract(s, w), u)
        return s

    def _apply(self, operation: str, *operands: Operand) -> NDArray:
        arrays = [np.array(float(x)) if isinstance(x, int | float) else x for x in operands]
        return self._place.to_update.apply(operation, *arrays)

    def _store_sum(self, name: str, a: NDArray, b: NDArray) -> NDArray:
        """Store a + b as a moment, and return the values with which the step continues."""
        if self._moment_cast.scale is not None:
            return self._store_rounded(name, self.add(a, b))
        self.state[name] = self._add_to_moment(name, a, b)
        return self.state[name]

    def _store_rounded(self, name: str, value: Operand) -> NDArray:
        """Store values as a moment, and return the values with which the step continues."""
        if self._moment_cast.scale is None:
            self.state[name] = self._round_moment(name, value)
            return self.state[name]
        if isinstance(value, int | float):
            filled = np.full_like(self.weight, value, order="C")
            self._store_scaled(name, filled, is_observed=False)
            return filled
        self._store_scaled(name, value, is_observed=True)
        return value

    def _store_scaled(self, name: str, x: NDArray, *, is_observed: bool) -> None:
        """Store values as a moment with a scale."""
        arithmetic, cast = self._place.to_moment(name), self._moment_cast
        if not is_observed:
            arithmetic = arithmetic.with_observer(None)
        self.state[name] = self._with_stall_count(name, arithmetic, lambda u: round_with_scale(u, cast, x))

    def _round_moment(self, name: str, value: Operand) -> NDArray:
        """Round values as the moment of this name."""
        arithmetic = self._place.to_moment(name)
        if isinstance(value, int | float):
            filled = np.full_like(self.weight, value, np.float64, order="C")
            return arithmetic.with_observer(None).round(filled)
        return self._with_stall_count(name, arithmetic, lambda u: u.round(value))

    def _add_to_moment(self, name: str, a: NDArray, b: NDArray) -> NDArray:
        """Return a + b, rounded as the moment of this name."""
        return self._with_stall_count(name, self._place.to_moment(name), lambda u: u.add(a, b))

    def _with_stall_count(self, name: str, arithmetic: Arithmetic, compute: Callable[[Arithmetic], NDArray]) -> NDArray:
        """Compute a moment; an observer also receives the number of stalled elements."""
        observer = arithmetic.target.observer
        if observer is None:
            return compute(arithmetic)
        events = _Events(observer)
        after = compute(arithmetic.with_observer(events))
        events.counts[UNCHANGED] = count_stalled(self.state.get(name), after, self.gradient)
        notify(observer, events.counts, arithmetic.target.operation)
        return after

    def _add_to_parameter(self, w: NDArray, u: NDArray) -> NDArray:
        """Return w + u, rounded by the role `update` of the policy."""
        return self._place.to_parameter.apply("update", w, u)

    def _larger(self, a: NDArray, b: NDArray) -> NDArray:
        """Return the elementwise maximum of two arrays."""
        return as_array(np.maximum(a, b))


def count_stalled(before: NDArray | None, after: NDArray, gradient: NDArray | None) -> int:
    """Count the elements of a moment that a step left unchanged although their gradient is not zero.

    A new moment counts as zero before. An element of a moment that is smaller than the gradient, such as a mean over
    rows, has a nonzero gradient if any of the elements that it summarizes has one.
    """
    same = (after == (0.0 if before is None else before)) & np.isfinite(after)
    return int(np.count_nonzero(same if gradient is None else same & _has_gradient(gradient, after.shape)))


def _has_gradient(gradient: NDArray, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return a boolean array: True for elements of a moment of this shape that have a nonzero gradient."""
    has = gradient != 0
    if shape == gradient.shape:
        return has
    if len(shape) == gradient.ndim and all(n in (1, m) for n, m in zip(shape, gradient.shape, strict=True)):
        return has.any(axis=tuple(axis for axis, n in enumerate(shape) if n == 1), keepdims=True)
    return has.any()


class _Events(Observer):
    """Adds up the events of an addition before another observer receives them."""

    def __init__(self, observer: Observer | None) -> None:
        self.counts, self.more = events_for(observer), wants_optional_counts(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call."""
        self.counts += events


__all__: list[str] = []


def sgd(step: UpdateArithmetic, gradient: NDArray, options: SimpleNamespace) -> NDArray:
    """Return -lr * m, with m = momentum * m + (1 - dampening) * d and d = g + weight_decay * w; without momentum, m
    is d.

    With Nesterov momentum, the result is -lr * (d + momentum * m). A factor of 1 or -1 is not a product, except the
    momentum in the computation of m.
    """
    d = step.with_decay(gradient, options.weight_decay)
    if options.momentum:
        if "momentum_buffer" in step.state:
            take = 1.0 - options.dampening
            x, take = (step.times(take, d), None) if abs(take) == 1.0 else (d, take)
            m = step.moment("momentum_buffer", x, keep=options.momentum, take=take)
        else:
            m = step.begin("momentum_buffer", d)
        d = step.add(d, step.times(options.momentum, m)) if options.nesterov else m
    return step.times(-options.lr, d)


def rmsprop(step: UpdateArithmetic, gradient: NDArray, options: SimpleNamespace) -> NDArray:
    """Return -lr * d / (sqrt(v) + eps), with v = alpha * v + (1 - alpha) * d^2 and d = g + weight_decay * w.

    `centered` subtracts the square of the mean gradient from v. With momentum, the result is -lr * m, with
    m = momentum * m + d / (sqrt(v) + eps).
    """
    step.count()
    d = step.with_decay(gradient, options.weight_decay)
    v = step.mean_square("square_avg", d, options.alpha)
    if options.centered:
        mean = step.lerp("grad_avg", d, 1 - options.alpha)
        v = step.add(v, step.multiply(step.negative(mean), mean))
    root = step.add(step.sqrt(v), options.eps)
    if not options.momentum:
        return step.divide(step.times(-options.lr, d), root)
    m = step.moment("momentum_buffer", step.divide(d, root), keep=options.momentum)
    return step.times(-options.lr, m)
