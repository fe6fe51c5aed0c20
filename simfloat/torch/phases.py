"""Determine the phase of an operation in a training step (forward, backward or update), and its roundings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from numpy.typing import NDArray

from simfloat.formats import FP32, Format
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Arithmetic, Input, PendingEvents
from simfloat.simulation.place import Place, contains, widest_format
from simfloat.torch.forward_log import LoggedOperation, Operand, observed_at, pending_events_at
from simfloat.torch.optimizers import OptimizerSteps
from simfloat.torch.tensors import (
    FORMAT_OF,
    Tag,
    before_upcast,
    numbers_of,
    put_tag,
    stored_format,
    tag_of,
    tensor_of,
    weight_path,
)

Tensors = Sequence[torch.Tensor]

#: Operations that PyTorch carries out together with the addition of a bias.
WITH_BIAS = ("linear", "matmul", "conv2d", "conv_transpose2d")

#: The attribute of a gradient's memory with the rounded copy from its entry to a node, and a key that shows if the copy
#: is valid.
ROUNDED_ON_ENTRY = "_simfloat_entered"

# For PyTorch, a rule that returns several gradients is one call, and it often consists of several operations. They
# receive the number of the operand through this variable, because dispatch has no argument for it.
_target: ContextVar[tuple[int | None, str]] = ContextVar("simfloat.torch target operand", default=(None, ""))

#: Returns the number of the operand whose gradient is computed, or None if the rule does not name it; and the name of
#: the forward operation, or "" if it is the operation of the node.
target_of_rule = _target.get


@contextmanager
def target_operand(number: int, operation: str = "") -> Iterator[None]:
    """Set the operand whose gradient is computed, in the backward pass of a composite that computes several gradients.

    `number` is the number of the operand in the forward operation. If a node consists of several operations,
    `operation` is the name of the one that the gradient belongs to.
    """
    token = _target.set((number, operation))
    try:
        yield
    finally:
        _target.reset(token)


def current_number() -> int | None:
    """Return the number of the autograd node that computes; None outside backward passes."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


class Forward:
    """An operation of the forward pass."""

    def __init__(self, place: Place, simulation: Simulation, note: LoggedOperation | None = None) -> None:
        self.place, self.simulation, self.note = place, simulation, note

    def in_type(self, dtype: torch.dtype) -> None:
        """Change the place to a dtype of the program."""
        if self.place.is_written:
            self.place = self.place.in_type(FORMAT_OF[dtype])

    @property
    def is_fused(self) -> bool:
        """True for a composite that computes in the format of `reduce`, and rounds its result once."""
        return self.place.is_fused

    def sibling(self, operation: str, format: Format) -> Forward:
        """Return the phase of another operation in the same place, with a result of this format."""
        place = self.simulation.sibling(self.place, operation, self.place.path, self.place.operations[:-1])
        return ForwardInFormat(place, self.simulation, self.note, format)

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """Return the arithmetic of the result."""
        if not self.place.is_widest:
            return self.place.forward
        # As in PyTorch's promotion, 0-dimensional operands do not count next to others. A constant without a tag is
        # data. Together with results it would make results FP32 in every case.
        counting = [x for x in operands if x.ndim] or [x for x in operands if tag_of(x).format is not None] or operands
        return self.place.forward_in(widest_format(stored_format(x) for x in counting))

    def total(self, arithmetic: Arithmetic, a: NDArray, b: NDArray) -> tuple[Format, NDArray]:
        """Return the format of the result a + b, and its value."""
        return arithmetic.format, arithmetic.add(a, b)

    def round_selected(self, arithmetic: Arithmetic, x: NDArray) -> tuple[Format, NDArray]:
        """Return the format of values that were chosen among operands, and the values as a result."""
        return arithmetic.format, arithmetic.round(x)

    def is_last_addition(self) -> bool:
        """True if the operation adds to a parameter or to a moment of an optimizer."""
        return False

    def inputs(self, a: torch.Tensor, b: torch.Tensor) -> tuple[Input, Input]:
        """Return the roundings of both operands of a contraction."""
        # The dtype of each operand counts: the float8 operands of a program may have two types, E4M3 in the forward
        # pass and E5M2 for gradients.
        return self._of_type(a).input(weight_path(a)), self._of_type(b).input(weight_path(b))

    def _of_type(self, x: torch.Tensor) -> Place:
        """Return the place in the dtype of an operand, for policies that are written for dtypes of a program."""
        return self.place.in_type(FORMAT_OF[x.dtype])

    def tag(self, format: Format, operands: Tensors) -> Tag:
        """Return the tag of the result."""
        if self.note is not None:
            self.note.format = format
            if self.place.is_widest:
                self._narrow_operands_without_axes(self.note, operands)
        if self.place.narrow is None and not (self.place.takes_formats and format.precision >= FP32.precision):
            return Tag(format)
        return Tag(format, narrow=before_upcast(operands))

    @staticmethod
    def _narrow_operands_without_axes(note: LoggedOperation, operands: Tensors) -> None:
        """Note that gradients of 0-dimensional operands are summed in the format of the result, if it is narrower."""
        format = note.format
        if format is not None and any([not x.ndim for x in operands]) and len(note.operands) == len(operands):
            note.operands = tuple(
                [
                    operand._replace(format=format) if not x.ndim and contains(operand.format, format) else operand
                    for operand, x in zip(note.operands, operands, strict=True)
                ]
            )


class ForwardInFormat(Forward):
    """An operation of the forward pass with a given format of the result, instead of the widest format of the operands.

    Examples are a product to which a bias is added, and an operation with a result that is written to an operand.
    """

    def __init__(self, place: Place, simulation: Simulation, note: LoggedOperation | None, format: Format) -> None:
        super().__init__(place, simulation, note)
        self.format = format

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """Return the arithmetic of the result."""
        return self.place.forward_in(self.format) if self.place.is_widest else self.place.forward


class Backward(Forward):
    """An operation in the backward pass of a noted operation."""

    def __init__(
        self,
        note: LoggedOperation,
        simulation: Simulation,
        operand: Operand | None,
        pending_events: list[PendingEvents] | None = None,
    ) -> None:
        # The place and the policy belong to the forward operation: a change of the policy between forward and backward
        # pass has no effect.
        self.place, self.simulation, self.note = note.place, simulation, None
        self.forward_note, self.operand = note, operand  # the operand of the gradient
        self._pending_events = pending_events  # keeps the events of a rounding until it is known if it was the last one
        self._events: PendingEvents | None = None

    def sibling(self, operation: str, format: Format) -> Forward:
        """Return this phase: the backward pass of an operation has one place."""
        return self

    def to_operand(self, number: int) -> Backward:
        """Return the phase for the gradient of the operand of this number."""
        return Backward(self.forward_note, self.simulation, self.forward_note.operand(number), self._pending_events)

    def inside(self, operation: str) -> Backward:
        """Return the phase of an operation inside a composite that is rounded once, for the same operand."""
        place = self.simulation.sibling(self.place, operation, self.place.path, self.place.operations)
        return Backward(
            LoggedOperation(place, self.forward_note.operands), self.simulation, self.operand, self._pending_events
        )

    def has_bias(self) -> bool:
        """True if the operation adds a bias to a contraction; a product of three operands is a composite."""
        way = self.forward_note
        if way.is_composite or way.is_of_backward:
            return False
        return self.place.operation in WITH_BIAS and len(way.operands) == 3

    def is_of_bias(self, operation: str) -> bool:
        """True if an operation belongs to the addition of the bias: its sums, and all operations for its gradient."""
        # One node of PyTorch (addmm or convolution) corresponds to two operations of a policy, the product and the
        # addition. The sum over rows is the only operation of the formula that belongs to the bias.
        has_three = len(self.forward_note.operands) == 3
        return has_three and self.has_bias() and (operation == "sum" or self.operand == self.forward_note.operands[2])

    def of_bias(self) -> Backward:
        """Return the phase for the gradient of the bias, in the backward pass of the addition."""
        way = self.forward_note
        addition = self.simulation.sibling(self.place, "add", self.place.path, self.place.operations[:-1])
        # Operand 1 of the addition is operand 2 of the node. Random bits belong to the place of the addition.
        bias = way.operands[2]._replace(number=1, format=way.format or way.operands[2].format)
        return Backward(
            LoggedOperation(addition, (way.operands[0], bias), way.format), self.simulation, bias, self._pending_events
        )

    @property
    def may_narrow(self) -> bool:
        """True if gradients that enter the operation may have another format than the gradients of its result."""
        note = self.forward_note
        return note.format is not None and (self.place.takes_formats or len(note.operands) == 3 and self.has_bias())

    def in_result_format(self, x: torch.Tensor) -> torch.Tensor:
        """Return a gradient in the format of the gradients of the operation's result.

        An addition passes a gradient on unchanged in autograd, although a rounding belongs there: its operand may have
        another format, or its recipe may require one. Results of the node itself are not rounded.
        """
        tag, format = tag_of(x), self.forward_note.format
        if not tag.is_gradient or format is None or tag.node == current_number():
            return x
        # Nodes are numbered in program order: a gradient that existed when this operation ran has a smaller number.
        if self.forward_note.is_of_backward and (tag.node or 0) < (current_number() or 0):
            return x  # an earlier gradient that the operation itself read
        if not self.has_bias() and not self.place.takes_formats:
            return x
        arithmetic = self._place_of_result.to_activation(0, format)
        if arithmetic.format == tag.format:
            return x
        return self._round_once(x, tag, arithmetic)

    @property
    def _place_of_result(self) -> Place:
        """The place of the last operation of the forward pass: of the addition of the bias, if there is one."""
        place = self.place
        return self.simulation.sibling(place, "add", place.path, place.operations[:-1]) if self.has_bias() else place

    @property
    def format_of_gradient(self) -> Format | None:
        """The format of the gradient of the operation's result; None if the format of the result is unknown."""
        format = self.forward_note.format
        return None if format is None else self._place_of_result.format_of_gradient(format)

    def _round_once(self, x: torch.Tensor, tag: Tag, arithmetic: Arithmetic) -> torch.Tensor:
        """Round a gradient when its node first reads it; other operations of the node read the same values."""
        # The formula of addmm reads the gradient twice, once transposed, and the formula of a norm reads it for three
        # operands. There is only one rounding, and its events count once. The task number is part of the key, because a
        # second backward pass through a retained graph may pass on the same memory, and that is rounded again.
        storage, passing = x.untyped_storage(), torch._C._current_graph_task_id()
        now = passing, current_number(), arithmetic.format, x.storage_offset()
        before, shape, strides, rounded = getattr(storage, ROUNDED_ON_ENTRY, (None, (), (), x))
        if now == before and (x.shape, x.stride()) == (shape, strides):
            return rounded
        # A transposed view has shape and strides exchanged; its values are those of the rounded tensor, transposed.
        if now == before and x.ndim == 2 and (x.shape, x.stride()) == (shape[::-1], strides[::-1]):
            return rounded.t()
        rounded = tensor_of(arithmetic.round(numbers_of(x)), x.dtype)
        put_tag(rounded, tag._replace(format=arithmetic.format))
        setattr(storage, ROUNDED_ON_ENTRY, (now, x.shape, x.stride(), rounded))
        return rounded

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """Return the arithmetic of the operand's gradient."""
        if self.operand is None:
            return self.place.to_activation(0, widest_format(map(stored_format, operands)))
        number, path, format, _ = self.operand
        if path is None:
            return self.place.to_activation(number, format)
        return self._to_weight(path, self.place.to_weight(path, number, format))

    def _to_weight(self, path: str, arithmetic: Arithmetic) -> Arithmetic:
        """Return the arithmetic of a parameter's gradient; its events are kept until the gradient is complete."""
        # Autograd may add other shares to this gradient. Only at the leaf it is known if an observer receives its
        # events at the parameter's path.
        self._events = pending_events_at(self.place, path)
        if self._events is None:
            return arithmetic
        if self._pending_events is not None:
            self._pending_events.append(self._events)
        return arithmetic.with_observer(self._events)

    def inputs(self, a: torch.Tensor, b: torch.Tensor) -> tuple[Input, Input]:
        """Return the roundings of both operands of a contraction: one is a gradient, the other is not."""
        are_gradients = [tag_of(x).is_gradient for x in (a, b)]
        first, second = (
            self._of_type(x).gradient if is_gradient else self._of_type(x).input(weight_path(x))
            for x, is_gradient in zip((a, b), are_gradients, strict=True)
        )
        return first, second

    def tag(self, format: Format, operands: Tensors) -> Tag:
        """Return the tag of a gradient."""
        # Operations of a formula that read only forward values, such as a mask, do not compute gradients: a product
        # with their result rounds it as an activation. Guessing by shape failed for activations and gradients of equal
        # shape.
        is_gradient = not operands
        for x in operands:
            if tag_of(x).is_gradient:  # mostly the first one
                is_gradient = True
                break
        return Tag(format, is_gradient, node=current_number(), events=self._events)


class GradientSum(Backward):
    """An addition, in autograd's engine, of gradients that reach one operand from several nodes."""

    #: The format of the gradient of a result; None for a leaf.
    own_format: Format | None = None

    def is_of_bias(self, operation: str) -> bool:
        """True if the shares are gradients of the bias: their sum has the place of the addition, like each share."""
        return self.has_bias() and self.operand is not None and self.operand.number == 2

    def of_bias(self) -> Backward:
        """Return the phase of the sum at the place of the addition."""
        share = super().of_bias()
        way = GradientSum(share.forward_note, self.simulation, share.operand, self._pending_events)
        way.own_format = self.own_format
        return way

    @property
    def may_narrow(self) -> bool:
        """False: a gradient is added unchanged."""
        return False

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """Return the arithmetic of the sum; for a leaf, or a moved parameter, the shares determine the format.

        Automatic mixed precision casts a leaf once for all products, so their gradients are added in a narrow format.
        Each use of a result has its own cast, so its gradients are added in the format of the result.
        """
        if self.forward_note.weight is not None and self.operand is not None:
            self.operand = self.operand._replace(format=widest_format(map(stored_format, operands)))
        arithmetic = super().arithmetic(operands)
        if not self.place.takes_formats:
            return arithmetic
        return arithmetic.in_format(self.own_format or widest_format(map(stored_format, operands)))


class CompleteGradient(Backward):
    """An operation on a complete gradient, mostly its addition to `.grad` after an earlier backward pass."""

    #: True for this addition; False for an operation of a hook.
    is_addition = False

    def _to_weight(self, path: str, arithmetic: Arithmetic) -> Arithmetic:
        """Return the arithmetic of the stored gradient, with events at the path of the parameter."""
        if self.operand is not None:
            arithmetic = self.place.to_stored(path, self.operand.number, self.operand.format)
        return observed_at(path, self.place, arithmetic)


class ParameterPhase(Forward):
    """An operation on tensors of a parameter, outside forward and backward passes; all these have one place."""

    @property
    def is_fused(self) -> bool:
        """False: composites are rounded once only in the passes of the model."""
        return False

    def sibling(self, operation: str, format: Format) -> Forward:
        """Return this phase: all operations on tensors of a parameter have one place."""
        return self


class Clipping(ParameterPhase):
    """An operation on gradients outside a backward pass and outside an optimizer."""

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """Return the arithmetic of clipped gradients."""
        return self.place.to_clipped

    def tag(self, format: Format, operands: Tensors) -> Tag:
        """Return the tag of a gradient."""
        return Tag(format, True, self.place.path or None)


class ReplicaMean(Clipping):
    """The multiplication of a gradient that computes the share of one replica in the mean over all."""

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """Return the arithmetic of the mean over replicas."""
        return self.place.to_replicas


class Update(ParameterPhase):
    """An operation of an optimizer on tensors of one parameter, written to `into` if that is known."""

    def __init__(self, place: Place, simulation: Simulation, optimizing: OptimizerSteps, into: Tag) -> None:
        super().__init__(place, simulation)
        self.optimizing, self.into = optimizing, into

    def arithmetic(self, operands: Tensors) -> Arithmetic:
        """Return the arithmetic of an optimizer before its last addition."""
        return self.place.to_update

    def inputs(self, a: torch.Tensor, b: torch.Tensor) -> tuple[Input, Input]:
        """Return the roundings of both operands of a product: operands of an optimizer are not parameters."""
        return self._of_type(a).input(), self._of_type(b).input()

    def is_last_addition(self) -> bool:
        """True if the operation adds to a parameter or to a moment of an optimizer."""
        return self.into.is_weight or bool(self.into.moment)

    @property
    def _is_moment(self) -> bool:
        """True if the operation writes a moment, which is rounded at once unless its cast has a scale."""
        return bool(self.into.moment) and self.place.moment_cast.scale is None

    def round_selected(self, arithmetic: Arithmetic, x: NDArray) -> tuple[Format, NDArray]:
        """Return values that were chosen among operands, in the format of the moment if they become one."""
        if self._is_moment:
            arithmetic = self.optimizing.to_moment(self.place, self.into.moment, x.size)
        return super().round_selected(arithmetic, x)

    def total(self, arithmetic: Arithmetic, a: NDArray, b: NDArray) -> tuple[Format, NDArray]:
        """Return a + b: the last addition of the policy for a parameter, or the addition of a moment."""
        if self.into.is_weight:
            return self.place.recipe.weights, self.optimizing.last_addition(self.place, a, b)
        if self._is_moment:
            arithmetic = self.optimizing.to_moment(self.place, self.into.moment, max(a.size, b.size))
        return arithmetic.format, arithmetic.add(a, b)

    def tag(self, format: Format, operands: Tensors) -> Tag:
        """Return the tag of a tensor of the parameter."""
        return Tag(format, owner=self.place.path)
