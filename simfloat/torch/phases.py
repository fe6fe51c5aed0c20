"""Where an operation stands in the training step, and what follows for its roundings: forward, backward or update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from numpy.typing import NDArray

from simfloat.formats import Format
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Arithmetic, Input, PendingEvents
from simfloat.simulation.place import Place, widest_format
from simfloat.torch.forward_log import LoggedOperation, Operand, observed_at, pending_events_at
from simfloat.torch.optimizers import OptimizerSteps
from simfloat.torch.tensors import FORMAT_OF, Tag, numbers_of, put_tag, stored_format, tag_of, tensor_of, weight_path

Tensors = Sequence[torch.Tensor]

#: Operations that PyTorch carries out together with the addition of a bias.
WITH_BIAS = ("linear", "matmul", "conv2d", "conv_transpose2d")

#: Under this name the memory of a gradient has what it was rounded to where it entered a node, and when.
ROUNDED_ON_ENTRY = "_simfloat_entered"

# A rule that returns several gradients is one call for PyTorch, and often several operations in its turn: the name of
# the operand has to reach them through dispatch, where there are no arguments for it.
_target: ContextVar[int | None] = ContextVar("simfloat.torch target operand", default=None)


@contextmanager
def target_operand(number: int) -> Iterator[None]:
    """Names the operand whose gradient is computed, where a composite's backward pass computes several.

    It is the operand of this number of the forward operation.
    """
    token = _target.set(number)
    try:
        yield
    finally:
        _target.reset(token)


def target_number() -> int | None:
    """The number of the operand whose gradient is computed; None where the rule does not name it."""
    return _target.get()


def current_number() -> int | None:
    """The number of the node of autograd that computes; None outside of backward passes."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


class Forward:
    """An operation of the forward pass."""

    def __init__(self, place: Place, simulation: Simulation, note: LoggedOperation | None = None) -> None:
        self.place, self.simulation, self.note = place, simulation, note

    def in_type(self, dtype: torch.dtype) -> None:
        """Stand in a type of the program's own from now on."""
        self.place = self.place.in_type(FORMAT_OF[dtype])

    @property
    def is_fused(self) -> bool:
        """Whether it is a composite that computes in the format of `reduce`, and rounds its result once."""
        return self.place.recipe.fused

    def sibling(self, operation: str, format: Format) -> Forward:
        """That of another operation in the same place, on a result of this format."""
        place = self.simulation.sibling(self.place, operation, self.place.path, self.place.operations[:-1])
        return ForwardInFormat(place, self.simulation, self.note, format)

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """The arithmetic of the result."""
        if not self.place.is_widest:
            return self.place.forward
        # As in array promotion, constants without axes do not count beside arrays.
        counting = [x for x in operands if x.ndim or tag_of(x).format is not None] or operands
        # A constant without a tag is data. Beside tensors it would make results FP32 whatever their formats are.
        return self.place.forward_in(widest_format(stored_format(x) for x in counting))

    def total(self, arithmetic: Arithmetic, a: NDArray, b: NDArray) -> tuple[Format, NDArray]:
        """a + b as the result, and its format."""
        return arithmetic.format, arithmetic.add(a, b)

    def round_selected(self, arithmetic: Arithmetic, x: NDArray) -> tuple[Format, NDArray]:
        """Numbers that were found among operands as the result, and their format."""
        return arithmetic.format, arithmetic.round(x)

    def is_last_addition(self) -> bool:
        """Whether the operation adds to a parameter or to a moment of an optimizer."""
        return False

    def inputs(self, a: torch.Tensor, b: torch.Tensor) -> tuple[Input, Input]:
        """How both operands of a contraction are rounded."""
        # By the type of each: a program's own float8 operands may have two types, E4M3 forward and E5M2 for gradients.
        return self._of_type(a).input(weight_path(a)), self._of_type(b).input(weight_path(b))

    def _of_type(self, x: torch.Tensor) -> Place:
        """The place in the type of an operand, which counts where the policy is written for a program's types."""
        return self.place.in_type(FORMAT_OF[x.dtype])

    def tag(self, format: Format, operands: Tensors) -> Tag:
        """Return the tag of the result."""
        if self.note is not None:
            self.note.format = format
        return Tag(format)


class ForwardInFormat(Forward):
    """An operation of the forward pass whose result has a given format where others take the widest of operands.

    It is that of a product to which a bias is added, and of the operand that a result is written into.
    """

    def __init__(self, place: Place, simulation: Simulation, note: LoggedOperation | None, format: Format) -> None:
        super().__init__(place, simulation, note)
        self.format = format

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """The arithmetic of the result."""
        return self.place.forward_in(self.format) if self.place.is_widest else self.place.forward


class Backward(Forward):
    """An operation of the backward pass of the operation that a note tells of."""

    def __init__(
        self,
        note: LoggedOperation,
        simulation: Simulation,
        operand: Operand | None,
        pending_events: list[PendingEvents] | None = None,
    ) -> None:
        # The place is that of the forward operation, with the policy that was in force then: a policy that is switched
        # between forward and backward pass changes nothing.
        super().__init__(note.place, simulation)
        self.forward_note, self.operand = note, operand  # whose gradient is computed
        self._pending_events = (
            pending_events  # where the events of a rounding are kept until it is known if it was the last one
        )
        self._events: PendingEvents | None = None

    def sibling(self, operation: str, format: Format) -> Forward:
        """The backward pass of one operation is that of one place."""
        return self

    def to_operand(self, number: int) -> Backward:
        """The operation as one that computes the gradient of the operand of this number."""
        return Backward(self.forward_note, self.simulation, self.forward_note.operand(number), self._pending_events)

    def inside(self, operation: str) -> Backward:
        """An operation inside of a fused composite, on the same way."""
        place = self.simulation.sibling(self.place, operation, self.place.path, self.place.operations)
        return Backward(
            LoggedOperation(place, self.forward_note.operands), self.simulation, self.operand, self._pending_events
        )

    def has_bias(self) -> bool:
        """Whether the operation adds a bias to a contraction; a product of three operands is a composite."""
        way = self.forward_note
        if way.is_composite or way.is_of_backward:
            return False
        return self.place.operation in WITH_BIAS and len(way.operands) == 3

    def is_of_bias(self, operation: str) -> bool:
        """Whether an operation is one of the addition of the bias: its sums, and all that reaches it."""
        # One node of PyTorch's, addmm or convolution, has two operations of a policy, the product and the addition. The
        # sum over rows is the only operation of the formula that concerns the bias.
        return self.has_bias() and (operation == "sum" or self.operand == self.forward_note.operands[2])

    def of_bias(self) -> Backward:
        """The backward pass of the addition of the bias, on the way to it."""
        way = self.forward_note
        addition = self.simulation.sibling(self.place, "add", self.place.path, self.place.operations[:-1])
        # Operand 1 of the addition is operand 2 of the node. Random bits belong to the place, which is that of the
        # addition.
        bias = way.operands[2]._replace(number=1, format=way.format or way.operands[2].format)
        return Backward(
            LoggedOperation(addition, (way.operands[0], bias), way.format), self.simulation, bias, self._pending_events
        )

    @property
    def may_narrow(self) -> bool:
        """Whether gradients that enter the operation may have another format than those of its result."""
        return self.forward_note.format is not None and (self.place.takes_formats or self.has_bias())

    def in_result_format(self, x: torch.Tensor) -> torch.Tensor:
        """A gradient in the format that the gradients of the operation's result have.

        Autograd hands on what an addition passes back, where a rounding belongs: to the other format that the operand
        of the addition may have, or that its recipe may ask for. What the node itself made does not enter it.
        """
        tag, format = tag_of(x), self.forward_note.format
        if not tag.is_gradient or format is None or tag.node == current_number():
            return x
        # Nodes are numbered in the order of the program: a gradient that was there when this operation ran has a
        # smaller one.
        if self.forward_note.is_of_backward and (tag.node or 0) < (current_number() or 0):
            return x  # a gradient that the operation itself read, made before it
        place = self.place
        if self.has_bias():
            place = self.simulation.sibling(place, "add", place.path, place.operations[:-1])
        elif not place.takes_formats:
            return x
        arithmetic = place.to_activation(0, format)
        if arithmetic.format == tag.format:
            return x
        return self._round_once(x, tag, arithmetic)

    def _round_once(self, x: torch.Tensor, tag: Tag, arithmetic: Arithmetic) -> torch.Tensor:
        """A gradient rounded when its node first reads it: other operations of the node read the same numbers."""
        # The formula of addmm reads the gradient twice, once transposed, and that of a norm for three operands. One
        # rounding is right, and events count once. The task's number is part of the key, because a second backward pass
        # through a retained graph may hand on the same memory, and is rounded again.
        storage, passing = x.untyped_storage(), torch._C._current_graph_task_id()
        now = passing, current_number(), arithmetic.format, x.storage_offset()
        before, shape, strides, rounded = getattr(storage, ROUNDED_ON_ENTRY, (None, (), (), x))
        if now == before and (x.shape, x.stride()) == (shape, strides):
            return rounded
        # A transposed view has shape and strides exchanged; its numbers are those of the rounded tensor, transposed.
        if now == before and x.ndim == 2 and (x.shape, x.stride()) == (shape[::-1], strides[::-1]):
            return rounded.t()
        rounded = tensor_of(arithmetic.round(numbers_of(x)), x.dtype)
        put_tag(rounded, tag._replace(format=arithmetic.format))
        setattr(storage, ROUNDED_ON_ENTRY, (now, x.shape, x.stride(), rounded))
        return rounded

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """That of the gradient of the operand which it reaches."""
        if self.operand is None:
            return self.place.to_activation(0, widest_format(map(stored_format, operands)))
        number, path, format, _ = self.operand
        if path is None:
            return self.place.to_activation(number, format)
        return self._to_weight(path, self.place.to_weight(path, number, format))

    def _to_weight(self, path: str, arithmetic: Arithmetic) -> Arithmetic:
        """The arithmetic of a parameter's gradient, whose events are passed on once it is known if it is complete."""
        # Autograd may add this to other shares. Whether an observer hears of it at the parameter's path is known at the
        # leaf.
        self._events = pending_events_at(self.place, path)
        if self._events is None:
            return arithmetic
        if self._pending_events is not None:
            self._pending_events.append(self._events)
        return arithmetic.with_observer(self._events)

    def inputs(self, a: torch.Tensor, b: torch.Tensor) -> tuple[Input, Input]:
        """One operand is a gradient, the other one is not."""
        are_gradients = [tag_of(x).is_gradient for x in (a, b)]
        first, second = (
            self._of_type(x).gradient if is_gradient else self._of_type(x).input(weight_path(x))
            for x, is_gradient in zip((a, b), are_gradients, strict=True)
        )
        return first, second

    def tag(self, format: Format, operands: Tensors) -> Tag:
        """A gradient."""
        # Operations of a formula on forward values alone, such as a mask, make no gradients: a product with one rounds
        # them as an activation. Guessing by shape was wrong where an activation and a gradient have one shape.
        is_gradient = not operands or any([tag_of(x).is_gradient for x in operands])
        return Tag(format, is_gradient, node=current_number(), events=self._events)


class GradientSum(Backward):
    """An addition of gradients that reach one operand from several places; none of them enters an operation."""

    def is_of_bias(self, operation: str) -> bool:
        """Return False: the shares that are added up have been computed before."""
        return False

    @property
    def may_narrow(self) -> bool:
        """No: a gradient is added as it is."""
        return False

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """That of the gradient which is added up; shares of a parameter that was moved keep their own format.

        Automatic mixed precision casts a parameter once for all products, whose gradients so meet in narrow numbers.
        """
        if self.forward_note.weight is not None and self.operand is not None:
            self.operand = self.operand._replace(format=widest_format(map(stored_format, operands)))
        return super().arithmetic(operands)


class CompleteGradient(Backward):
    """An operation on a complete gradient: mostly the addition to what earlier backward passes left in `.grad`."""

    #: Whether it is that addition, and no operation of a hook.
    is_addition = False

    def _to_weight(self, path: str, arithmetic: Arithmetic) -> Arithmetic:
        """That of what is stored, whose events an observer receives at the parameter's path."""
        if self.operand is not None:
            arithmetic = self.place.to_stored(path, self.operand.number, self.operand.format)
        return observed_at(path, self.place, arithmetic)


class ParameterPhase(Forward):
    """An operation on what belongs to a parameter, outside of forward and backward passes: all have one place."""

    @property
    def is_fused(self) -> bool:
        """No: it is no part of the model's passes, in which composites are fused."""
        return False

    def sibling(self, operation: str, format: Format) -> Forward:
        """The phase itself: all operations on what belongs to a parameter have one place."""
        return self


class Clipping(ParameterPhase):
    """An operation on gradients outside of a backward pass and of an optimizer."""

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """That by which gradients are clipped."""
        return self.place.to_clipped

    def tag(self, format: Format, operands: Tensors) -> Tag:
        """A gradient still."""
        return Tag(format, True, self.place.path or None)


class ReplicaMean(Clipping):
    """The multiplication of a gradient that makes it one replica's share of the mean over all of them."""

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """That by which gradients of replicas become that of all."""
        return self.place.to_replicas


class Update(ParameterPhase):
    """An operation of an optimizer on what belongs to one parameter, written to `into` if that is known."""

    def __init__(self, place: Place, simulation: Simulation, optimizing: OptimizerSteps, into: Tag) -> None:
        super().__init__(place, simulation)
        self.optimizing, self.into = optimizing, into

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """That of an optimizer before its last addition."""
        return self.place.to_update

    def inputs(self, a: torch.Tensor, b: torch.Tensor) -> tuple[Input, Input]:
        """Operands of an optimizer's products are no parameters."""
        return self._of_type(a).input(), self._of_type(b).input()

    def is_last_addition(self) -> bool:
        """Whether the operation adds to a parameter or to a moment of an optimizer."""
        return self.into.is_weight or bool(self.into.moment)

    def round_selected(self, arithmetic: Arithmetic, x: NDArray) -> tuple[Format, NDArray]:
        """Numbers that were found among operands, in the moment's format where they become one."""
        if self.into.moment:
            arithmetic = self.optimizing.to_moment(self.place, self.into.moment, x.size)
        return super().round_selected(arithmetic, x)

    def total(self, arithmetic: Arithmetic, a: NDArray, b: NDArray) -> tuple[Format, NDArray]:
        """a + b: the policy's last addition if it goes to a parameter, a moment's if it goes there."""
        if self.into.is_weight:
            return self.place.recipe.weights, self.optimizing.last_addition(self.place, a, b)
        if self.into.moment:
            arithmetic = self.optimizing.to_moment(self.place, self.into.moment, max(a.size, b.size))
            return arithmetic.format, arithmetic.add(a, b)
        return arithmetic.format, arithmetic.add(a, b)

    def tag(self, format: Format, operands: Tensors) -> Tag:
        """Something of the parameter's."""
        return Tag(format, owner=self.place.path)
