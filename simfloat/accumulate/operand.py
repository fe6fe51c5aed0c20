"""Operands of sums, taken to their formats."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import NDArray

from simfloat.accumulate.bounds import bounds_of
from simfloat.accumulate.casting import after_cast, take_unobserved
from simfloat.accumulate.operand_bounds import OperandBounds, operand_bounds
from simfloat.accumulate.options import Options
from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.block_scaling import Block, BlockScales

#: Of the left and of the right operand: the stage of a draw for its cast, and the axis that is summed over.
STAGES, DEPTHS = (255, 254), (-1, -2)


class Taken(NamedTuple):
    """An operand whose numbers were taken to a format."""

    known: OperandBounds
    divisor: float = 1.0  # by which they are too large: the scale of all
    blocks: BlockScales | None = None


def take(x: NDArray, options: Options, side: int, draw: Draw | None, looks: bool) -> Taken:
    """The left (0) or right (1) operand, taken to its cast's format; the target's observer hears of it.

    `looks` if its numbers are going to be looked at anyway, to choose an engine.
    """
    cast, target, name = (options.inputs or ())[side], options.target, options.cast_operations[side]
    format, observer = cast.format, target.observer if name else None
    drawn = draw._replace(stage=STAGES[side]) if draw and cast.rounding.is_stochastic else None
    if cast.scale is not None:
        if isinstance(cast.scale, Block):
            elements, blocks = cast.apply_in_blocks(x, DEPTHS[side], drawn, observer, name or "")
            return Taken(operand_bounds(elements, format, is_made=True), blocks.whole, blocks)
        rounded, scale = cast.apply(x, drawn, observer, name or "", options.histories[side])
        return Taken(operand_bounds(rounded, format, is_made=True), scale or 1.0)
    if observer is None:
        return Taken(take_unobserved(x, cast, options.settled[side], looks, drawn))
    bounds = after_cast(bounds_of(x), cast)[1] if looks else None
    rounded, _ = cast.apply(x, drawn, observer, name or "")
    return Taken(operand_bounds(rounded, format, bounds, is_made=True))
