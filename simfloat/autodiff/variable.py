"""Variables: arrays with format, gradient and history, the base of tensors and parameters, without operations; and
guards.

Derivatives read arrays of the forward pass. A guard raises an error if these arrays were written to before the
backward pass. Guarded are

* parameters: their rounded values must have the bits that the forward pass read;
* data, which are arrays of the caller: by a digest of at most `SAMPLE` elements, evenly spaced in larger arrays;
* results of operations: after `data` has returned them, also by a digest.

Indices, labels and masks are copied. Arrays on a GPU have no digest, so only parameters are guarded there. Arrays in
the options of a custom operation are not guarded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.formats import FP32, FP64, Format
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Arithmetic, Input, PendingEvents
from simfloat.simulation.place import Place
from simfloat.simulation.streams import Streams

#: Maximum number of elements in a digest, which then takes about 0.02 ms.
SAMPLE = 1 << 16

#: Minimum number of bytes for sums modulo 2^64, which then take less time than a CRC-32.
LARGE = 1 << 14


class ChangeGuard:
    """Detects writes to the array of a tensor after it was returned to a caller; views of an array share its guard."""

    watched: NDArray | None = None  # the array, once it was returned
    _digest = 0

    def watch(self, array: NDArray) -> None:
        """Record that callers receive the array, or a view of it, for the first time."""
        if self.watched is None:
            while isinstance(array.base, np.ndarray):
                array = array.base
            self.watched, self._digest = array, digest_of(array)

    def guard(self) -> Guard:
        """Return a guard of the current values of the array that callers received."""
        return self if self.watched is None else guard_of(self.watched)

    def is_intact(self) -> bool:
        """True if the values have not changed since callers received the array."""
        return self.watched is None or digest_of(self.watched) == self._digest

    def __str__(self) -> str:
        return "an array that it reads was written to"


def guard_of(array: NDArray) -> ChangeGuard:
    """Return a guard of the current values of an array that callers have."""
    guard = ChangeGuard()
    guard.watched, guard._digest = array, digest_of(array)
    return guard


class ParameterGuard(NamedTuple):
    """A guard of a parameter: the values that the forward pass used."""

    parameter: Any  # a Parameter
    watched: NDArray
    format: Format | None

    def guard(self) -> Guard:
        """Return this guard."""
        return self

    def watch(self, array: NDArray) -> None:
        """Do nothing: views of a parameter are read-only."""

    def is_intact(self) -> bool:
        """True if the parameter still has these values."""
        return bool(self.parameter.has_numbers(self.watched, self.format))

    def __str__(self) -> str:
        return (
            f"the parameter {self.parameter.path!r} was changed" if self.parameter.path else "a parameter was changed"
        )


#: The guard of the array that contains the values of a tensor, perhaps as a view.
Guard = ChangeGuard | ParameterGuard


def digest_of(array: NDArray) -> int:
    """Return a number that differs, almost certainly, after a write to the array."""
    if type(array) is not np.ndarray:
        return 0
    if array.size > SAMPLE:
        array = array.ravel("K")[:: -(-array.size // SAMPLE)]
    array = np.ascontiguousarray(array)
    if array.nbytes < LARGE or array.nbytes % 8:
        return crc32(array.data)
    words = array.reshape(-1).view(np.uint64)
    # Two changes of the highest bit cancel in a sum modulo 2^64. So the upper half of a word also changes the lower.
    mixed = words >> np.uint64(32)
    mixed ^= words
    return int(np.dot(mixed, _factors()[: words.size]))


@cache
def _factors() -> NDArray[np.uint64]:
    """Return odd factors for words: any change of one word changes the sum, a change of several almost certainly
    does.
    """
    return np.random.default_rng(0).integers(0, 1 << 63, SAMPLE, np.uint64) * np.uint64(2) + np.uint64(1)


def change_error(guard: Guard, place: Place) -> ValueError:
    """Return the error for a changed array or parameter that the backward pass of an operation reads."""
    return ValueError(
        f"{place.where}: {guard} between the forward pass and backward, which needs its original values. Call "
        "backward() before optimizer.step() and before you write to the array, or pass a copy: array.copy()."
    )


class SplitPart(NamedTuple):
    """The gradient of some elements of a parent; the gradient of the others is zero."""

    by: object  # the operation that split it: its parts share no element
    key: Any
    numbers: NDArray


#: Function that computes the gradient of a parent from the gradient of the result, rounded by the arithmetic.
Derivative = Callable[[Arithmetic, NDArray], NDArray | SplitPart]


class GradientArithmetic(NamedTuple):
    """The arithmetic of a gradient of a parameter, and the same one with an observer that keeps the events."""

    arithmetic: Arithmetic
    observed: Arithmetic
    events: PendingEvents | None  # None if no observer needs them
    is_reusable: bool


class BoundOperation:
    """An operation at its place, on operands that are parameters at certain paths, or activations.

    Its attributes do not depend on the values of the operands. The simulation stores it until the policy changes.
    `paths` are the paths of the operands that are parameters, moved or not. `border` is the place of the outermost
    fused composite around the operation, if there is one.
    """

    def __init__(self, place: Place, paths: tuple[str | None, ...], border: Place | None) -> None:
        self.place, self.paths, self.border = place, paths, border
        self.is_observed = tuple([place.observer is not None and path is not None for path in paths])
        # The arithmetic of the backward pass to each operand, from its first use on, if it does not depend on a format.
        self.to_operands: list[Arithmetic | None] = [None] * len(paths)
        # The arithmetics of gradients of parameters that no backward pass uses now, for each operand.
        self.gradient_arithmetics: tuple[list[GradientArithmetic], ...] = tuple([[] for _ in paths])
        self._inputs_in_format: dict[int, tuple[Format, Input]] = {}

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The rounding of each operand of a contraction, if its format is unknown."""
        return tuple([self.place.input(path) for path in self.paths])

    def input(self, number: int, format: Format | None) -> Input:
        """Return the rounding of an operand of a contraction; `format` is the format of all its values, if it is known.

        The backward pass uses the same values: a guard raises an error if these have changed.
        """
        if format is None:
            return self.inputs[number]
        last_format, last_input = self._inputs_in_format.get(number, (None, None))
        if last_format is not format or last_input is None:
            last_input = self.place.input(self.paths[number], format)
            self._inputs_in_format[number] = format, last_input
        return last_input


class Node(NamedTuple):
    """A recorded operation: its parents, derivatives and place."""

    parents: tuple[Variable, ...]
    derivatives: tuple[Derivative, ...]
    bound: BoundOperation
    formats: tuple[Format, ...]  # formats of the parents, if gradients take them
    origin: Guard  # guard of the values of the result
    guards: Sequence[Guard] = ()  # guards of the arrays that derivatives read
    read: tuple[NDArray, ...] = ()  # the operands of a contraction as used
    inside: Sequence[Place] = ()  # places of the steps of a composite that a formula computed

    @property
    def place(self) -> Place:
        """The place of the operation."""
        return self.bound.place

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The paths of the parents that are parameters, moved or not."""
        return self.bound.paths

    def arithmetic(self, number: int) -> Arithmetic:
        """Return the arithmetic of the backward pass to parent `number`."""
        format = self.formats[number] if self.formats else None
        arithmetic = self.place.to_operand(self.paths[number], number, format)
        if format is None:
            self.bound.to_operands[number] = arithmetic
        return arithmetic

    def to_stored(self, number: int, arithmetic: Arithmetic) -> Arithmetic:
        """Return the arithmetic that adds a gradient of this arithmetic to the gradient of an earlier backward pass, if
        gradients take formats.
        """
        path = self.paths[number]
        own_format = (
            self.parents[number].stored_format if path is None else self.place.recipe_of_parameter(path).weights
        )
        return self.place.to_stored(path, number, own_format).with_observer(arithmetic.target.observer)


class GradientScaler(Protocol):
    """Scales gradients in the backward pass of a variable, as a layer-wise loss scale does."""

    def rescale(
        self, variable: Variable, node: Node, number: int, gradient: NDArray, before: NDArray | None
    ) -> tuple[NDArray, NDArray | None]:
        """Return the scaled gradient of `variable`, the result of `node`, for parent `number`, and the scaled
        `before`.

        `before` is the gradient of the parent so far. Both are multiplied by factors that make their contributions
        addable.
        """


class Variable:
    """An array of values, their format and gradient, and the operation that computed them.

    `numbers` is the array itself, for operations to read. `format` is None for input data, which are not rounded.
    """

    is_weight = False  # True if its gradient has the role of a weight
    moved: Variable | None = None  # the parameter of which this is a moved view; it is used as a weight
    trace: Variable | None = None  # the variable that the record keeps, if it is another one
    current_format: Format | None = None  # a format that contains all current values, if one is known
    gradient_scaler: GradientScaler | None = None  # for backward passes that start here
    made_with: Streams | None = None  # the random streams of the simulation that computed it, if it used them

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
        """The path in a model, for parameters; otherwise empty."""
        return ""

    @property
    def _outermost(self) -> Any:
        """The module at which the path begins, for parameters that a module owns; otherwise None."""
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
        """True if it is not the result of a recorded operation."""
        return self.node is None

    @property
    def origin(self) -> Guard:
        """The guard of its array, which belongs to an operation, a parameter or the caller."""
        if self.is_weight:
            return ParameterGuard(self if self.trace is None else self.trace, self.numbers, self.format)
        return guard_of(self.numbers) if self.node is None else self.node.origin

    @property
    def stored_format(self) -> Format:
        """The format of the values; for input data FP32 or FP64, as in the array."""
        return self.format or (FP32 if self.numbers.dtype == np.float32 else FP64)

    @property
    def grad(self) -> NDArray[np.floating] | None:
        """The gradient, an array with the shape of the data; None before `backward`.

        It may be assigned. Raises ValueError for another shape, and for a value that is not an array of numbers.
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
        self._grad = gradient

    def operand_in(self, simulation: Simulation) -> Variable:
        """Return the operand that operations read: the variable, or a parameter rounded to its weights format."""
        return self.operand_at(simulation.update_place(self)) if self.is_weight else self

    def operand_at(self, place: Place) -> Variable:
        """Return the operand that operations read; for a parameter, rounded to the weights of this update place."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        if self.node is not None:
            raise ValueError(
                "The result of an operation cannot be copied or pickled with its history: use tensor.detach(), or the "
                "leaf tensors from which it was computed."
            )
        return {**vars(self), "made_with": None, "moved": None}


class Trace(Variable):
    """The history of a result, with its shape and format, as the record keeps it for the backward pass.

    Derivatives keep the arrays that they read; an array that none of them reads is freed with the tensor.
    """

    def __init__(self, result: Variable) -> None:
        self.requires_grad, self.format, self.node = result.requires_grad, result.format, result.node
        self._shape = result.numbers.shape
        self._grad = None
        result.trace = self

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
    """Return `x` if it is a variable, otherwise a constant variable."""
    return x if isinstance(x, Variable) else Variable(as_operand(x, "data"))
