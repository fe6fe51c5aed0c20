"""Make the changes of a program to copies of a PyTorch model and its optimizer, and to the operations of a block."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from simfloat.analysis.attribution.torch_models import widen_to_float32
from simfloat.analysis.diagnosis.changes import (
    EPS,
    FLOAT8_SCALE,
    LOSS_SCALE,
    MASK,
    MASTER,
    SCORES,
    UPCAST,
    WIDE_INSIDE,
    WIDE_RESULT,
    Change,
    set_eps,
)
from simfloat.torch.open_run import active_run
from simfloat.torch.tensors import NARROW, weight_path
from simfloat.torch.wide_types import ProgramMode, WideTypes

#: The attribute that marks the memory of scaled scores.
SCALED = "_simfloat_scaled_scores"

#: The attribute that stores the scale of a float8 tensor, at its memory.
SCALE = "_simfloat_float8_scale"

aten = torch.ops.aten
PRODUCTS = (aten.bmm.default, aten.mm.default)
QUOTIENT, FACTOR = aten.div.Tensor, aten.mul.Tensor

#: The operations with which a program applies a mask, or creates one.
MASK_OPERATIONS = {
    *(aten.masked_fill, aten.masked_fill_, aten.where, aten.full, aten.full_like, aten.new_full, aten.fill_),
    *(aten.add, aten.add_, aten.sub, aten.sub_, aten.rsub),
}


def change_parts(change: Change, model: torch.nn.Module, optimizer: Any, scaler: Any) -> Any:
    """Change a model and its optimizer, and return the loss scaler."""
    if change.kind in (UPCAST, WIDE_RESULT, WIDE_INSIDE):
        run_in_float32(model.get_submodule(change.path), keep=change.kind != UPCAST)
    elif change.kind == MASTER:
        widen_training(model, optimizer)
    elif change.kind == EPS:
        set_eps(change, model, optimizer)
    return torch.amp.GradScaler(device_of(model), init_scale=change.value) if change.kind == LOSS_SCALE else scaler


def device_of(model: torch.nn.Module) -> str:
    """Return the type of the device of a model's parameters."""
    return next((p.device.type for p in model.parameters()), "cpu")


def change_block(change: Change, dtype: torch.dtype | None, device: str) -> AbstractContextManager[Any] | None:
    """Return the block in which the program runs with a change; `dtype` is the narrow dtype of the original model."""
    if change.kind == MASTER and dtype is not None:
        return torch.autocast(device, dtype=dtype, cache_enabled=False)  # weights change within the block
    if change.kind == MASK:
        return ClampedNumbers()
    if change.kind == WIDE_INSIDE:
        return WideInside(change.path)
    if change.kind == FLOAT8_SCALE:
        return ScaledConversions()
    return ScaledScores(change.path, change.value) if change.kind == SCORES else None


def widen_training(model: torch.nn.Module, optimizer: Any) -> None:
    """Convert the narrow dtypes of a model and of the moments of its optimizer to float32."""
    widen_to_float32(model)
    for state in () if optimizer is None else optimizer.state.values():
        state.update(widen_to_float32(state))


def run_in_float32(module: torch.nn.Module, *, keep: bool) -> None:
    """Let a module compute in float32: its parameters, its inputs, and its results.

    The results are cast back, unless `keep` is True.
    """
    module.float()
    dtypes: list[torch.dtype] = []

    def enter(_: Any, args: Any, options: Any) -> Any:
        narrow = [x.dtype for x in (*args, *options.values()) if isinstance(x, torch.Tensor) and x.dtype in NARROW]
        dtypes.append(narrow[0] if narrow else torch.float32)
        return tuple(map(upcast, args)), {name: upcast(x) for name, x in options.items()}

    def leave(_: Any, __: Any, result: Any) -> Any:
        dtype = dtypes.pop()
        return _map_tensors(lambda x: x.to(dtype) if x.dtype == torch.float32 else x, result)

    module.register_forward_pre_hook(enter, with_kwargs=True)
    if not keep:
        module.register_forward_hook(leave)


def upcast(x: Any) -> Any:
    """Convert narrow tensors to float32, also in lists and tuples."""
    return _map_tensors(lambda t: t.float() if t.dtype in NARROW else t, x)


def _map_tensors(function: Callable[[torch.Tensor], torch.Tensor], x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return function(x)
    return type(x)(_map_tensors(function, each) for each in x) if type(x) in (list, tuple) else x


class WideInside(WideTypes):
    """A block in which one layer converts to float32 instead of a narrower dtype."""

    def __init__(self, path: str) -> None:
        super().__init__(torch.float32)
        self._path = path

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out an operation; in the forward pass of the layer, with wide dtypes."""
        run = active_run()
        if run is not None and torch.is_grad_enabled() and f"{run.path}.".startswith(f"{self._path}."):
            return super().__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


class ClampedNumbers(ProgramMode):
    """A block in which the numbers of masks are limited to the range of the narrow tensors of their operation.

    The number of a mask replaces a value, is added to it, or is the factor of a mask of zeros and ones.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out an operation; if it may be part of a mask, with numbers within the range."""
        options = kwargs or {}
        if func.overloadpacket not in MASK_OPERATIONS and not (func is FACTOR and _is_zero_or_one(args[0])):
            return func(*args, **options)
        dtypes = [x.dtype for x in args if isinstance(x, torch.Tensor)] + [options.get("dtype")]
        narrow = next((dtype for dtype in dtypes if dtype in NARROW), None)
        if narrow is None:
            return func(*args, **options)
        most = torch.finfo(narrow).max
        return func(*(_clamp(x, most) for x in args), **options)


def _is_zero_or_one(x: torch.Tensor) -> bool:
    return bool(((x == 0) | (x == 1)).all())


def _clamp(x: Any, most: float) -> Any:
    if isinstance(x, torch.Tensor) and x.dtype in (torch.float32, torch.float64) and not x.ndim:
        return x.clamp(-most, most)
    return max(-most, min(x, most)) if isinstance(x, float) and math.isfinite(x) else x


class ScaledScores(ProgramMode):
    """A block in which products of activations in one layer have a scaled left factor.

    The next multiplication or division by a number removes the factor. Any other operation reads the unscaled product.
    """

    def __init__(self, path: str, factor: float) -> None:
        super().__init__()
        self._path, self._factor = path, factor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out an operation; scale the left factor of a product of activations."""
        options = kwargs or {}
        if func in (QUOTIENT, FACTOR) and _is_scaled(args[0]) and not getattr(args[1], "ndim", 0):
            return func(args[0], args[1] * self._factor if func is QUOTIENT else args[1] / self._factor)
        if not (func.is_view or func is aten._unsafe_view.default):
            args = [x * (1 / self._factor) if _is_scaled(x) else x for x in args]
        if not self._is_of_activations(func, args):
            return func(*args, **options)
        result = func(args[0] * self._factor, *args[1:], **options)
        setattr(result.untyped_storage(), SCALED, True)
        return result

    def _is_of_activations(self, func: Any, args: Any) -> bool:
        """True for a product of activations in the forward pass of the layer."""
        run = active_run()
        if run is None or run.path != self._path or func not in PRODUCTS or not torch.is_grad_enabled():
            return False
        return weight_path(args[0]) is None and weight_path(args[1]) is None


class ScaledConversions(ProgramMode):
    """A block in which conversions to float8 divide by a scale, and conversions to other dtypes multiply by it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out an operation; scale the operand or the result of a conversion."""
        options = kwargs or {}
        if func is aten._scaled_mm.default:
            scales = [scale * _scale_of(x) for x, scale in zip(args[:2], args[2:4], strict=True)]
            return func(*args[:2], *scales, *args[4:], **options)
        dtype = options.get("dtype")
        if func is not aten._to_copy.default or dtype is None or not args[0].is_floating_point():
            return func(*args, **options)
        x, most = args[0], torch.finfo(dtype).max
        if dtype.itemsize > 1 or x.dtype.itemsize == 1 or not bool(x.any()):
            return func(x, **options) * _scale_of(x) if dtype.itemsize > 1 == x.dtype.itemsize else func(x, **options)
        scale = x.detach().abs().amax().float() / most
        result = func(x / scale, **options)
        setattr(result.untyped_storage(), SCALE, scale)
        return result


def _scale_of(x: torch.Tensor) -> Any:
    return getattr(x.untyped_storage(), SCALE, 1.0)


def _is_scaled(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and hasattr(x.untyped_storage(), SCALED)
