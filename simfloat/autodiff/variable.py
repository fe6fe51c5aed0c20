"""Variables: the arrays, formats, gradients and histories of tensors and parameters, without operations; and guards.

A guard makes a write between the forward pass and the backward pass an error: a derivative reads arrays that the
forward pass left it, and their numbers must still be those of then. Guarded are

* parameters: they must have the bits, as they are used, that the forward pass read;
* data, arrays of the caller: by a digest of at most `SAMPLE` numbers, spread evenly in larger arrays;
* results of operations, which only the record holds until `data` hands them out: from then on by a digest too.

Indices, labels and masks are copied. Arrays on a GPU have no digest: there parameters alone are guarded, and arrays
among the options of a user's operation nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.formats import FP32, FP64, Format
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.place import Place
from simfloat.simulation.streams import Streams

#: A digest is taken of at most so many numbers, in some 0.02 ms.
SAMPLE = 1 << 16

#: Bytes from which on sums modulo 2^64 are quicker than a CRC-32, a quarter of whose time they then take.
LARGE = 1 << 14


class ChangeGuard:
    """Whether the array of a tensor was lent to callers, who may write to it; views of an array share its loan."""

    __slots__ = ("_digest", "_watched")

    def __init__(self, watched: NDArray | None = None) -> None:
        self._watched, self._digest = watched, 0 if watched is None else digest_of(watched)

    def watch(self, array: NDArray) -> None:
        """Note that others are given the array, or a view of it, for the first time."""
        if self._watched is None:
            while isinstance(array.base, np.ndarray):
                array = array.base
            self._watched, self._digest = array, digest_of(array)

    def guard(self) -> Guard:
        """A guard of the numbers as they are now; itself, as long as the array was not handed out."""
        return self if self._watched is None else ChangeGuard(self._watched)

    def is_intact(self) -> bool:
        """Whether the numbers are what they were when they were lent, if they were."""
        return self._watched is None or digest_of(self._watched) == self._digest

    def __str__(self) -> str:
        return "an array that it read was written to"


class Guarded(Protocol):
    """What a guard asks of the parameter that it guards."""

    @property
    def path(self) -> str:
        """Its name in its model, if it has one."""
        ...

    def has_numbers(self, numbers: NDArray, format: Format | None) -> bool:
        """Whether it is used with these numbers, in this format."""
        ...


class ParameterGuard(NamedTuple):
    """A guard of a parameter: its numbers as the forward pass used them."""

    parameter: Guarded
    numbers: NDArray
    format: Format | None

    def guard(self) -> Guard:
        """Itself."""
        return self

    def watch(self, array: NDArray) -> None:
        """Views of a parameter are read-only."""

    def is_intact(self) -> bool:
        """Whether the parameter is used with these numbers still."""
        return self.parameter.has_numbers(self.numbers, self.format)

    def __str__(self) -> str:
        return (
            f"the parameter {self.parameter.path!r} was changed" if self.parameter.path else "a parameter was changed"
        )


#: The owner of the array that a tensor's numbers are, or are a view of; and a guard of it.
Guard = ChangeGuard | ParameterGuard


def digest_of(array: NDArray) -> int:
    """A number that is another one, almost certainly, once something else was written to the array."""
    if type(array) is not np.ndarray:
        return 0
    if array.size > SAMPLE:
        array = array.ravel("K")[:: -(-array.size // SAMPLE)]
    array = np.ascontiguousarray(array)
    if array.nbytes < LARGE or array.nbytes % 8:
        return crc32(array.data)
    words = array.reshape(-1).view(np.uint64)
    return int((words * _factors()[: words.size]).sum())


@cache
def _factors() -> NDArray[np.uint64]:
    """Odd factors of words: what changes one word changes the sum of products, what changes several almost surely."""
    return np.random.default_rng(0).integers(0, 1 << 63, SAMPLE, np.uint64) * np.uint64(2) + np.uint64(1)


def check_unchanged(guards: Sequence[Guard], place: Place) -> None:
    """Raise ValueError if something was written to that the backward pass of an operation reads."""
    for guard in guards:
        if not guard.is_intact():
            raise ValueError(
                f"{place.where}: {guard} between the forward pass and backward, which needs its numbers of then. Call "
                "backward before an optimizer's step and before writing, or give the forward pass what nobody writes "
                "to, such as array.copy()."
            )


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
