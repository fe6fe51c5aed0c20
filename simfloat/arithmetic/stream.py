"""Random bits that depend on a seed and a place, not on history."""

from __future__ import annotations

import operator
from typing import Any


class BitStream:
    """The random bits of stochastic rounding, for any `seed` from 0 below 2^64.

    Each stochastic call takes the next call number; within a call every element and every step of a sum finds its own
    bits (Philox4x32-10 with the seed as key). Results therefore do not depend on threads, blocks or memory layout,
    and two streams in the same `state` give the same bits.
    """

    def __init__(self, seed: int) -> None:
        try:
            number = operator.index(seed)
        except TypeError:
            number = -1
        if not 0 <= number < 2**64:
            raise ValueError(f"A seed is an integer from 0 below 2**64, got {seed!r}.")
        self.seed = number
        self.calls = 0

    def take_call(self) -> int:
        """The number of the next stochastic call."""
        self.calls += 1
        return self.calls - 1

    @property
    def state(self) -> dict[str, int]:
        """What `from_state` needs to go on with the same bits; JSON-able."""
        return {"seed": self.seed, "calls": self.calls}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> BitStream:
        """The stream that had this `state`."""
        if not isinstance(state, dict) or set(state) != {"seed", "calls"}:
            raise ValueError(f"A stream's state has the keys 'seed' and 'calls', got {state!r}.")
        stream = cls(state["seed"])
        stream.calls = operator.index(state["calls"])
        return stream

    def __repr__(self) -> str:
        return f"BitStream.from_state({self.state!r})" if self.calls else f"BitStream({self.seed})"
