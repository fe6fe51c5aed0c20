"""Models of either front end, as functions that measure or train them take them, with a batch."""

from __future__ import annotations

from typing import Any

from simfloat.checks import is_torch_model
from simfloat.nn import Module


def is_of_torch(model: Any, caller: str) -> bool:
    """Whether a model is PyTorch's, and not this package's. Raises ValueError, naming who takes it, for neither."""
    if isinstance(model, Module):
        return False
    if is_torch_model(model):
        return True
    raise ValueError(
        f"{caller} takes a simfloat.nn.Module, got a {type(model).__name__}; of PyTorch it takes a torch.nn.Module."
    )


def pair_of_batch(batch: Any) -> tuple[Any, Any]:
    """The pair (x, y) of a batch; ValueError for what is none."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(f"batch is a pair (x, y), got a {type(batch).__name__}.")
    return batch[0], batch[1]
