"""Tensors of PyTorch in states: as arrays that a file holds, and back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor of PyTorch, which exists only where PyTorch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def array_of_tensor(tensor: Any, where: str) -> tuple[NDArray, str]:
    """The numbers of a tensor as they are stored, and the name of its type; those that NumPy lacks as their codes.

    Raises ValueError, saying where, for a tensor that is no plain array of numbers.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise ValueError(
            f"{where} is a tensor of {tensor.dtype}, {tensor.layout} on {tensor.device}; a file holds none."
        )
    name = str(tensor.dtype).removeprefix("torch.")
    with _disable_current_modes():
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        codes = _code_type(tensor.dtype)
        return np.asarray((plain if codes is None else plain.contiguous().view(codes)).numpy()), name


def restore_tensor(array: NDArray, name: str) -> Any:
    """The tensor of this type that `array_of_tensor` made an array of."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("These states are of a PyTorch model: pip install 'simfloat[torch]'.") from error
    from torch.utils._python_dispatch import _disable_current_modes

    dtype = getattr(torch, name)
    with _disable_current_modes():
        plain = torch.from_numpy(np.array(array))
        return plain if _code_type(dtype) is None else plain.view(dtype)


def _code_type(dtype: Any) -> Any:
    """The integers that the numbers of a type are written as; None if NumPy has the type."""
    import torch

    if dtype == torch.bfloat16:
        return torch.int16
    return torch.uint8 if dtype.is_floating_point and dtype.itemsize == 1 else None
