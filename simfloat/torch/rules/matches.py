"""Comparisons by which autograd finds the elements that a largest, smallest or middle number was taken from."""

from __future__ import annotations

from typing import Any

import torch

from simfloat.formats.rounding import toward_negative, toward_positive
from simfloat.torch.floating_operands import Arguments, Options
from simfloat.torch.handlers import Movement
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import NOTHING, Tag
from simfloat.torch.tensor_arrays import numbers_of, tensor_of

#: Operations whose derivative compares operand and result: max, min and median; scatter_reduce.
COMPARING = ("max", "min", "index")


class Matches(Movement):
    """Where two tensors are equal; on the way back of `max` and its like, where the operand rounds to the result.

    The result was rounded, so that an operand of a wider format may equal it nowhere. Under stochastic rounding all
    elements match that may have been rounded to the result.
    """

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The truth values."""
        note = run.differentiated_operation
        place = None if note is None or note.place.operation not in COMPARING else note.place.without_observer
        are_floating = all(isinstance(x, torch.Tensor) and x.is_floating_point() for x in args)
        if place is None or place.is_widest or not are_floating:
            return super().__call__(run, func, args, options, into)
        modes = [place.forward.target.rounding]
        if modes[0].is_stochastic:
            # A stochastic result is one of the two neighbours.
            modes = [toward_negative, toward_positive]
        is_match = torch.zeros((), dtype=torch.bool)
        for u in map(place.forward.with_rounding, modes):
            is_match = is_match | func(*(tensor_of(u.round(numbers_of(x)), x.dtype) for x in args))
        return is_match


#: By PyTorch's name.
TABLE = {"eq.Tensor": Matches()}
