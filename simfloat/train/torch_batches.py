"""Batches as a PyTorch model takes them: tensors of its type, and integers as long."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from simfloat.checks import as_rectangular_array
from simfloat.torch.tensor_arrays import tensor_of


def batch_tensors(part: Any, dtype: torch.dtype) -> Any:
    """Convert arrays and numbers of a batch to tensors, also in lists, tuples and dictionaries.

    Floating numbers become those of `dtype`, integers long; truth values stay, and so do tensors. ValueError for arrays
    of anything else.
    """
    if isinstance(part, torch.Tensor):
        return part
    if isinstance(part, dict):
        return {key: batch_tensors(value, dtype) for key, value in part.items()}
    if isinstance(part, list | tuple) and any(isinstance(inner, torch.Tensor | np.ndarray) for inner in part):
        return type(part)(batch_tensors(inner, dtype) for inner in part)
    array = as_rectangular_array(part, "a batch")
    if array.dtype.kind in "iu":
        array, dtype = array.astype(np.int64), torch.int64
    elif array.dtype.kind == "b":
        dtype = torch.bool
    elif array.dtype.kind != "f":
        raise ValueError(
            f"A batch of a PyTorch model holds tensors, or arrays of numbers; got an array of {array.dtype} in a "
            f"{type(part).__name__}."
        )
    with _disable_current_modes():
        return tensor_of(array.copy(), dtype)
