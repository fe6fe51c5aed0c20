"""Numbers that become those which integers stand for, as training for quantized inference has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.torch.floating_operands import Arguments, Options
from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import NOTHING, Tag
from simfloat.torch.tensor_arrays import numbers_of

Tensor = torch.Tensor


def fake_quantize(
    call: RuleCall, x: Tensor, scale: NDArray | float, zero: NDArray | float, low: int, high: int, is_on: bool
) -> tuple[Tensor, Tensor]:
    """(q - zero) * scale with q = zero + the integer next to x * (1 / scale), and where q lies from low to high.

    What lies outside is `low` or `high`; NaN is `low`. A zero that is no integer is added before q is found.
    """
    call.begin()
    if not is_on:
        return call.match_operand_layout(call.tensor(call.round(x))), torch.ones_like(x, dtype=torch.bool)
    scaled = call.multiply(x, call.divide(np.array(1.0), scale))
    zero = np.asarray(zero)
    is_integer = zero.dtype.kind in "iu"
    # The integer is added after rint, as PyTorch's kernel has it: added before, it would move ties.
    q = np.rint(scaled) + zero.astype(np.float64) if is_integer else np.rint(call.add(scaled, zero))
    clipped = np.fmin(np.fmax(q, float(low)), float(high))
    dequantized = call.multiply(clipped - zero if is_integer else call.subtract(clipped, zero), scale)
    return call.match_operand_layout(call.tensor(dequantized)), torch.from_numpy((q >= low) & (q <= high))


class FakeQuantization(Rule):
    """torch.fake_quantize_per_tensor_affine and its kin, whose scales and zeros are operands without a gradient."""

    def __init__(self) -> None:
        super().__init__("fake_quantize", fake_quantize)

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The numbers, and where they pass a gradient on."""
        names = [argument.name for argument in func._schema.arguments]
        arguments = {**dict(zip(names, args, strict=False)), **options}
        x, is_on = arguments["self"], bool(arguments.get("fake_quant_enabled", True))
        shape = [1] * x.ndim
        if "axis" in arguments:
            shape[arguments["axis"]] = -1
        scale, zero = (_laid_along(arguments[name], shape) for name in ("scale", "zero_point"))
        bounds = arguments["quant_min"], arguments["quant_max"]
        return super().__call__(run, func, (x, scale, zero, *bounds, is_on), {}, into)


def _laid_along(value: Tensor | float, shape: list[int]) -> NDArray | float:
    """A number, or those of a tensor along the axis of the shape that is not 1; integers stay such."""
    if not isinstance(value, Tensor):
        return value
    array = numbers_of(value) if value.is_floating_point() else value.numpy()
    return array.reshape(shape)


def observe_and_quantize(
    x: Tensor, is_observed: Tensor, is_on: Tensor, running_min: Tensor, running_max: Tensor, scale: Tensor,
    zero_point: Tensor, share: float, low: int, high: int, axis: int, by_rows: bool = False, is_symmetric: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """x by the scale and zero that PyTorch chooses for running extremes, which first move by a share to those of x."""
    if is_observed.item():
        axes = [i for i in range(x.ndim) if not by_rows or i != axis % x.ndim]
        for running, extremes in ((running_min, x.amin(axes)), (running_max, x.amax(axes))):
            moved = (
                extremes.reshape(-1)
                if not running.numel()
                else _move_towards(running, extremes.reshape(running.shape), share)
            )
            running.resize_(moved.shape).copy_(moved)
    if not is_on.item():
        return x * 1, torch.ones_like(x, dtype=torch.bool)
    chosen = _chosen_by_pytorch(running_min, running_max, low, high, by_rows, is_symmetric)
    for parameter, new in zip((scale, zero_point), chosen, strict=True):
        parameter.resize_(new.shape).copy_(new)
    if by_rows:
        return torch.ops.aten.fake_quantize_per_channel_affine_cachemask(x, scale, zero_point, axis, low, high)
    quantize = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    return quantize(x, scale, zero_point, is_on, low, high)


def _move_towards(running: Tensor, extreme: Tensor, share: float) -> Tensor:
    """Move a running extreme by a share of the way to a new one; take the new one where it is the first."""
    running = torch.where(running.isinf(), extreme, running)
    return running + (extreme - running) * share


def _chosen_by_pytorch(
    least: Tensor, most: Tensor, low: int, high: int, by_rows: bool, is_symmetric: bool
) -> tuple[Tensor, Tensor]:
    """The scale and the zero that PyTorch's own observer would choose for numbers that lie between these."""
    with without_dispatch(), torch.no_grad():
        extremes = torch.stack([least.reshape(-1), most.reshape(-1)], 1).float()
        count, yes = len(extremes), torch.ones(1, dtype=torch.long)
        running = (torch.full((count,), end) for end in (torch.inf, -torch.inf))
        scale, zero = torch.ones(count), torch.zeros(count, dtype=torch.int32)
        # PyTorch's own operation on the extremes alone, with averages that begin at infinity and a share of 1, so that
        # it chooses from these numbers and no others.
        observe = torch.ops.aten._fused_moving_avg_obs_fq_helper
        observe(extremes, yes, yes, *running, scale, zero, 1.0, low, high, 0, by_rows, is_symmetric)
    return scale, zero


#: By PyTorch's name.
TABLE: dict[str, Handler] = {
    "fake_quantize_per_tensor_affine_cachemask": FakeQuantization(),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": FakeQuantization(),
    "fake_quantize_per_channel_affine_cachemask": FakeQuantization(),
    "_fused_moving_avg_obs_fq_helper": Decomposition("fake_quantize", observe_and_quantize),
}
