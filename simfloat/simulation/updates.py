"""The arithmetic of an optimizer's step, for both front ends, and the formula of SGD.

`UpdateArithmetic` has all operations on arrays that an update may consist of, each rounded by its role at the
parameter's place. Where all of them are elementwise, `update_programs.run_as_program` writes down the operations of a
formula (`update_programs.RecordedStep`), and carries them out in one go for every parameter that is updated alike.

`sgd` is the number that SGD adds to a parameter: the formula of PyTorch, which both front ends have.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import Observer
from simfloat.arithmetic.bit_stream import Draw, take_draw
from simfloat.arithmetic.machines import as_array
from simfloat.arithmetic.operands import empty
from simfloat.arithmetic.target import Target, notify
from simfloat.formats import Format
from simfloat.kernels.rounding.events import UNCHANGED, events_for, wants_optional_counts
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.place import Place, UpdateRules

#: Under this name a Kahan update keeps what the sum of a parameter has lost so far, negated.
COMPENSATION = "compensation"

#: Under this name a parameter's steps are counted.
STEP = "step"

#: Under these names numbers are kept that belong to all of a parameter, and are exact whatever the policy; their types.
COUNTERS: dict[str, type[np.floating]] = {STEP: np.float64, "mu_product": np.float32}

#: An array, or a number, which is an exact float64 operand.
Operand = NDArray | float


class UpdateArithmetic:
    """What the update of one parameter computes with at its place, and what is kept of the parameter.

    Results are rounded to `weights`, moments to `optimizer_state`; numbers are exact operands. An observer receives the
    events of the last addition at the parameter's own path, those of a moment at its name below, as operation
    ``moment``, and those of everything else at ``update`` below. `gradient` is the gradient of this step, if it is
    known: elements of a moment whose gradient is zero do not count as unchanged.
    """

    __slots__ = ("_place", "_weight", "gradient", "state")

    def __init__(self, place: Place, weight: NDArray, state: dict[str, NDArray]) -> None:
        self._place, self._weight, self.state = place, weight, state
        self.gradient: NDArray | None = None

    @property
    def weight(self) -> NDArray:
        """The parameter's numbers in `weights`: those of the master copy, where that is one."""
        return self._weight

    @property
    def format(self) -> Format:
        """What results are rounded to."""
        return self._place.weights

    @property
    def rules(self) -> UpdateRules | None:
        """How all of it is rounded, if no more is to be done than programs do."""
        return self._place.update_rules

    @property
    def _is_compensated(self) -> bool:
        """Whether the update is Kahan's."""
        return self._place.is_compensated

    def add(self, a: Operand, b: Operand) -> NDArray:
        """a + b, rounded to `weights`."""
        return self._apply("add", a, b)

    def subtract(self, a: Operand, b: Operand) -> NDArray:
        """a - b, rounded to `weights`."""
        return self._apply("subtract", a, b)

    def multiply(self, a: Operand, b: Operand) -> NDArray:
        """a * b, rounded to `weights`."""
        return self._apply("multiply", a, b)

    def divide(self, a: Operand, b: Operand) -> NDArray:
        """a / b, rounded to `weights`."""
        return self._apply("divide", a, b)

    def sqrt(self, x: NDArray) -> NDArray:
        """The square root, rounded to `weights`."""
        return self._apply("sqrt", x)

    def rsqrt(self, x: NDArray) -> NDArray:
        """1 / sqrt(x), rounded to `weights`."""
        return self._apply("rsqrt", x)

    def sign(self, x: NDArray) -> NDArray:
        """-1, 0 or 1, exactly; NaN for NaN."""
        return np.sign(x)

    def negative(self, x: NDArray) -> NDArray:
        """-x, exactly."""
        return as_array(-x)

    def magnitude(self, x: NDArray) -> NDArray:
        """|x|, rounded to `weights`."""
        return self._place.to_update.round(as_array(np.abs(x)))

    def at_least(self, least: float, x: NDArray) -> NDArray[np.float64]:
        """The larger of a number and x, exactly."""
        return as_array(np.maximum(x.astype(np.float64), least))

    def mix(self, keep: float, a: NDArray, take: float, b: NDArray) -> NDArray:
        """keep * a + take * b: two products and a sum, each rounded to `weights`."""
        return self.add(self.multiply(keep, a), self.multiply(take, b))

    def times(self, factor: float, x: NDArray) -> NDArray:
        """factor * x, rounded to `weights`; x itself or -x for a factor of 1 or -1."""
        if factor == 1.0:
            return x
        return self.negative(x) if factor == -1.0 else self.multiply(factor, x)

    def with_decay(self, d: NDArray, weight_decay: float) -> NDArray:
        """d + weight_decay * w, each rounded to `weights`; d itself where weight_decay is zero."""
        return self.add(d, self.times(weight_decay, self.weight)) if weight_decay else d

    def root_mean_square(self, x: NDArray) -> NDArray:
        """The root of the mean of x^2: squares, sum, quotient and root rounded to `weights`."""
        return self.sqrt(self.mean(self.multiply(x, x)))

    def mean(self, x: NDArray, axis: int | None = None) -> NDArray:
        """The mean along an axis, which stays, or of all: sum and quotient rounded to `weights`."""
        sums = self.sum(x, axis)
        return self.divide(sums, float(x.size // sums.size))

    def sum(self, x: NDArray, axis: int | None = None) -> NDArray:
        """The sums along an axis, which stays, or of all, by the policy's `reduce`, rounded to `weights`."""
        axes = tuple(range(x.ndim)) if axis is None else (axis % x.ndim,)
        shape = () if axis is None else tuple(1 if i in axes else size for i, size in enumerate(x.shape))
        return self._place.to_update.with_operation("sum").sum(x, axes).reshape(shape)

    def matmul(self, a: NDArray, b: NDArray) -> NDArray:
        """a @ b as a forward contraction: operands rounded to `compute`, sums by `accumulate`, rounded to `weights`."""
        place = self._place
        return place.to_update.with_operation("matmul").matmul(a, b, place.input(), place.input())

    def count(self) -> float:
        """The number of this step of the parameter, the first being 1; it is kept."""
        self.state[STEP] = np.array(self.state.get(STEP, 0.0) + 1.0)
        return float(self.state[STEP])

    def product(self, name: str, factor: float) -> float:
        """The product of this factor and those of the steps before in float32, as PyTorch has it; it is kept."""
        self.state[name] = np.array(np.float32(self.state.get(name, 1.0)) * np.float32(factor))
        return float(self.state[name])

    def previous_moment(self, name: str, shape: tuple[int, ...]) -> NDArray:
        """The moment of this name as the last step left it; zeros at first."""
        return self.state[name] if name in self.state else np.zeros(shape, np.float32, like=self.weight)

    def begin(self, name: str, value: Operand) -> NDArray:
        """The moment of this name: what was kept, at first `value`, rounded to `optimizer_state`.

        An observer receives the events of an array. A number only fills the moment, which the step then updates.
        """
        if name not in self.state:
            self.state[name] = self._round_moment(name, value)
        return self.state[name]

    def moment(self, name: str, x: NDArray, *, keep: float | None = None, take: float | None = None) -> NDArray:
        """m = keep * m + take * x, kept under `name`; m starts as zeros.

        Products are rounded to `weights`, and a factor that is left out makes none; the sum is rounded to
        `optimizer_state`. An element that stays as it was under a gradient other than zero is counted as unchanged.
        """
        before = self.previous_moment(name, x.shape)
        a = before if keep is None else self.multiply(keep, before)
        b = x if take is None else self.multiply(take, x)
        self.state[name] = self._add_to_moment(name, a, b)
        return self.state[name]

    def lerp(self, name: str, x: NDArray, share: float) -> NDArray:
        """m = m + share * (x - m), kept under `name`; m starts as zeros. PyTorch's `lerp`.

        The difference and its product are rounded to `weights`, the sum to `optimizer_state`. From a share of 1/2 on it
        is x - (1 - share) * (x - m).
        """
        before = self.previous_moment(name, x.shape)
        # The two forms are PyTorch's: the second one starts from x, so that a share of 1 gives x itself.
        difference = self.subtract(x, before)
        a, b = before, x
        if share < 0.5:
            b = self.multiply(share, difference)
        else:
            a, b = x, self.negative(self.multiply(1.0 - share, difference))
        self.state[name] = self._add_to_moment(name, a, b)
        return self.state[name]

    def mean_square(self, name: str, x: NDArray, keep: float) -> NDArray:
        """v = keep * v + ((1 - keep) * x) * x, kept under `name`; v starts as zeros.

        Products are rounded to `weights`, that by a factor of 1 excepted; the sum is rounded to `optimizer_state`.
        """
        # PyTorch's addcmul multiplies its factor by the first operand: x * x * (1 - keep) has other bits.
        a = self.multiply(keep, self.previous_moment(name, x.shape))
        b = self.multiply(self.times(1 - keep, x), x)
        self.state[name] = self._add_to_moment(name, a, b)
        return self.state[name]

    def keep(self, name: str, x: NDArray) -> NDArray:
        """x, rounded to `optimizer_state` and kept under `name`."""
        self.state[name] = self._round_moment(name, x)
        return self.state[name]

    def largest(self, name: str, x: NDArray) -> NDArray:
        """The largest that x has been in any step, element by element; it is kept under `name`."""
        self.state[name] = self._larger(x, self.state.get(name, x))
        return self.state[name]

    def larger(self, a: NDArray, b: NDArray) -> NDArray:
        """The larger one of two elements each, exactly."""
        return self._larger(a, b)

    def advance(self, u: NDArray) -> None:
        """Add a part of the update to the parameter, as the policy's `update` says; more is to follow."""
        self._weight = self._last_addition(u)

    def shrink(self, factor: float) -> None:
        """Multiply the parameter by a factor, rounded to `weights`, before anything is added to it."""
        self._weight = self.multiply(factor, self.weight)

    def finish(self, u: NDArray) -> None:
        """Add the update u to the parameter, in the way that the policy's `update` says."""
        self.store(self._last_addition(u))

    def store(self, weight: NDArray) -> None:
        """Give the parameter its new numbers."""
        raise ValueError(f"{type(self).__name__} stores nothing.")

    def memory(self, name: str, shape: tuple[int, ...]) -> NDArray:
        """An array in C order for what the parameter, or the moment of this name, becomes."""
        return empty(shape, np.float32)

    def take_draw(self, stream: str) -> Draw:
        """The next draw of a stream of the place: "update", "parameter", or a dot and the name of a moment."""
        target = self._target(stream)
        draw = take_draw(target.stream, target.rounding)
        assert draw is not None
        return draw

    def notify(self, events: NDArray[np.int64], stream: str, operation: str) -> None:
        """Give an observer the events of an operation whose results go to the target of this stream."""
        observer = self._target(stream).observer
        if observer is not None:
            notify(observer, events, operation)

    def _target(self, stream: str) -> Target:
        place = self._place
        if stream == "update":
            return place.to_update.target
        return (place.to_moment(stream[1:]) if stream[0] == "." else place.to_parameter).target

    def _last_addition(self, u: NDArray) -> NDArray:
        """What the parameter becomes."""
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

    def _round_moment(self, name: str, value: Operand) -> NDArray:
        """Round numbers as the moment of this name."""
        arithmetic = self._place.to_moment(name)
        if isinstance(value, int | float):
            filled = np.full_like(self.weight, value, np.float64, order="C")
            return arithmetic.with_observer(None).round(filled)
        return self._with_stall_count(name, arithmetic, "round", value)

    def _add_to_moment(self, name: str, a: NDArray, b: NDArray) -> NDArray:
        """a + b, rounded as the moment of this name."""
        return self._with_stall_count(name, self._place.to_moment(name), "add", a, b)

    def _with_stall_count(self, name: str, arithmetic: Arithmetic, operation: str, *operands: NDArray) -> NDArray:
        """An operation that makes a moment, of which an observer also receives how many elements stalled."""
        observer = arithmetic.target.observer
        if observer is None:
            result: NDArray = getattr(arithmetic, operation)(*operands)
            return result
        events = _Events(observer)
        after: NDArray = getattr(arithmetic.with_observer(events), operation)(*operands)
        events.counts[UNCHANGED] = count_stalled(self.state.get(name), after, self.gradient)
        notify(observer, events.counts, arithmetic.target.operation)
        return after

    def _add_to_parameter(self, w: NDArray, u: NDArray) -> NDArray:
        """w + u, rounded as the policy's `update` says."""
        return self._place.to_parameter.apply("update", w, u)

    def _larger(self, a: NDArray, b: NDArray) -> NDArray:
        """The larger ones of two arrays' elements."""
        return as_array(np.maximum(a, b))


def count_stalled(before: NDArray | None, after: NDArray, gradient: NDArray | None) -> int:
    """Count the elements of a moment that a step left as they were, though their gradient is not zero.

    A moment that was not kept before was zero. An element of a moment that is smaller than the gradient, such as a mean
    over rows, has a gradient other than zero if any element that it summarizes has one.
    """
    same = (after == (0.0 if before is None else before)) & np.isfinite(after)
    return int(np.count_nonzero(same if gradient is None else same & _has_gradient(gradient, after.shape)))


def _has_gradient(gradient: NDArray, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Where a moment of this shape has a gradient other than zero."""
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
    """-lr * m, with m = momentum * m + (1 - dampening) * d and d = g + weight_decay * w; m is d without momentum.

    With Nesterov's momentum it is -lr * (d + momentum * m). But for that by the momentum where m is made, a factor of 1
    or -1 is no product.
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
