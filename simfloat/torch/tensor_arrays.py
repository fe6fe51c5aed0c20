"""Tensors as arrays and back, without a copy where memory allows it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import ge
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.codes import decode
from simfloat.formats import E2M1

#: A tensor, an array, or a Python number, which is an exact float64 operand.
Numbers = torch.Tensor | NDArray | float

#: Narrow types, whose numbers travel as float32.
NARROW = (torch.float16, torch.bfloat16)

#: The type of two numbers of 4 bits to a byte, the first one in its lower half, along the axis that memory runs along.
PAIRED = torch.float4_e2m1fn_x2

#: Types whose numbers are read where they are.
WIDE = (torch.float32, torch.float64)


def numbers_of(x: Numbers) -> NDArray:
    """The array of an operand: float32 or float64; integers and truth values become float64."""
    if isinstance(x, torch.Tensor):
        # `numpy()` refuses tensors that want a gradient; detach is an operation, so it is called for these only.
        x = x.detach() if x.requires_grad else x
        if x.dtype in WIDE:
            return x.numpy()
        if x.dtype == PAIRED:
            return _unpack_pairs(x)
        if x.itemsize < 4 and x.is_floating_point():
            # NumPy has no bfloat16 and no float8. Every number of these types is a float32 one.
            return x.float().numpy()
        array = x.numpy()
        return array if x.is_floating_point() else integers(array)
    return x if isinstance(x, np.ndarray) else np.array(float(x))


def _unpack_pairs(x: torch.Tensor) -> NDArray[np.float32]:
    """The numbers of pairs, of which there are twice as many along the axis whose elements are next to each other."""
    if x.ndim > 1 and x.stride(-1) != 1:
        return _unpack_pairs(x.transpose(-1, -2)).swapaxes(-1, -2)
    codes = x.view(torch.uint8).numpy()
    pairs = np.stack([codes & 15, codes >> 4], -1)
    return decode(pairs.reshape(*x.shape[:-1], 2 * x.shape[-1]), E2M1)


def integers(array: NDArray) -> NDArray[np.float64]:
    """Integers and truth values in float64; ValueError for an integer that float64 lacks."""
    wide = array.astype(np.float64)
    # From 2^53 on float64 lacks some integers: these few are compared one by one, exactly, in Python.
    for number in array[np.abs(wide) >= 2**53].tolist():
        if int(float(number)) != number:
            raise ValueError(
                f"An operand holds the integer {number}, which float64 lacks: simfloat.round rounds such numbers once."
            )
    return wide


def tensor_of(array: NDArray, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of this type on the array's memory, or on a copy of it."""
    array = np.asarray(array)
    # torch.from_numpy takes strides, too, but PyTorch's kernels return contiguous results, and later layouts follow
    # them.
    if not array.flags.c_contiguous or not array.flags.writeable:
        array = array.copy(order="C")
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def match_layout(tensor: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """The tensor in memory that is laid out as that of `model`, as elementwise operations lay out their results."""
    if model.is_contiguous() or model.shape != tensor.shape or is_row_major(model):
        return tensor
    return torch.empty_like(model, dtype=tensor.dtype).copy_(tensor)


def is_row_major(tensor: torch.Tensor) -> bool:
    """Whether axes follow each other as in a contiguous tensor, of which it may be a part."""
    steps = [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    return all(map(ge, steps, steps[1:]))


def result_type(operands: Sequence[torch.Tensor]) -> torch.dtype:
    """The floating type that PyTorch gives the result of an operation on these tensors."""
    first = operands[0].dtype
    if first.is_floating_point and all([x.dtype == first for x in operands]):
        return first
    floating = [x for x in operands if x.is_floating_point()]
    # PyTorch's promotion: tensors without axes do not widen others of the same kind.
    counting = [x for x in floating if x.ndim] or floating
    types = {x.dtype for x in counting}
    if len(types) == 1:
        return types.pop()
    wide = [x for x in types if x.itemsize > 1]  # float8 types, which PyTorch promotes to none, yield to others
    return reduce(torch.promote_types, wide) if wide else torch.float32


def in_float32(value: Any) -> Any:
    """An argument, or several, whose Python numbers are float32 ones, as PyTorch's kernels of up to 32 bits take them.

    They come as such, or as float64 tensors without axes.
    """
    if isinstance(value, torch.Tensor):
        return value.float().double() if value.ndim == 0 and value.dtype == torch.float64 else value
    if isinstance(value, dict):
        return {key: in_float32(x) for key, x in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(in_float32, value))
    return float(np.float32(value)) if isinstance(value, float) else value


def exact_tensor(x: torch.Tensor | float) -> torch.Tensor:
    """A Python number as a float64 tensor, which does not widen the results of others; a floating tensor as it is.

    Integers become numbers of PyTorch's default type.
    """
    if not isinstance(x, torch.Tensor):
        return torch.tensor(float(x), dtype=torch.float64)
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())
