"""The call of a PyTorch model with what a user gives."""

from __future__ import annotations

from typing import Any

import torch


def called(model: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
    """What the model gives; ValueError, saying what came and what to pass, where PyTorch has a TypeError for it."""
    try:
        return model(*arguments, **named)
    except TypeError as error:
        kinds = ", ".join(type(argument).__name__ for argument in (*arguments, *named.values()))
        raise ValueError(
            f"{type(model).__name__} cannot be called with what was given ({kinds}): {error} Pass what it is called "
            "with, as tensors: torch.as_tensor(x) makes one of an array."
        ) from error
