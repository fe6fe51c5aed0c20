"""The end of a backward pass: where a gradient is complete and becomes that of a parameter."""

from __future__ import annotations

import sys
from typing import Any

import torch

from simfloat.policy.kinds import WIDEST
from simfloat.simulation import Simulation
from simfloat.torch.notes import Note, Parent
from simfloat.torch.numbers import numbers_of, tensor_of
from simfloat.torch.tags import Tag, put_tag, stored_format, tag_of, weight_path

#: The sequence number of every node at which autograd adds to `.grad`.
ACCUMULATING = 2**64 - 1

current_node = torch._C._current_autograd_node


class Gradients:
    """The gradients of a run's parameters."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def is_accumulating(self) -> bool:
        """Whether autograd is at a leaf."""
        node = current_node()
        return node is not None and node._sequence_nr() == ACCUMULATING

    def note(self, node: Any) -> Note:
        """The leaf as something that an operation of the backward pass reaches: by an addition."""
        leaf: torch.Tensor = node.variable
        path = weight_path(leaf)
        place = self._simulation.place("add", (path or "").rpartition(".")[0])
        return Note(place, (Parent(leaf.data_ptr(), tuple(leaf.shape), path, stored_format(leaf)),))

    def finished(self, gradient: Any) -> Any:
        """A gradient that is complete: that of a parameter is rounded to `weight_gradients` if it was not."""
        node = current_node()
        note = self.note(node)
        place, leaf = note.place, note.parents[0]
        if not isinstance(gradient, torch.Tensor) or leaf.path is None:
            return gradient
        tag, chosen = tag_of(gradient), place.recipe_of(leaf.path).weight_gradients
        format = leaf.format if chosen == WIDEST else chosen
        if tag.heard is not None:
            tag.heard.tell(leaf.path)
        if tag.format != format:
            arithmetic = place.to_weight(leaf.path, 0, leaf.format)
            gradient = tensor_of(arithmetic.round(numbers_of(gradient)), gradient.dtype)
        put_tag(gradient, Tag(format, True, leaf.path))
        return gradient


def is_recomputing() -> bool:
    """Whether torch.utils.checkpoint runs a part of the forward pass again, inside of a backward pass."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
