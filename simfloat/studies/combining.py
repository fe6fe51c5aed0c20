"""Combinations of options, one for each part: the cheapest of those whose errors add up to little enough."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from simfloat.arithmetic._cast import Cast
from simfloat.formats import Format

#: The option that each part has: 0 for none, 1 for its first.
Choice = tuple[int, ...]

#: So many combinations are followed at most; of more, those that save the most at each level of error, of so many.
MOST_FOLLOWED, LEVELS = 4096, 32


def cheapest_choices(
    saved: Sequence[Sequence[float]], excess: Sequence[Sequence[float]], limit: float
) -> Iterator[Choice]:
    """Combinations whose excesses add up to at most the limit, that which saves most first; all of them, if few.

    saved and excess have a list for each part: what its options save, and what each adds.
    """
    states: list[tuple[float, float, Choice]] = [(0.0, 0.0, ())]
    for gains, errors in zip(saved, excess, strict=True):
        states = [
            (gain - more, error + added, (*choice, option))
            for gain, error, choice in states
            for option, (more, added) in enumerate(zip(gains, errors, strict=True))
            if error + added <= limit
        ]
        states = _followed_states(sorted(states), limit)
    return (choice for _, _, choice in states)


def _followed_states(states: list[tuple[float, float, Choice]], limit: float) -> list[tuple[float, float, Choice]]:
    """Select the states to follow from the sorted ones."""
    if len(states) <= MOST_FOLLOWED:
        return states
    counts: dict[int, int] = {}
    followed = []
    for state in states:
        level = int(LEVELS * state[1] / limit)
        counts[level] = counts.get(level, 0) + 1
        if counts[level] <= MOST_FOLLOWED // LEVELS:
            followed.append(state)
    return followed


def combined_error(errors: Sequence[float], power: float) -> float:
    """Combine errors by a power: 1 gives their sum, a large power nearly the largest of them."""
    most = max(errors, default=0.0)
    return most if most in (0.0, math.inf) else most * sum((error / most) ** power for error in errors) ** (1 / power)


def error_power(errors: Sequence[float], total: float) -> float:
    """The power, 1 at least, by which errors come to a total that is not less than the largest of them."""
    low, high = 1.0, 64.0
    if combined_error(errors, low) <= total:
        return low
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if combined_error(errors, middle) > total else (low, middle)
    return low


def is_narrower(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether each value is the other one, or holds none but its numbers; None is the widest."""
    return all(wider is None or _contains(wider, value) for value, wider in zip(values, others, strict=True))


def _contains(wide: Any, narrow: Any) -> bool:
    """Whether every number of the one is in the other: plain formats are compared, others only with themselves."""
    if narrow == wide:
        return True
    wide, narrow = (
        value.format if isinstance(value, Cast) and value.scale is None else value for value in (wide, narrow)
    )
    if not isinstance(wide, Format) or not isinstance(narrow, Format):
        return False
    return (
        narrow.precision <= wide.precision
        and narrow.max <= wide.max
        and narrow.min >= wide.min
        and narrow.smallest_subnormal >= wide.smallest_subnormal
    )
