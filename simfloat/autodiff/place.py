"""Where an operation runs, and the arithmetic that its policy gives it there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate import Accumulator
from simfloat.accumulate.contraction import Options
from simfloat.accumulate.product import multiply_matrices
from simfloat.arithmetic import Observer
from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.exactness import check_precision
from simfloat.arithmetic.observer import wants
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.operations import compute
from simfloat.arithmetic.stream import BitStream
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.formats import Format, Rounding, nearest_even, stochastic

if TYPE_CHECKING:
    from simfloat.autodiff.simulation import Simulation


class Place:
    """An operation (with the composites around it) in a layer, or the update of a parameter, under a policy."""

    def __init__(self, simulation: Simulation, path: str, operations: tuple[str, ...]) -> None:
        self.simulation = simulation
        self.path = path
        self.operation = operations[-1]
        self.recipe = simulation.policy.recipe(path, *operations)

    @cached_property
    def forward(self) -> Unit:
        """The arithmetic of the forward pass."""
        return self._unit("activations", self.path, "forward")

    @cached_property
    def to_activation(self) -> Unit:
        """The arithmetic of the backward pass to an activation."""
        return self._unit("activation_gradients", self.path, "backward")

    @cached_property
    def to_weight(self) -> Unit:
        """The arithmetic of the backward pass to a parameter."""
        return self._unit("weight_gradients", self.path, "backward")

    @cached_property
    def to_update(self) -> Unit:
        """The arithmetic of an optimizer before the last addition."""
        return self._unit("weights", f"{self.path}.update", "update")

    @cached_property
    def to_moment(self) -> Unit:
        """The arithmetic of an optimizer where a moment is made."""
        return self._unit("optimizer_state", f"{self.path}.moment", "update")

    @cached_property
    def to_parameter(self) -> Unit:
        """The arithmetic of the last addition, w + u."""
        rounding = stochastic() if self.recipe.update == "stochastic" else nearest_even
        return self._unit("weights", self.path, "update", rounding)

    def _unit(self, role: str, path: str, phase: str, rounding: Rounding | None = None) -> Unit:
        observer = self.simulation.observer
        located = Located(observer, path, phase) if observer is not None and wants(observer, path, phase) else None
        recipe, stream, format = self.recipe, self.simulation.stream, getattr(self.recipe, role)
        rounding = recipe.rounding if rounding is None else rounding
        unit = Unit(format, rounding, recipe.accumulate, carrier_of(format), stream, located, self.operation)
        try:
            check_precision(format, rounding)
        except ValueError as error:
            where = f"of {self.operation} in layer {self.path!r}" if self.path else f"of {self.operation}"
            return unit._replace(refusal=f"The role {role} {where} cannot be emulated: {error}")
        return unit


@dataclass(frozen=True)
class Located(Observer):
    """An observer that hears of one layer and one phase."""

    observer: Observer
    layer: str
    stage: str

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Pass the events on with the layer's path and the phase."""
        self.observer.observe(events, operation, self.layer, self.stage)


class Unit(NamedTuple):
    """Arithmetic on arrays whose every result is rounded once to one format."""

    format: Format
    rounding: Rounding
    accumulate: Accumulator
    dtype: FloatType
    stream: BitStream
    observer: Observer | None
    operation: str
    refusal: str = ""  # why results of elementwise operations would be rounded twice, if they would

    @property
    def target(self) -> Target:
        """Where its results go."""
        return Target(self.format, self.rounding, self.dtype, self.stream, self.observer, self.operation)

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """An elementwise operation; ValueError where its result cannot be proven to be rounded once."""
        if self.refusal:
            raise ValueError(self.refusal)
        return compute(operation, list(operands), self.target)

    def round(self, x: NDArray) -> NDArray:
        """The numbers themselves, rounded."""
        return round_array(x, self.target)

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes`, in row-major order; the axes are dropped."""
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        shape = tuple(x.shape[axis] for axis in kept)
        count = math.prod(x.shape[axis] for axis in axes)
        if axes == tuple(range(len(axes))):
            # Leading axes: the rows as they are, times ones from the left.
            rows = x.reshape(count, math.prod(shape))
            return self.matmul(np.ones((1, count), x.dtype), rows).reshape(shape)
        rows = x.transpose(*kept, *axes).reshape(math.prod(shape), count)
        return self.matmul(rows, np.ones((count, 1), x.dtype)).reshape(shape)

    def matmul(self, a: NDArray, b: NDArray, inputs: tuple[Format, Format] | None = None) -> NDArray:
        """The products of matrices (..., m, k) and (..., k, n), operands rounded to `inputs` first."""
        return multiply_matrices(a, b, Options(inputs, self.accumulate, self.target))
