"""Defer operations of a backward pass until the operand of their gradient is known.

`DeferredRecordedOperations` is for a backward pass that autograd records for gradients of gradients. Autograd has
recorded PyTorch's own tensors: they stay, and receive their values later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from simfloat.torch.forward_log import LoggedOperation
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.tensors import (
    memory_of,
    put_tag,
    replace_tensors,
    stored_format,
    tag_of,
    tensors_in,
    view_like,
    weight_path,
    written_by,
)

Tensor = torch.Tensor


class DeferredOperation(NamedTuple):
    """An operation that waits, and the tensors that PyTorch created or modified in it."""

    function: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    results: list[Tensor]


class DeferredOperations:
    """The operations that wait: they are listed, and PyTorch computes preliminary results for them.

    When the node returns a tensor, the operations that led to it are carried out in their order, on tensors that
    replace PyTorch's tensors. A tensor is identified by its memory, so views and writes to them are also covered.
    """

    def __init__(self) -> None:
        self._steps: list[DeferredOperation] = []
        self._waiting: dict[int, Tensor] = {}  # by memory; a reference prevents its reuse
        self._before: dict[int, Tensor] = {}  # copies of tensors that were modified later

    def is_waiting(self, x: Tensor) -> bool:
        """True if the values of the tensor are not computed yet."""
        return memory_of(x) in self._waiting

    def must_wait(self, function: Any, is_rule: bool, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """True if an operation must wait. Rules that return several gradients assign each of them to its operand."""
        # Every operation that reads a tensor that waits must wait as well. Other operations wait only if they are
        # rules, because rules round. Rules that return several gradients, such as convolution_backward, name the
        # operand of each by `target_operand`.
        operands = list(tensors_in((arguments, options)))
        if any(map(self.is_waiting, operands)):
            return True
        if is_rule:
            gives_gradients = len(function._schema.returns) > 1 and "backward" in function.overloadpacket.__name__
            return not gives_gradients and any(x.is_floating_point() for x in operands)
        # Once something waits, writes wait as well, so that all writes to one memory are repeated in their order.
        return bool(self._steps) and function._schema.is_mutable

    def result(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        plain: Callable[..., Any],
        note: Callable[..., Any],
    ) -> Any:
        """Return the result of `plain` for an operation that waits.

        Raises ValueError if the program would read its value. `note` is the function that notes an operation; only a
        recorded backward pass uses it.
        """
        written = list(written_by(function, arguments, options))
        # The program continues with PyTorch's result, and the operation is carried out later. Then it needs the values
        # of the operand before this write.
        for x in written:
            if not self.is_waiting(x):
                self._before[memory_of(x)] = _copy_of(x)
        result = plain(function, arguments, options)
        results = written or list(tensors_in(result))
        if not results:
            raise ValueError(
                f"A backward pass reads a number by {function} before it is known which gradient the number belongs "
                "to, and these gradients have different roles. Compute it in the forward pass, or use one format for "
                "activation_gradients and weight_gradients, without overrides and without an observer."
            )
        if written or not all(map(self.is_waiting, results)):  # otherwise it is a view
            self._steps.append(DeferredOperation(function, arguments, options, results))
            self._waiting.update((memory_of(x), x) for x in results)
        return result

    def carry_out(self, result: Tensor) -> Tensor:
        """Compute a tensor that the node returns, by the operations that led to it."""
        replacements = self._replacements(result)
        pair = replacements.get(memory_of(result))
        return result if pair is None else view_like(result, *pair)

    def _replacements(self, result: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
        """Return the tensors of PyTorch that led to a result, by memory, each with its replacement."""
        replacements: dict[int, tuple[Tensor, Tensor]] = {}
        if self._before:
            with without_dispatch():
                replacements.update((memory, (x, _copy_of(x))) for memory, x in self._before.items())

        def real(x: Tensor) -> Tensor:
            pair = replacements.get(memory_of(x))
            return x if pair is None else view_like(x, *pair)

        for step in self._leading_to(result):
            results = step.function(*replace_tensors(step.arguments, real), **replace_tensors(step.options, real))
            for plain, x in zip(step.results, tensors_in(results), strict=False):
                if memory_of(plain) not in replacements:
                    replacements[memory_of(plain)] = plain, _match_strides(x, plain)
        return replacements

    def end(self) -> None:
        """End the node."""

    def _leading_to(self, result: Tensor) -> list[DeferredOperation]:
        # Only operations that led to this result are carried out, searched from the end. Others would use random bits
        # and count roundings for the gradient of another operand a second time.
        memories, steps = {memory_of(result)}, []
        for step in reversed(self._steps):
            if any(memory_of(x) in memories for x in step.results):
                steps.append(step)
                memories.update(map(memory_of, tensors_in((step.arguments, step.options))))
        return steps[::-1]


def _copy_of(x: Tensor) -> Tensor:
    """Copy all the memory that a tensor is in, and return the tensor's view of the copy."""
    # The whole storage, not only the elements of x: other views that wait also refer to it.
    copy = x.new_empty(0).set_(x.untyped_storage().clone(), x.storage_offset(), x.shape, x.stride())
    put_tag(copy, tag_of(x))
    return copy


def _match_strides(real: Tensor, plain: Tensor) -> Tensor:
    # A rule may leave buffers empty that PyTorch stores for its own backward pass, such as the buffer of log_sigmoid.
    if real.stride() == plain.stride() or real.shape != plain.shape:
        return real
    with without_dispatch():
        copy = torch.empty_strided(plain.shape, plain.stride(), dtype=real.dtype).copy_(real)
    put_tag(copy, tag_of(real))
    return copy


class DeferredRecordedOperations(DeferredOperations):
    """Operations that wait, with their notes, for gradients of gradients."""

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[tuple[LoggedOperation, list[Tensor], Tensor]] = []  # with its operands and its result
        self._returned: set[int] = set()  # memory of gradients with final values

    def result(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        plain: Callable[..., Any],
        note: Callable[..., Any],
    ) -> Any:
        """Compute an operation that waits by `plain`, and keep its note; `end` adds the formats."""
        operands = [x for x in tensors_in((arguments, options)) if x.is_floating_point()]
        noted = note(function, operands)
        result = super().result(function, arguments, options, plain, note)
        if noted is not None and isinstance(result, Tensor):
            self._notes.append((noted, operands, result))
        return result

    def carry_out(self, result: Tensor) -> Tensor:
        """Compute the values of a tensor that the node returns, by the operations that led to it."""
        memory = memory_of(result)
        if memory in self._returned:  # it is also the gradient of another operand with another role
            shared, result = result, result.clone()
        else:
            shared = result
        # Autograd recorded the operations when PyTorch computed them. Here they run only to compute the values.
        with torch.no_grad():
            replacements = self._replacements(shared)
            for other_memory, (plain, real) in replacements.items():
                if other_memory in self._waiting and other_memory not in self._returned and other_memory != memory:
                    _overwrite_values(plain, real)
            _overwrite_values(result, view_like(shared, *replacements[memory]))
        self._returned.add(memory_of(result))
        return result

    def end(self) -> None:
        """Store the formats of operands and results in the notes of all operations that waited."""
        for note, operands, result in self._notes:
            note.operands = tuple(
                operand._replace(format=stored_format(x)) for operand, x in zip(note.operands, operands, strict=True)
            )
            note.format, note.weight = tag_of(result).format, weight_path(result)
        self._notes.clear()


def _overwrite_values(plain: Tensor, real: Tensor) -> None:
    """Write the values of a recorded tensor without a change that autograd would notice."""
    with without_dispatch():
        # A write to `.data` does not change the version of the tensor. A counted write would make the next backward
        # pass fail, because autograd has saved this tensor.
        plain.data.copy_(real)
    put_tag(plain, tag_of(real))
