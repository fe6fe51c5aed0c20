"""Operations that wait in a backward pass which autograd records, so that gradients of gradients may be asked for.

What autograd has recorded are PyTorch's own tensors: they stay, and get the numbers once these are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from simfloat.torch.deferring import DeferredOperations
from simfloat.torch.forward_log import LoggedOperation
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.storage import memory_of, view_like
from simfloat.torch.tags import put_tag, stored_format, tag_of, weight_path
from simfloat.torch.tensor_arguments import tensors_in

Tensor = torch.Tensor


class DeferredRecordedOperations(DeferredOperations):
    """The operations that wait, with their notes: of each of them a gradient may be asked for later."""

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[tuple[LoggedOperation, list[Tensor], Tensor]] = []  # with its operands and its result
        self._returned: set[int] = set()  # memory of gradients that have their numbers

    def result(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        plain: Callable[..., Any],
        note: Callable[..., Any],
    ) -> Any:
        """Compute an operation that waits by `plain`, and keep its note: `end` adds the formats once they are known."""
        operands = [x for x in tensors_in((arguments, options)) if x.is_floating_point()]
        noted = note(function, operands)
        result = super().result(function, arguments, options, plain, note)
        if noted is not None and isinstance(result, Tensor):
            self._notes.append((noted, operands, result))
        return result

    def carry_out(self, result: Tensor) -> Tensor:
        """A tensor that the node returns, with its numbers by the operations that led to it."""
        memory = memory_of(result)
        if memory in self._returned:  # another operand's too, whose gradient has a role of its own
            shared, result = result, result.clone()
        else:
            shared = result
        # Autograd recorded the operations when PyTorch computed them. They are carried out here for their numbers only.
        with torch.no_grad():
            replacements = self._replacements(shared)
            for other_memory, (plain, real) in replacements.items():
                if other_memory in self._waiting and other_memory not in self._returned and other_memory != memory:
                    _give(plain, real)
            _give(result, view_like(shared, *replacements[memory]))
        self._returned.add(memory_of(result))
        return result

    def end(self) -> None:
        """Know of all operations that waited what is known of their operands and results."""
        for note, operands, result in self._notes:
            note.operands = tuple(
                operand._replace(format=stored_format(x)) for operand, x in zip(note.operands, operands, strict=True)
            )
            note.format, note.weight = tag_of(result).format, weight_path(result)
        self._notes.clear()


def _give(plain: Tensor, real: Tensor) -> None:
    """Give a recorded tensor its numbers, which is no writing that autograd would know."""
    with without_dispatch():
        # `.data` leaves the version of the tensor as it is. A counted write would make the next backward pass fail,
        # because autograd has saved this tensor.
        plain.data.copy_(real)
    put_tag(plain, tag_of(real))
