"""Operands taken to the formats of their casts, without a scale and unobserved, and what is then known of them."""

from __future__ import annotations

from functools import lru_cache

from numpy.typing import NDArray

from simfloat.accumulate.facts import Facts, facts_of
from simfloat.accumulate.known import Known, known_of
from simfloat.arithmetic._cast import Cast
from simfloat.arithmetic.bit_stream import Draw


@lru_cache(maxsize=4096)
def after_cast(facts: Facts, cast: Cast) -> tuple[bool, Facts]:
    """Whether a cast changes nothing for certain, and the facts of what it gives."""
    return facts.unchanged_by(cast.format), facts.rounded(cast.format, cast.rounding)


def take_unobserved(x: NDArray, cast: Cast, is_settled: bool, looks: bool, draw: Draw | None = None) -> Known:
    """What is known of an operand's numbers, taken to the format of a cast without a scale, of which nobody hears.

    `is_settled` if the cast is known to leave them as they are; `looks` if they are going to be looked at anyway, to
    choose an engine.
    """
    format = cast.format
    if is_settled or cast.takes_all(x.dtype):
        return known_of(x, format)
    if not looks:
        return known_of(cast.apply(x, draw)[0], format, is_made=True)
    # Operands are often in the format already, and then need not be rounded again.
    facts = facts_of(x)
    unchanged, facts_after = after_cast(facts, cast)
    if unchanged:
        return known_of(x, format, facts)
    return known_of(cast.apply(x, draw)[0], format, facts_after, is_made=True)
