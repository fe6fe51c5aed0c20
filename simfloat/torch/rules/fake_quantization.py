"""Numbers that become those which integers stand for, as training for quantized inference has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.torch.floating_operands import Arguments, Options
from simfloat.torch.handlers import Ruled
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import NOTHING, Tag
from simfloat.torch.tensor_arrays import numbers_of

Tensor = torch.Tensor


def quantized(
    call: RuleCall, x: Tensor, scale: NDArray | float, zero: NDArray | float, low: int, high: int, is_on: bool
) -> tuple[Tensor, Tensor]:
    """(q - zero) * scale with q = zero + the integer next to x * (1 / scale), and where q lies from low to high.

    What lies outside is `low` or `high`; NaN is `low`. A zero that is no integer is added before q is found.
    """
    call.begin(x.shape)
    if not is_on:
        return call.laid_out(call.tensor(call.round(x))), torch.ones_like(x, dtype=torch.bool)
    scaled = call.multiply(x, call.divide(np.array(1.0), scale))
    zero = np.asarray(zero)
    is_integer = zero.dtype.kind in "iu"
    q = np.rint(scaled) + zero.astype(np.float64) if is_integer else np.rint(call.add(scaled, zero))
    kept = np.fmin(np.fmax(q, float(low)), float(high))
    found = call.multiply(kept - zero if is_integer else call.subtract(kept, zero), scale)
    return call.laid_out(call.tensor(found)), torch.from_numpy((q >= low) & (q <= high))


class FakeQuantization(Ruled):
    """torch.fake_quantize_per_tensor_affine and its kin, whose scales and zeros are operands without a gradient."""

    def __init__(self) -> None:
        super().__init__("fake_quantize", quantized)

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The numbers, and where they pass a gradient on."""
        names = [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **options}
        x, is_on = given["self"], bool(given.get("fake_quant_enabled", True))
        shape = [1] * x.ndim
        if "axis" in given:
            shape[given["axis"]] = -1
        scale, zero = (_laid_along(given[name], shape) for name in ("scale", "zero_point"))
        bounds = given["quant_min"], given["quant_max"]
        return super().__call__(run, func, (x, scale, zero, *bounds, is_on), {}, into)


def _laid_along(value: Tensor | float, shape: list[int]) -> NDArray | float:
    """A number, or those of a tensor along the axis of the shape that is not 1; integers stay such."""
    if not isinstance(value, Tensor):
        return value
    array = numbers_of(value) if value.is_floating_point() else value.numpy()
    return array.reshape(shape)


#: By PyTorch's name.
TABLE: dict[str, Ruled] = dict.fromkeys(
    (
        "fake_quantize_per_tensor_affine_cachemask",
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        "fake_quantize_per_channel_affine_cachemask",
    ),
    FakeQuantization(),
)
