"""Rules of quantization: products of float8 and float4 matrices with scales, and rounding to integers and back.

The program passes the scales in the layouts of PyTorch and cuBLAS. Fake quantization replaces each value by the value
that an integer represents, as in training for quantized inference. Products with scales are torch._scaled_mm and
torch.nn.functional.scaled_mm.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.machines import is_on_gpu
from simfloat.sums.scales import Scales
from simfloat.torch.arguments import Arguments, Options
from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.contractions import product
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import FORMAT_OF, NOTHING, PAIRED, Tag, array_on, numbers_of, tensor_on

#: Kinds of scales by number, as in torch.nn.functional.ScalingType.
KINDS = ("TensorWise", "RowWise", "BlockWise1x16", "BlockWise1x32", "BlockWise1x128", "BlockWise128x128")
WHOLE, BY_ROW, BY_16, BY_32 = range(4)  # the kinds with a rule

#: The number of products in a block along k, and the dtype of its scale.
BLOCKS = {BY_16: (16, torch.float8_e4m3fn), BY_32: (32, torch.float8_e8m0fnu)}

#: For each kind of scales, the supported operands: float4 with two values in a byte (True), or others (False).
PAIRED_WITH = {WHOLE: (False,), BY_ROW: (False,), BY_16: (True,), BY_32: (False, True)}

#: torch.nn.functional.SwizzleType.SWIZZLE_32_4_4, the layout of the scales of blocks: tiles of 128 rows by 4 blocks.
SWIZZLED, ROWS, COLUMNS = 1, 128, 4


class OperandScales(NamedTuple):
    """The scales of one operand."""

    kinds: list[int]
    tensors: list[torch.Tensor]
    layout: int  # of the first tensor

    @property
    def names(self) -> str:
        """The kinds, by PyTorch's names."""
        return " and ".join(KINDS[kind] for kind in self.kinds)


def scales_of(arguments: dict[str, Any], a: torch.Tensor, b: torch.Tensor) -> tuple[list[NDArray], Scales | None]:
    """Return the factors of the product of a (m, k) and b (k, n), and the scales of blocks if there are any.

    Raises ValueError for kinds, dtypes and layouts of scales that PyTorch's products do not accept, or that have no
    rule.
    """
    left, right = _of_operand(arguments, "a"), _of_operand(arguments, "b")
    kind = _common_kind(left, right)
    _check_pairs(kind, a, b)
    factors = [_factor(x, a.shape[0], b.shape[1]) for side in (left, right) for x in side.tensors[kind in BLOCKS :]]
    if kind not in BLOCKS:
        return factors, None
    size, dtype = BLOCKS[kind]
    count = -(-a.shape[1] * (2 if a.dtype == PAIRED else 1) // size)
    rows, columns = _unswizzle(left, dtype, a.shape[0], count), _unswizzle(right, dtype, b.shape[1], count)
    return factors, Scales(rows, columns.T, size, divide=False)


def _of_operand(arguments: dict[str, Any], side: str) -> OperandScales:
    """Return the scales of an operand; torch._scaled_mm has one, and its dtype and size determine the kind."""
    scale, kinds = arguments[f"scale_{side}"], arguments.get(f"recipe_{side}")
    if kinds is not None:
        return OperandScales(list(kinds), list(scale), next(iter(arguments[f"swizzle_{side}"]), 0))
    of_blocks = [kind for kind, (_, dtype) in BLOCKS.items() if scale.dtype == dtype]
    return OperandScales(of_blocks or [WHOLE if scale.numel() == 1 else BY_ROW], [scale], SWIZZLED)


def _common_kind(left: OperandScales, right: OperandScales) -> int:
    """Return the kind of both operands' scales; scales of whole operands and of rows may be combined."""
    are_plain = all(kinds in ([WHOLE], [BY_ROW]) for kinds in (left.kinds, right.kinds))
    if not are_plain and (left.kinds != right.kinds or left.kinds not in ([BY_16], [BY_16, WHOLE], [BY_32])):
        raise ValueError(
            "scaled_mm has rules for scales of whole operands, of rows, and of the blocks of both operands: "
            "BlockWise1x16, also with TensorWise, and BlockWise1x32; a has "
            f"{left.names}, b {right.names}. For other scales, multiply the operands by them in float32 first."
        )
    return left.kinds[0]


def _check_pairs(kind: int, a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ValueError for float4 operands with scales of another kind, or with pairs that are not along k."""
    first, second = a.dtype == PAIRED, b.dtype == PAIRED
    if first != second or first not in PAIRED_WITH[kind]:
        raise ValueError(
            "scaled_mm takes float4 values only in both operands and with scales of blocks along k; BlockWise1x16 "
            f"takes only float4; got {a.dtype} and {b.dtype} with {KINDS[kind]}."
        )
    if first and (a.stride(1) != 1 or b.stride(0) != 1):
        raise ValueError(
            "scaled_mm takes float4 numbers in pairs along k: a (m, k / 2) in rows, b the transpose of such a matrix."
        )


def _factor(scale: torch.Tensor, rows: int, columns: int) -> NDArray:
    """Return the values of a scale; raise ValueError unless it belongs to a whole operand, or to rows or columns."""
    if scale.numel() != 1 and tuple(scale.shape) not in ((rows, 1), (1, columns)):
        raise ValueError(
            f"scaled_mm takes a scale of a whole operand, or scales of rows ({rows}, 1) and columns (1, {columns}); "
            f"got shape {tuple(scale.shape)}. Scales of blocks are of the type float8_e4m3fn or float8_e8m0fnu."
        )
    array = numbers_of(scale)
    return array.reshape(()) if scale.numel() == 1 else array


def _unswizzle(scales: OperandScales, dtype: torch.dtype, rows: int, count: int) -> NDArray:
    """Return the scales (rows, count) of blocks along k, from cuBLAS's padded tiles.

    In a tile the scale of row i and block j is at (i mod 32) * 16 + (i div 32) * 4 + j.
    """
    scale, tiles = scales.tensors[0], (-(-rows // ROWS), -(-count // COLUMNS))
    needed = tiles[0] * tiles[1] * ROWS * COLUMNS
    if scale.dtype != dtype or scales.layout != SWIZZLED or scale.numel() != needed:
        raise ValueError(
            f"scaled_mm takes the scales of {rows} by {count} blocks as {needed} numbers of the type {dtype} in the "
            f"layout SWIZZLE_32_4_4, tiles of {ROWS} by {COLUMNS} with padding; got {scale.numel()} of "
            f"{scale.dtype}{'' if scales.layout == SWIZZLED else ', NO_SWIZZLE'}."
        )
    in_tiles = numbers_of(scale).reshape(*tiles, 32, ROWS // 32, COLUMNS).transpose(0, 3, 2, 1, 4)
    return in_tiles.reshape(tiles[0] * ROWS, tiles[1] * COLUMNS)[:rows, :count]


Tensor = torch.Tensor


def fake_quantize(
    call: RuleCall, x: Tensor, scale: NDArray | float, zero: NDArray | float, low: int, high: int, is_on: bool
) -> tuple[Tensor, Tensor]:
    """Return (q - zero) * scale, and a mask that is True where q is from low to high.

    q is zero + the integer nearest to x * (1 / scale). Values outside become `low` or `high`; NaN becomes `low`. A zero
    that is not an integer is added before q is rounded.
    """
    call.begin()
    if not is_on:
        return call.match_operand_layout(call.tensor(call.round(x))), torch.ones_like(x, dtype=torch.bool)
    scaled = call.multiply(x, call.divide(np.array(1.0), scale))
    offset: Any = zero
    offset = offset if is_on_gpu(offset) else np.asarray(offset)
    is_integer = offset.dtype.kind in "iu"
    # The integer is added after rint, as in PyTorch's kernel: added before, it would change ties.
    q = np.rint(scaled) + offset.astype(np.float64) if is_integer else np.rint(call.add(scaled, offset))
    clipped = np.fmin(np.fmax(q, float(low)), float(high))
    dequantized = call.multiply(clipped - offset if is_integer else call.subtract(clipped, offset), scale)
    return call.match_operand_layout(call.tensor(dequantized)), tensor_on((q >= low) & (q <= high))


class FakeQuantization(Rule):
    """torch.fake_quantize_per_tensor_affine and similar functions; scales and zeros are operands without gradients."""

    def __init__(self) -> None:
        super().__init__("fake_quantize", fake_quantize)

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the values, and the mask of elements that pass a gradient."""
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
    """Reshape a tensor to the axis of `shape` that is not 1; return a number unchanged. Integers stay integers."""
    if not isinstance(value, Tensor):
        return value
    array = numbers_of(value) if value.is_floating_point() else array_on(value)
    return array.reshape(shape)


def observe_and_quantize(
    x: Tensor, is_observed: Tensor, is_on: Tensor, running_min: Tensor, running_max: Tensor, scale: Tensor,
    zero_point: Tensor, share: float, low: int, high: int, axis: int, by_rows: bool = False, is_symmetric: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Quantize x by PyTorch's scale and zero for running extremes, which first move towards those of x."""
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
    """Move a running extreme by a share of the distance to a new one, or replace it if it is the first."""
    running = torch.where(running.isinf(), extreme, running)
    return running + (extreme - running) * share


def _chosen_by_pytorch(
    least: Tensor, most: Tensor, low: int, high: int, by_rows: bool, is_symmetric: bool
) -> tuple[Tensor, Tensor]:
    """Return the scale and the zero that PyTorch's own observer would choose for values between these extremes."""
    with without_dispatch(), torch.no_grad():
        extremes = torch.stack([least.reshape(-1), most.reshape(-1)], 1).float()
        count, yes = len(extremes), torch.ones(1, dtype=torch.long)
        running = (torch.full((count,), end) for end in (torch.inf, -torch.inf))
        scale, zero = torch.ones(count), torch.zeros(count, dtype=torch.int32)
        # PyTorch's own operation runs only on the extremes, with averages that begin at infinity and a share of 1, so
        # that it chooses from these values.
        observe = torch.ops.aten._fused_moving_avg_obs_fq_helper
        observe(extremes, yes, yes, *running, scale, zero, 1.0, low, high, 0, by_rows, is_symmetric)
    return scale, zero


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "fake_quantize_per_tensor_affine_cachemask": FakeQuantization(),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": FakeQuantization(),
    "fake_quantize_per_channel_affine_cachemask": FakeQuantization(),
    "_fused_moving_avg_obs_fq_helper": Decomposition("fake_quantize", observe_and_quantize),
}


#: The dtypes for which PyTorch's casts turn an infinity into the largest number: float8_e4m3fn, in version 2.13 and
#: later.
SATURATING = frozenset(
    dtype for dtype in FORMAT_OF if dtype != PAIRED and math.isfinite(torch.tensor(torch.inf).to(dtype).item())
)


class ScaledProduct(Handler):
    """a @ b by the `accumulate` of the policy, times both scales, plus a bias, times the scale of the result.

    Each step is rounded to FP32, and the last result is rounded once to the dtype of the result, under every policy. It
    saturates if PyTorch's casts to that dtype do. Scales of blocks multiply sums like the scales of casts in a policy.
    Additional scales of whole operands are first multiplied with each other, as PyTorch does for cuBLAS.
    """

    how = "rule"

    #: The name in policies, which may give the operation its own accumulator.
    operation = "scaled_mm"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the product."""
        arguments = _arguments_by_name(func, args, options)
        a, b = arguments["self"], arguments["mat2"]
        bias, last = arguments.get("bias"), arguments.get("scale_result")
        factors, blocks = scales_of(arguments, a, b)

        dtype = _type_of(arguments)

        def rule(call: RuleCall, *_: Tensor, **__: Any) -> Tensor:
            call.force_format(FORMAT_OF[dtype], saturates=dtype in SATURATING)
            result = product(call, a, b, scales=blocks)
            for factor in [call.multiply(*factors)] if blocks and factors else factors:
                result = call.multiply(result, factor)
            result = result if bias is None else call.add(result, numbers_of(bias))
            return call.tensor(result if last is None else call.multiply(result, numbers_of(last)))

        operands = [a, b] if bias is None else [a, b, bias]
        return Rule(self.operation, rule)(run, func, tuple(operands), {"dtype": dtype}, into)

    def plain(self, func: Any, args: Arguments, options: Options) -> Any:
        """Return zeros with the shape and dtype of the result, because PyTorch has no float4 products on a CPU."""
        arguments = _arguments_by_name(func, args, options)
        return arguments["self"].new_zeros(
            arguments["self"].shape[0], arguments["mat2"].shape[1], dtype=_type_of(arguments)
        )


def _arguments_by_name(func: Any, args: Arguments, options: Options) -> dict[str, Any]:
    """Return the arguments of an operation by name."""
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **options}


def _type_of(arguments: dict[str, Any]) -> torch.dtype:
    """Return the dtype of the result: `out_dtype`, or the dtype of the first operand, or BF16 for float4 operands."""
    dtype = arguments["self"].dtype
    return arguments.get("out_dtype") or (torch.bfloat16 if dtype == PAIRED else dtype)


#: Rules, by PyTorch's name.
TABLE |= {"_scaled_mm": ScaledProduct(), "_scaled_mm_v2": ScaledProduct()}
