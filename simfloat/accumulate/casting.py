"""Operands taken to the formats of their casts, without a scale and unobserved, and what is then known of them."""

from __future__ import annotations

from functools import lru_cache

from numpy.typing import NDArray

from simfloat.accumulate.bounds import Bounds, bounds_of
from simfloat.accumulate.operand_bounds import OperandBounds, operand_bounds
from simfloat.arithmetic._cast import Cast
from simfloat.arithmetic.bit_stream import Draw


@lru_cache(maxsize=4096)
def after_cast(bounds: Bounds, cast: Cast) -> tuple[bool, Bounds]:
    """Whether a cast changes nothing for certain, and the bounds of what it gives."""
    return bounds.unchanged_by(cast.format), bounds.rounded(cast.format, cast.rounding)


def take_unobserved(x: NDArray, cast: Cast, is_settled: bool, looks: bool, draw: Draw | None = None) -> OperandBounds:
    """What is known of an operand's numbers, taken to the format of a cast without a scale, of which nobody hears.

    `is_settled` if the cast is known to leave them as they are; `looks` if they are going to be looked at anyway, to
    choose an engine.
    """
    format = cast.format
    if is_settled or cast.takes_all(x.dtype):
        return operand_bounds(x, format)
    if not looks:
        return operand_bounds(cast.apply(x, draw)[0], format, is_made=True)
    # Operands are often in the format already, and then need not be rounded again.
    bounds = bounds_of(x)
    unchanged, bounds_after = after_cast(bounds, cast)
    if unchanged:
        return operand_bounds(x, format, bounds)
    return operand_bounds(cast.apply(x, draw)[0], format, bounds_after, is_made=True)
