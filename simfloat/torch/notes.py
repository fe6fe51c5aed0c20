"""What the forward pass leaves for the backward pass: where the operation of every autograd node ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from simfloat.formats import Format
from simfloat.simulation import Place
from simfloat.torch.paths import sequence_number
from simfloat.torch.tags import FORMAT_OF, tag_of

#: How many operations are remembered; older ones are forgotten first.
REMEMBERED = 1 << 20


class Parent(NamedTuple):
    """An operand of a forward operation."""

    memory: int
    shape: tuple[int, ...]
    path: str | None  # of the parameter whose numbers it holds
    format: Format


def parent_of(x: torch.Tensor) -> Parent:
    """A tensor as an operand."""
    tag = tag_of(x)
    return Parent(x.data_ptr(), x.shape, tag.owner if tag.is_weight else None, tag.format or FORMAT_OF[x.dtype])


class Note:
    """A forward operation, its floating operands, and the format of its result once there is one."""

    __slots__ = ("format", "parents", "place")

    def __init__(self, place: Place, parents: tuple[Parent, ...], format: Format | None = None) -> None:
        self.place, self.parents, self.format = place, parents, format

    def reached(self, operands: Sequence[torch.Tensor], shape: tuple[int, ...]) -> int:
        """The number of the operand whose gradient an operation of the backward pass computes, as far as can be told.

        It is none of those that take part in the computation, unless there is no other; and of the others, the one
        whose shape the result has, leaving out axes of one element and their order.
        """
        if len(self.parents) < 2:
            return 0
        present = {x.data_ptr() for x in operands if not tag_of(x).is_gradient}
        others = [i for i, parent in enumerate(self.parents) if parent.memory not in present]
        candidates = others or list(range(len(self.parents)))
        size = essential(shape)
        return next((i for i in candidates if essential(self.parents[i].shape) == size), candidates[0])


class Notes:
    """The notes of a run by sequence number, the number that autograd gives its nodes in the order of the program."""

    def __init__(self) -> None:
        self._notes: dict[int, Note] = {}
        self._found: tuple[int, Note | None] = (-1, None)  # what was asked for last; numbers are not given twice
        self.in_place = False  # whether the operation that begins next writes to its first operand

    def begin(self, place: Place, operands: Sequence[torch.Tensor]) -> Note | None:
        """Note the operation that was begun, unless the last node is that of an earlier one."""
        number = sequence_number() - 1
        # Before autograd writes over a number that it needs for the way back, it copies it: an operation of its own.
        if self.in_place and number in self._notes:
            number -= 1
        self.in_place = False
        if number in self._notes:
            return None
        note = self._notes[number] = Note(place, tuple(map(parent_of, operands)))
        if len(self._notes) > REMEMBERED:
            for old in list(self._notes)[: REMEMBERED // 2]:
                del self._notes[old]
        return note

    def of(self, node: Any) -> Note | None:
        """The note of a node; None if no operation of this run made it."""
        number = node._sequence_nr()
        if number != self._found[0]:
            # A node for views that are written to is numbered after the operation that wrote.
            self._found = number, self._notes.get(number - 1 if node.name() == "CopySlices" else number)
        return self._found[1]


def essential(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of a shape but those of one element, in ascending order."""
    return tuple(sorted(size for size in shape if size != 1))
