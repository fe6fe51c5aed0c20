"""Tensors known by the memory that they are views of."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes


def memory_of(x: torch.Tensor) -> int:
    """What tells the memory of a tensor, and of all its views, from others as long as it lives."""
    return x.untyped_storage()._cdata


def seen_as(x: torch.Tensor, plain: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """The view of `real` that x is of `plain`, which is laid out alike."""
    if x is plain:
        return real
    with _disable_current_modes(), torch.no_grad():
        return real.as_strided(x.shape, x.stride(), real.storage_offset() + x.storage_offset() - plain.storage_offset())
