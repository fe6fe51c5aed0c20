"""What the forward pass leaves for the backward pass: where the operation of every autograd node ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from simfloat.formats import FP32, Format
from simfloat.simulation.place import Place
from simfloat.torch.tags import FORMAT_OF, stored_tensor, tag_of

#: How many operations are remembered; older ones are forgotten first.
REMEMBERED = 1 << 20

#: The sequence number of every node at which autograd adds to `.grad`.
ACCUMULATING = 2**64 - 1

#: The node that a view gets when its base was written to, and how that of a write to a view ends, on the way back to
#: the view's base.
RENEWED, WRITE_TO_VIEW = "AsStridedBackward0", "CopySlices"

# When an operation reaches dispatch, autograd has just numbered its node: it is the counter of this thread less one. In
# the backward pass the node that runs has the same number. So forward and backward operations are paired exactly,
# without a hook (measured on torch 2.13).
sequence_number = torch._C._autograd._get_sequence_nr


class Origin(NamedTuple):
    """Where autograd sends the gradient of a tensor: a node, and the number of its result; a leaf has none."""

    node: int
    result: int


class Operand(NamedTuple):
    """An operand of a forward operation."""

    number: int
    path: str | None  # of the parameter whose numbers it holds
    format: Format
    origin: Origin | None = None


def origin_of(x: torch.Tensor) -> Origin:
    """The edge of autograd that leads to x."""
    x = stored_tensor(x)
    node = x.grad_fn
    return Origin(ACCUMULATING, id(x)) if node is None else Origin(node._sequence_nr(), x.output_nr)


def operand_of(number: int, x: torch.Tensor) -> Operand:
    """A tensor as an operand."""
    tag = tag_of(x)
    return Operand(number, tag.owner if tag.is_weight else None, tag.format or FORMAT_OF[x.dtype], origin_of(x))


class LoggedOperation:
    """A forward operation, its floating operands; of its result the format, and the parameter that it still is."""

    __slots__ = ("format", "is_composite", "is_of_backward", "is_one_call", "operands", "place", "weight")

    def __init__(self, place: Place, operands: tuple[Operand, ...], format: Format | None = None) -> None:
        self.place, self.operands, self.format = place, operands, format
        self.weight: str | None = None
        self.is_composite = False  # made of other operations
        self.is_one_call = False  # and so is its way back, which says itself whose gradient a result is
        self.is_of_backward = False  # one of a backward pass, where gradients are operands too

    def operand(self, number: int) -> Operand | None:
        """The operand of this number; None where the operation was carried out without it."""
        return self.operands[number] if number < len(self.operands) else None


class ForwardLog:
    """The notes of a run by sequence number, the number that autograd gives its nodes in the order of the program."""

    def __init__(self) -> None:
        self._notes: dict[int, LoggedOperation | None] = {}
        # What was asked for last; numbers are not given twice.
        # A backward formula of several operations asks for its node at each of them.
        self._last_lookup: tuple[int, LoggedOperation | None] = (-1, None)
        self.in_place = False  # whether the operation that begins next writes to its first operand

    @property
    def knows_last(self) -> bool:
        """Whether the last node is that of an operation that was noted, so that what makes no node needs no note."""
        return not self.in_place and sequence_number() - 1 in self._notes

    def begin(self, place: Place, operands: Sequence[torch.Tensor]) -> LoggedOperation | None:
        """Note the operation that was begun, unless the last node is that of an earlier one.

        Where no operand wants a gradient it made none, and the last one may be that of a program's own function.
        """
        number = sequence_number() - 1
        in_place, self.in_place = self.in_place, False
        if not in_place and number in self._notes:
            return None
        # A rounded copy of a parameter is a tensor without history: whether the parameter wants a gradient is asked of
        # the tensor that the program gave.
        if not any([stored_tensor(x).requires_grad for x in operands]):
            self.skip()
            return None
        # Before autograd writes over a number that it needs for the way back, it copies it, by an operation of its own.
        # The node of the copy, which there is only where that number wants a gradient, follows that of the write.
        if in_place and self._notes.get(number) is not None:
            number -= 1
        noted_operands = tuple([operand_of(i, x) for i, x in enumerate(operands)])
        if in_place:  # what is written keeps its type, to which PyTorch brings the other operands
            noted_operands = tuple(operand._replace(format=noted_operands[0].format) for operand in noted_operands)
        # A view whose base was written to gets a new node when it is next read, after that of the operation that reads.
        if number in [operand.origin.node for operand in noted_operands if operand.origin is not None]:
            number = self._note_renewed(place, noted_operands, number)
            if number in self._notes:
                return None
        note = self._notes[number] = LoggedOperation(place, noted_operands)
        if len(self._notes) > REMEMBERED:
            # Nothing tells that a node was freed, so notes go by age, half of them at once, which makes the cost of a
            # note constant on average.
            for old in list(self._notes)[: REMEMBERED // 2]:
                del self._notes[old]
        return note

    def _note_renewed(self, place: Place, operands: Sequence[Operand], number: int) -> int:
        """Note the new nodes of operands, the last of them of this number; the number of the node before them."""
        renewed = {operand.origin.node: operand for operand in operands if operand.origin is not None}
        while number in renewed and number not in self._notes:
            self._notes[number] = LoggedOperation(place, (renewed[number],), renewed[number].format)
            number -= 1
        return number

    def skip(self) -> None:
        """Know that the last node is that of no operation unless it is known of which."""
        self._notes.setdefault(sequence_number() - 1, None)

    def at_number(self, number: int) -> LoggedOperation | None:
        """The note of the node of this number, if it is that of the operation itself."""
        return self._notes.get(number)

    def at_node(self, node: Any) -> LoggedOperation | None:
        """The note of a node; None if no operation of this run made it."""
        number = node._sequence_nr()
        if number != self._last_lookup[0]:
            self._last_lookup = number, self._note_at(number, node)
        return self._last_lookup[1]

    def _note_at(self, number: int, node: Any) -> LoggedOperation | None:
        # Two nodes are numbered after the operation that writes to a view: one for its base, and then a new one for it.
        name = node.name()
        # torch 2.13 calls the node torch::autograd::CopySlices, so only the end of the name is compared.
        if name.endswith(WRITE_TO_VIEW):
            return self._notes.get(number - 1)
        base = node.next_functions[0][0] if name == RENEWED and number not in self._notes else None
        if base is None or not base.name().endswith(WRITE_TO_VIEW) or base._sequence_nr() != number - 1:
            return self._notes.get(number)
        write = self._notes.get(number - 2)
        return write and LoggedOperation(write.place, (Operand(0, None, write.format or FP32),), write.format)
