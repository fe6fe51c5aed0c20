"""Variables: the arrays, formats, gradients and histories of tensors and parameters, without operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff.guards import ChangeGuard, Guard
from simfloat.formats import FP32, FP64, Format
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.place import Place
from simfloat.simulation.streams import Streams


class SplitPart(NamedTuple):
    """The gradient of some elements of a parent; to that of the others this contributes nothing."""

    by: object  # what split it: parts by one operation share no element
    key: Any
    numbers: NDArray


#: The gradient of a parent from that of the result, every operation rounded by the arithmetic.
Derivative = Callable[[Arithmetic, NDArray], NDArray | SplitPart]


class Node(NamedTuple):
    """An operation that was carried out: what came in, how to go back, and where it ran."""

    parents: tuple[Variable, ...]
    derivatives: tuple[Derivative, ...]
    place: Place
    paths: tuple[str | None, ...]  # of the parents that are parameters, moved or not
    formats: tuple[Format, ...]  # of the parents, where gradients take them
    origin: Guard  # of the result's numbers
    guards: Sequence[Guard] = ()  # of what derivatives read
    read: tuple[NDArray, ...] = ()  # the operands of a contraction as they were used
    inside: Sequence[Place] = ()  # of the steps of a composite that was carried out by its formula

    def arithmetic(self, number: int) -> Arithmetic:
        """The arithmetic of the backward pass to the parent of this number."""
        path, format = self.paths[number], self.formats[number] if self.formats else None
        if path is None:
            return self.place.to_activation(number, format)
        return self.place.to_weight(path, number, format)

    def to_stored(self, number: int, arithmetic: Arithmetic) -> Arithmetic:
        """That which adds a gradient of this arithmetic to what an earlier backward pass left."""
        if not self.place.takes_formats:
            return arithmetic
        path = self.paths[number]
        own_format = (
            self.parents[number].stored_format if path is None else self.place.recipe_of_parameter(path).weights
        )
        return self.place.to_stored(path, number, own_format).with_observer(arithmetic.target.observer)


class GradientScaler(Protocol):
    """What scales gradients on their way back from a variable, as a layer-wise loss scale does."""

    def rescale(
        self, variable: Variable, node: Node, number: int, gradient: NDArray, before: NDArray | None
    ) -> tuple[NDArray, NDArray | None]:
        """What goes on from the variable, which `node` made, to its parent of this number, and what came there before.

        Both times factors of its choice, so that what comes of them can be added.
        """


class Variable:
    """An array of numbers, the format they were rounded to, their gradient, and the operation that made them.

    `numbers` is the array itself, for operations to read. `format` is None for data, which enters as it is.
    """

    is_weight = False  # whether its gradient takes the role of a weight's
    moved: Variable | None = None  # the parameter whose numbers these are in another shape: they are used as weights
    _trace: Trace | None = None
    gradient_scaler: GradientScaler | None = None  # for what starts from it
    made_with: Streams | None = None  # the random streams of the simulation that computed it, if they were drawn from

    def __init__(
        self,
        numbers: NDArray[np.floating],
        requires_grad: bool = False,
        format: Format | None = None,
        node: Node | None = None,
    ) -> None:
        self.numbers = numbers
        self.requires_grad = requires_grad
        self.format = format
        self.node = node
        self._grad: NDArray | None = None

    @property
    def path(self) -> str:
        """Its place in a model, for parameters; else empty."""
        return ""

    @property
    def _outermost(self) -> Any:
        """The module at which the path begins, for parameters that a module owns; else None."""
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the data."""
        return self.numbers.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.numbers.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.numbers.size

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made it."""
        return self.node is None

    @property
    def trace(self) -> Variable:
        """What the record holds of it: itself if no operation made it, else how it was made, without its numbers."""
        if self.node is None:
            return self
        if self._trace is None:
            self._trace = Trace(self)
        return self._trace

    @property
    def origin(self) -> Guard:
        """The owner of the array of its numbers: an operation, a parameter, or the caller."""
        return ChangeGuard(self.numbers) if self.node is None else self.node.origin

    @property
    def stored_format(self) -> Format:
        """What its numbers are numbers of: for data, FP32 or FP64, as its array."""
        return self.format or (FP32 if self.numbers.dtype == np.float32 else FP64)

    @property
    def current_format(self) -> Format | None:
        """A format that all its numbers are of at this moment; None if that is not known."""
        return None

    @property
    def grad(self) -> NDArray[np.floating] | None:
        """The gradient, an array of the data's shape; None before `backward`.

        It may be assigned. Raises ValueError for another shape, and for what holds no numbers.
        """
        return self._grad

    @grad.setter
    def grad(self, value: ArrayLike | None) -> None:
        if value is None:
            self._grad = None
            return
        what = f"the gradient of {self.path or 'a tensor'}"
        gradient = as_operand(value, what)
        if gradient.shape != self.shape:
            raise ValueError(f"{what} must have the shape of its data, {self.shape}, got {gradient.shape}.")
        self.receive(gradient)

    def receive(self, gradient: NDArray[np.floating]) -> None:
        """Take what backward found: an array of the data's shape."""
        self._grad = gradient

    def operand_in(self, simulation: Simulation) -> Variable:
        """What operations read: itself, or a parameter's numbers as rounded to the format of its weights there."""
        return self.operand_at(simulation.place("update", simulation.path_of(self))) if self.is_weight else self

    def operand_at(self, place: Place) -> Variable:
        """Return what operations read; for a parameter its numbers as rounded to the weights of this update place."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        if self.node is not None:
            raise ValueError(
                "A tensor that an operation made is neither copied nor pickled with its history; "
                "use tensor.detach(), or the leaf tensors it was made from."
            )
        return {**vars(self), "made_with": None, "moved": None}


class Trace(Variable):
    """How a result was made, and its shape and format: what the way back needs of it.

    Derivatives hold the arrays that they read; numbers that none of them reads are freed with the tensor.
    """

    def __init__(self, result: Variable) -> None:
        self.requires_grad, self.format, self.node = result.requires_grad, result.format, result.node
        self._shape = result.shape
        self._grad = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the data."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)


def as_variable(x: Variable | ArrayLike) -> Variable:
    """`x` itself if it is a variable, else a constant one."""
    return x if isinstance(x, Variable) else Variable(as_operand(x, "data"))
