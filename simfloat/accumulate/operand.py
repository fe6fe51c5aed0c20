"""Operands of sums, taken to their formats."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from numpy.typing import NDArray

from simfloat.accumulate.facts import Facts, facts_of
from simfloat.accumulate.known import Known, known_of
from simfloat.arithmetic._cast import Cast
from simfloat.arithmetic.block_scaling import Block, BlockScales
from simfloat.arithmetic.scaling import History
from simfloat.arithmetic.stream import Draw
from simfloat.arithmetic.target import Target


class Taken(NamedTuple):
    """An operand whose numbers were taken to a format."""

    known: Known
    divisor: float = 1.0  # by which they are too large: the scale of all
    blocks: BlockScales | None = None


class Use(NamedTuple):
    """As what an operand is used."""

    name: str | None  # the operation as which observers hear of its cast; None: they are not told
    stage: int  # of a draw
    axis: int  # that is summed over: -1 or -2 of its matrices
    history: History | None  # what a delayed scaling follows from


def take(x: NDArray, cast: Cast, use: Use, draw: Draw | None, target: Target, looks: bool) -> Taken:
    """The operand taken to the cast's format; the target's observer hears of it.

    `looks` if its numbers are going to be looked at anyway, to choose an engine.
    """
    format, name, history = cast.format, use.name, use.history
    observer = target.observer if name else None
    drawn = draw._replace(stage=use.stage) if draw and cast.rounding.is_stochastic else None
    if isinstance(cast.scale, Block):
        elements, blocks = cast.apply_in_blocks(x, use.axis, drawn, observer, name or "")
        return Taken(known_of(elements, format), blocks.whole, blocks)
    if cast.scale is not None:
        rounded, scale = cast.apply(x, drawn, observer, name or "", history)
        return Taken(known_of(rounded, format), scale or 1.0)
    if observer is None and cast.takes_all(x.dtype):
        return Taken(known_of(x, format))
    if not looks:
        rounded, _ = cast.apply(x, drawn, observer, name or "")
        return Taken(known_of(rounded, format))
    # Operands are often in the format already, and then need not be rounded again.
    facts = facts_of(x)
    unchanged, facts_after = _after(facts, cast)
    if unchanged and observer is None:
        return Taken(known_of(x, format, facts))
    rounded, _ = cast.apply(x, drawn, observer, name or "")
    return Taken(known_of(rounded, format, facts_after))


@lru_cache(maxsize=4096)
def _after(facts: Facts, cast: Cast) -> tuple[bool, Facts]:
    """Whether a cast changes nothing for certain, and the facts of what it gives."""
    return facts.unchanged_by(cast.format), facts.rounded(cast.format, cast.rounding)
