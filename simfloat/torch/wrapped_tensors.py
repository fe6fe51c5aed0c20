"""Tensors that torch.func wraps: backward passes through them are refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def check_unwrapped(tensors: Iterable[Any]) -> None:
    """Raise ValueError for tensors of torch.func's functions, and where one of these runs."""
    is_inside = torch._C._functorch.peek_interpreter_stack() is not None
    if is_inside or any(isinstance(x, torch.Tensor) and not _has_memory(x) for x in tensors):
        raise ValueError(
            "Gradients by torch.func, or with is_grads_batched=True, cannot be simulated: tensors are wrapped there, "
            "and nothing tells whose gradient a result is. Use backward(), or torch.autograd.grad in a loop, with "
            "create_graph=True for gradients of gradients."
        )


def _has_memory(x: torch.Tensor) -> bool:
    """Whether a tensor has memory of its own, by which it is known."""
    try:
        x.untyped_storage()
    except NotImplementedError:
        return False
    return True
