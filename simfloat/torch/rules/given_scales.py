"""The scales that a program gives to a product of float8 or float4 matrices, as PyTorch and cuBLAS lay them out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from simfloat.accumulate.scales import Scales
from simfloat.torch.tensor_arrays import PAIRED, numbers_of

#: Kinds of scales by their numbers, as torch.nn.functional.ScalingType has them.
KINDS = ("TensorWise", "RowWise", "BlockWise1x16", "BlockWise1x32", "BlockWise1x128", "BlockWise128x128")
WHOLE, BY_ROW, BY_16, BY_32 = range(4)  # those with a rule

#: The products of a block along k, and the type of its scale.
BLOCKS = {BY_16: (16, torch.float8_e4m3fn), BY_32: (32, torch.float8_e8m0fnu)}

#: Whether numbers may be float4, two to a byte, by the kind of scales.
PAIRED_WITH = {WHOLE: (False,), BY_ROW: (False,), BY_16: (True,), BY_32: (False, True)}

#: torch.nn.functional.SwizzleType.SWIZZLE_32_4_4, the layout of the scales of blocks: tiles of 128 rows by 4 blocks.
SWIZZLED, ROWS, COLUMNS = 1, 128, 4


class OperandScales(NamedTuple):
    """The scales of one operand."""

    kinds: list[int]
    tensors: list[torch.Tensor]
    layout: int  # of the first

    @property
    def names(self) -> str:
        """The kinds, as PyTorch calls them."""
        return " and ".join(KINDS[kind] for kind in self.kinds)


def scales_of(arguments: dict[str, Any], a: torch.Tensor, b: torch.Tensor) -> tuple[list[NDArray], Scales | None]:
    """Return the factors of the product of a (m, k) and b (k, n), and the scales of blocks if there are any.

    Raises ValueError for kinds, types and layouts of scales that PyTorch's products do not take, or that have no rule.
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
    """The scales of an operand; of torch._scaled_mm one, whose type and size tell its kind."""
    scale, kinds = arguments[f"scale_{side}"], arguments.get(f"recipe_{side}")
    if kinds is not None:
        return OperandScales(list(kinds), list(scale), next(iter(arguments[f"swizzle_{side}"]), 0))
    of_blocks = [kind for kind, (_, dtype) in BLOCKS.items() if scale.dtype == dtype]
    return OperandScales(of_blocks or [WHOLE if scale.numel() == 1 else BY_ROW], [scale], SWIZZLED)


def _common_kind(left: OperandScales, right: OperandScales) -> int:
    """The kind of both operands' scales; of a whole operand and of rows each may have its own."""
    are_plain = all(kinds in ([WHOLE], [BY_ROW]) for kinds in (left.kinds, right.kinds))
    if not are_plain and (left.kinds != right.kinds or left.kinds not in ([BY_16], [BY_16, WHOLE], [BY_32])):
        raise ValueError(
            "scaled_mm has rules for scales of whole operands, of rows, and of the blocks of both operands: "
            "BlockWise1x16, also with TensorWise, and BlockWise1x32; a has "
            f"{left.names}, b {right.names}. Multiply numbers of other scales by them in float32, and those products."
        )
    return left.kinds[0]


def _check_pairs(kind: int, a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ValueError for float4 numbers with scales of another kind, and in pairs that do not lie along k."""
    first, second = a.dtype == PAIRED, b.dtype == PAIRED
    if first != second or first not in PAIRED_WITH[kind]:
        raise ValueError(
            "scaled_mm takes float4 numbers in both operands, with scales of blocks along k, and none but these with "
            f"BlockWise1x16; got {a.dtype} and {b.dtype} with {KINDS[kind]}."
        )
    if first and (a.stride(1) != 1 or b.stride(0) != 1):
        raise ValueError(
            "scaled_mm takes float4 numbers in pairs along k: a (m, k / 2) in rows, b the transpose of such a matrix."
        )


def _factor(scale: torch.Tensor, rows: int, columns: int) -> NDArray:
    """The numbers of a scale; ValueError unless it is that of a whole operand, or of rows and columns."""
    if scale.numel() != 1 and tuple(scale.shape) not in ((rows, 1), (1, columns)):
        raise ValueError(
            f"scaled_mm takes a scale of a whole operand, or scales of rows ({rows}, 1) and columns (1, {columns}); "
            f"got shape {tuple(scale.shape)}. Scales of blocks are of the type float8_e4m3fn or float8_e8m0fnu."
        )
    array = numbers_of(scale)
    return array.reshape(()) if scale.numel() == 1 else array


def _unswizzle(scales: OperandScales, dtype: torch.dtype, rows: int, count: int) -> NDArray:
    """The scales (rows, count) of blocks along k, from cuBLAS's tiles, which are filled up.

    In a tile the scale of row i and block j stands at (i mod 32) * 16 + (i div 32) * 4 + j.
    """
    scale, tiles = scales.tensors[0], (-(-rows // ROWS), -(-count // COLUMNS))
    needed = tiles[0] * tiles[1] * ROWS * COLUMNS
    if scale.dtype != dtype or scales.layout != SWIZZLED or scale.numel() != needed:
        raise ValueError(
            f"scaled_mm takes the scales of {rows} by {count} blocks as {needed} numbers of the type {dtype} in the "
            f"layout SWIZZLE_32_4_4, tiles of {ROWS} by {COLUMNS} that are filled up; got {scale.numel()} of "
            f"{scale.dtype}{'' if scales.layout == SWIZZLED else ', NO_SWIZZLE'}."
        )
    in_tiles = numbers_of(scale).reshape(*tiles, 32, ROWS // 32, COLUMNS).transpose(0, 3, 2, 1, 4)
    return in_tiles.reshape(tiles[0] * ROWS, tiles[1] * COLUMNS)[:rows, :count]
