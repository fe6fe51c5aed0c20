"""The end of a backward pass: where a gradient is complete and becomes that of a parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from simfloat.arithmetic.observer import wants
from simfloat.formats import Format, nearest_even
from simfloat.policy.role_types import WIDEST
from simfloat.simulation import Simulation
from simfloat.simulation.place import Place
from simfloat.simulation.widest import contains
from simfloat.torch.forward_log import LoggedOperation, Operand
from simfloat.torch.narrowing import StraightThroughRounding
from simfloat.torch.observing import observed_at
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.phases import Backward, CompleteGradient, Forward, ReplicaMean
from simfloat.torch.tags import FORMAT_OF, Tag, put_own_tag, stored_format, tag_of, weight_path
from simfloat.torch.tensor_arrays import WIDE

current_node = torch._C._current_autograd_node


class Gradients:
    """The gradients of a run's parameters."""

    def __init__(self, simulation: Simulation, made_by: Callable[[int], LoggedOperation | None]) -> None:
        self._simulation = simulation
        self._made_by = made_by  # finds the operation whose node of autograd has a number
        self.policy_place: Place | None = None  # whose policy the backward pass that runs follows

    def phase(self, node: Any, operation: str, operands: Sequence[torch.Tensor]) -> Forward:
        """Where an operation on a leaf's gradient stands: an addition to what `.grad` has, or one of a hook.

        A multiplication among replicas makes it the share of one of them in the mean over all.
        """
        for x in operands:
            if tag_of(x).events is not None:
                tag_of(x).events.release()
        # Under the node of a leaf run the addition to `.grad` and the hooks of the program, those of
        # DistributedDataParallel among them. Their operands tell them apart: a complete gradient has an owner.
        owner = next((tag.owner for x in operands if (tag := tag_of(x)).owner is not None), None)
        if owner is not None and operation in ("multiply", "divide") and are_replicas():
            return ReplicaMean(self._simulation.place("update", owner), self._simulation)
        if owner is None:
            note = self.note(node.variable)
            return Backward(note, self._simulation, note.operands[0])
        leaf = node.variable
        way = self._backward_phase(leaf, weight_path(leaf), stored_format(leaf), tag_of(operands[-1]))
        complete = CompleteGradient(way.forward_note, self._simulation, way.operand)
        # A hook may add as well. Only an operand in the memory of `.grad` makes it the accumulation, which an observer
        # receives at the parameter's path.
        stored = None if leaf.grad is None else leaf.grad.data_ptr()
        complete.is_addition = operation == "add" and any(x.data_ptr() == stored for x in operands)
        return complete

    def note(self, leaf: torch.Tensor) -> LoggedOperation:
        """The leaf as something that an operation of the backward pass reaches: by an addition."""
        path = weight_path(leaf)
        layer = (path or "").rpartition(".")[0]
        simulation, under = self._simulation, self.policy_place
        place = simulation.place("add", layer) if under is None else simulation.sibling(under, "add", layer)
        return LoggedOperation(place.in_type(FORMAT_OF[leaf.dtype]), (Operand(0, path, stored_format(leaf)),))

    def _backward_phase(self, leaf: torch.Tensor, path: str | None, parameter_format: Format, tag: Tag) -> Backward:
        """The way on which a gradient with this tag reached a leaf of this path and format: that of the operation which
        read the parameter.

        Where that is not known, it is an addition in the parameter's layer.
        """
        # The tag names the node that computed the gradient. Its operation is the one that read the parameter, and an
        # override of that operation is in force for the gradient. An addition of several shares, in autograd's engine,
        # has no place of its own.
        note = None if tag.node is None else self._made_by(tag.node)
        read = None if note is None else next((x for x in note.operands if x.path == path), None)
        if note is None or read is None or path is None:
            note = self.note(leaf)
            return Backward(note, self._simulation, note.operands[0])
        way = Backward(note, self._simulation, read)
        way = way.of_bias() if way.has_bias() and read is note.operands[2] else way
        way.in_type(leaf.dtype)
        # A copy of the note, because the place is now that of the leaf's type: the note of the forward pass stays as it
        # was.
        way.forward_note = LoggedOperation(way.place, way.forward_note.operands)
        way.operand = Operand(way.operand.number if way.operand else 0, path, parameter_format)
        return way

    def complete_gradient(
        self, leaf: torch.Tensor, path: str, gradient: torch.Tensor | None, accumulates: bool
    ) -> torch.Tensor | None:
        """The gradient of the parameter at a path, which is complete: rounded to `weight_gradients` if it was not.

        Where that is the parameter's own format, numbers of a narrower one stay as they are. None stands for one that a
        backward pass left out. An observer receives the events of its last rounding at the parameter's path; where
        `.grad` has numbers already, the last rounding is the addition to them, which follows.
        """
        if gradient is None:
            return None
        tag, parameter_format = tag_of(gradient), stored_format(leaf)
        way = self._backward_phase(leaf, path, parameter_format, tag)
        place = way.place
        chosen = place.recipe_of_parameter(path).weight_gradients
        format = parameter_format if chosen == WIDEST else chosen
        where = place.path if accumulates and leaf.grad is not None else path
        has_format = (
            tag.format == format
            or chosen == WIDEST
            and tag.format is not None
            and contains(parameter_format, tag.format)
        )
        # A gradient may have been assembled from parts that were rounded one by one. Events count as those of the last
        # rounding only if they are of all elements.
        is_last = has_format and tag.events is not None and tag.events.count == gradient.numel()
        if tag.events is not None:
            tag.events.release(where if is_last else None)
        if not has_format or not is_last and wants(place.observer, where, "backward"):
            arithmetic = observed_at(
                where, place, place.to_weight(path, way.operand.number if way.operand else 0, parameter_format)
            )
            if has_format:  # only counted, so that an observer draws nothing
                arithmetic = arithmetic.with_rounding(nearest_even)
            gradient = StraightThroughRounding.apply(gradient, arithmetic)
        # Numbers that are of the format already: nothing is rounded, but autograd would copy the tensor if it is a view
        # or is held elsewhere.
        elif accumulates and leaf.grad is None and not torch.is_grad_enabled():
            gradient = _in_own_memory(gradient, leaf)
        # Of this part of the memory only: gradients of several parameters may lie in one flat tensor.
        put_own_tag(gradient, Tag(format, True, path, node=tag.node))
        return gradient


def _in_own_memory(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """A gradient in memory that nothing else has, so that autograd makes it `.grad` as it is.

    Of one that others hold, as a node holds its results, autograd makes a copy, by two operations that come here.
    """
    is_plain = gradient.dtype == leaf.dtype and gradient.dtype in WIDE
    if not (is_plain and gradient.is_contiguous() and leaf.is_contiguous()):
        return gradient
    with without_dispatch():
        return torch.from_numpy(gradient.numpy().copy())


def are_replicas() -> bool:
    """Whether this process is one of several that torch.distributed connects."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
