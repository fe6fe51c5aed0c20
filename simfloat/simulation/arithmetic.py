"""The arithmetic of a place: operations on arrays whose every result is rounded once, as the policy says there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate import Accumulator
from simfloat.accumulate.conv2d_weight_gradient import conv2d_weight_gradient
from simfloat.accumulate.convolution import convolve
from simfloat.accumulate.geometry import Geometry
from simfloat.accumulate.im2col import kernel_shape, weight_gradient_factors
from simfloat.accumulate.product import multiply_matrices
from simfloat.accumulate.product_plan import Histories, Options, product_plan
from simfloat.arithmetic import Observer
from simfloat.arithmetic._cast import Cast
from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.machines import machine_of
from simfloat.arithmetic.observer import wants
from simfloat.arithmetic.operations import compute
from simfloat.arithmetic.target import Target
from simfloat.formats import Format, Rounding
from simfloat.kernels.events import TOTAL, wants_more
from simfloat.simulation.rotation import Rotation


class Input(NamedTuple):
    """How an operand of a contraction is rounded first, and the name by which an observer receives its events."""

    cast: Cast
    operation: str  # cast_input, cast_weight or cast_gradient
    is_settled: bool = False  # whether the cast is known to leave its numbers as they are


class Arithmetic(NamedTuple):
    """Operations whose results go to one target: a format, a rounding mode, a random stream, an observer."""

    target: Target
    accumulate: Accumulator  # of contractions
    reduce: Accumulator  # of all other sums
    where: str  # the operation and the layer, for messages
    refusal: str = ""  # why results of elementwise operations would be rounded twice, if they would
    histories: Histories = (None, None)  # of the operands of contractions, for delayed scalings
    rotation: Rotation | None = None  # of both operands of contractions along k, before they are rounded

    @property
    def format(self) -> Format:
        """The format of its results."""
        return self.target.format

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """An elementwise operation; ValueError where its result cannot be proven to be rounded once."""
        if self.refusal:
            raise ValueError(self.refusal)
        try:
            return compute(operation, list(operands), self.target)
        except ValueError as error:
            raise self._located(error) from None

    def add(self, a: NDArray, b: NDArray) -> NDArray:
        """a + b."""
        return self.apply("add", a, b)

    def subtract(self, a: NDArray, b: NDArray) -> NDArray:
        """a - b."""
        return self.apply("subtract", a, b)

    def multiply(self, a: NDArray, b: NDArray) -> NDArray:
        """a * b."""
        return self.apply("multiply", a, b)

    def divide(self, a: NDArray, b: NDArray) -> NDArray:
        """a / b."""
        return self.apply("divide", a, b)

    def round(self, x: NDArray, operation: str = "", *sources: NDArray) -> NDArray:
        """The numbers themselves, rounded; as which step of a formula makes no difference here."""
        try:
            return round_array(x, self.target)
        except ValueError as error:
            raise self._located(error) from None

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes`, in row-major order; the axes are dropped."""
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        shape = tuple(x.shape[axis] for axis in kept)
        count = math.prod(x.shape[axis] for axis in axes)
        if axes == tuple(range(len(axes))):
            # Leading axes: the rows as they are, times ones from the left.
            rows = x.reshape(count, math.prod(shape))
            return self._multiply(np.ones_like(x, order="C", shape=(1, count)), rows, self.reduce).reshape(shape)
        rows = x.transpose(*kept, *axes).reshape(math.prod(shape), count)
        return self._multiply(rows, np.ones_like(x, order="C", shape=(count, 1)), self.reduce).reshape(shape)

    def mean(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes` divided by the number of terms: two roundings."""
        return self.divide(self.sum(x, axes), np.array(float(math.prod(x.shape[axis] for axis in axes))))

    def at(self, operation: str) -> Arithmetic:
        """The arithmetic of a formula's step: all steps have this one."""
        return self

    def moved(self, x: NDArray, *sources: NDArray) -> NDArray:
        """`x` itself, a new array of numbers that were those of `sources`: all steps have one format here."""
        return x

    def composite(self, name: str, formula: Callable[..., NDArray], *operands: NDArray, **options: Any) -> NDArray:
        """The result of a formula that is a composite of its own where steps have places of their own."""
        return formula(self, *operands, **options)

    def matmul(self, a: NDArray, b: NDArray, a_input: Input, b_input: Input) -> NDArray:
        """The products of matrices (..., m, k) and (..., k, n), each operand rounded as its input says."""
        if self.rotation is not None:
            a, b = self.rotation.of(a, b)
        return self._multiply(a, b, self.accumulate, (a_input, b_input))

    def conv2d(self, x: NDArray, w: NDArray, geometry: Geometry, x_input: Input, w_input: Input) -> NDArray:
        """The convolution of images (N, C, H, W) with kernels (O, C / groups, h, w), each rounded as its input says."""
        return self._summed(convolve, (x, w, geometry), self.accumulate, (x_input, w_input))

    def correlate(self, g: NDArray, x: NDArray, geometry: Geometry, g_input: Input, x_input: Input) -> NDArray:
        """The gradient of a convolution's kernels from that of its results, each operand rounded as its input says."""
        if self.rotation is not None:
            gradients, patches = weight_gradient_factors(g, x, geometry)
            return self.matmul(gradients, patches, g_input, x_input).reshape(kernel_shape(g, x, geometry))
        return self._summed(conv2d_weight_gradient, (g, x, geometry), self.accumulate, (g_input, x_input))

    def _multiply(self, a: NDArray, b: NDArray, by: Accumulator, inputs: tuple[Input, Input] | None = None) -> NDArray:
        return self._summed(multiply_matrices, (a, b), by, inputs)

    def _summed(
        self,
        sums: Callable[..., NDArray],
        operands: tuple[Any, ...],
        by: Accumulator,
        inputs: tuple[Input, Input] | None,
    ) -> NDArray:
        """Sums of products, by a function of `operands`, of which the first two are arrays, and of Options."""
        target, casts = self.target, inputs and (inputs[0].cast, inputs[1].cast)
        try:
            plan = product_plan(by, casts, target.format, target.rounding, machine_of(*operands[:2]))
            if inputs is None:
                return sums(*operands, Options(plan, target))
            (_, name, is_settled), (_, other, other_settled) = inputs
            options = Options(plan, target, (name, other), self.histories, (is_settled, other_settled))
            return sums(*operands, options)
        except ValueError as error:
            raise self._located(error) from None

    def _located(self, error: ValueError) -> ValueError:
        return ValueError(f"{self.where}: {error}")

    def rounded_by(self, rounding: Rounding) -> Arithmetic:
        """The same arithmetic with a rounding mode that draws nothing."""
        return self._replace(target=self.target._replace(rounding=rounding, stream=None))

    def observed_by(self, observer: Observer | None) -> Arithmetic:
        """The same arithmetic with another observer."""
        return self._replace(target=self.target._replace(observer=observer))

    def named(self, operation: str) -> Arithmetic:
        """The same arithmetic, whose sums and roundings have this name for an observer."""
        return self._replace(target=self.target._replace(operation=operation))


@dataclass(frozen=True)
class Located(Observer):
    """Passes events on with the path of one layer and one phase."""

    observer: Observer
    layer: str
    stage: str
    more: bool = False

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Pass the events on with the layer's path and the phase."""
        self.observer.observe(events, operation, self.layer, self.stage)


class HeldEvents(Observer):
    """Keeps the events of one operation for an observer, until it is known at which path the last rounding counts."""

    def __init__(self, observer: Observer | None, layer: str = "") -> None:
        self.observer, self.layer = observer, layer
        self.more = wants_more(observer)
        self.held: list[tuple[NDArray[np.int64], str]] = []

    @property
    def count(self) -> int:
        """How many results the last rounding had."""
        return int(self.held[-1][0][TOTAL]) if self.held else 0

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Keep the events of one call."""
        self.held.append((events, operation))

    def pass_on(self, path: str | None = None, elements: int | None = None) -> None:
        """Give the observer the events of a backward pass: of the last rounding at `path`, of others at the layer's.

        elements is how many have the numbers that were rounded last, where these are fewer.
        """
        last = len(self.held) - 1
        for number, (events, operation) in enumerate(self.held):
            where = path if number == last and path is not None else self.layer
            if self.observer is not None and wants(self.observer, where, "backward"):
                if number == last and elements is not None and events[TOTAL]:
                    events = events * (elements // events[TOTAL])
                self.observer.observe(events, operation, where, "backward")
        self.held.clear()
