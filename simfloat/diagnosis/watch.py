"""A recorder that keeps where the first result was made that is NaN, or infinite though its operands were not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.kernels.events import INFINITE, OVERFLOW
from simfloat.telemetry import Recorder
from simfloat.telemetry.entries import Key, counted, overflowed_sums, sums_beyond, zeros
from simfloat.telemetry.first_nan import Entries, FirstNaN

#: What made an infinite result, in words as those of the causes of NaN.
OVERFLOWED, OVERFLOWED_SUM, DIVIDED = "an overflow", "an overflow inside a sum", "a division by 0"
INHERITED = "an infinite operand, in data, masks or parameters"

#: Operations that divide; a logarithm of zero may be meant, as of a probability.
DIVISIONS = ("divide", "reciprocal", "rsqrt")


class Watch(Recorder):
    """Counts as a Recorder, and keeps the first NaN or overflow to infinity.

    `first` tells of it, and `entries_then` has what was counted by then. A step that a loss scale skipped takes both
    with it, to `skipped`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first: FirstNaN | None = None
        self.entries_then: Entries = []
        self.skipped: list[tuple[FirstNaN, Entries]] = []
        self._was_infinite = False  # a result, of operands that no rounding made

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call."""
        super().observe(events, operation, path, phase)
        if self.first is not None:
            return
        if self.first_nan is not None:
            self.first = self.first_nan
        elif cause := _cause_of_infinity(events, operation, self._was_infinite):
            self.first = FirstNaN(self._series.steps, path, operation, phase, cause)
        self._was_infinite |= bool(events[INFINITE])
        if self.first is not None:
            self.entries_then = self.entries()

    def step(self, /, **values: float) -> None:
        """End a step."""
        if values.get("skipped") == 1 and self.first is not None and self.first.step == self._series.steps:
            self.skipped.append((self.first, self.entries_then))
            self.first, self.entries_then = None, []
        super().step(**values)

    def share(self, kind: str, key: Key) -> float:
        """The share of the results counted by `key` that had an event; of underflow, of those that are not exactly 0.

        Overflow is what stopped at the largest number. Zero where nothing was counted.
        """
        events = self._events.get((key.path, key.operation, key.phase))
        if events is None:
            return 0.0
        counts = counted(events)
        total = counts["total"]
        if kind == "overflow":
            return max(counts[kind] - int(events[INFINITE]), 0) / total
        if kind == "underflow":
            total += counts["underflow"] - counts["nan"] - zeros(events)
        return counts[kind] / total if total > 0 else 0.0

    def first_step(self, kind: str, key: Key) -> int:
        """The first step in which a result counted by `key` had an event; 0 if none had."""
        found = np.flatnonzero(self.series(*key[::2], operation=key.operation)[kind])
        return int(found[0]) if found.size else 0


def _cause_of_infinity(events: NDArray[np.int64], operation: str, was_infinite: bool) -> str:
    """Why a result is infinite of operands that are not; empty where none is.

    Nothing was infinite before the first one, but for numbers that no rounding made, such as masks. Where results of
    these were, a quotient may be of one of them.
    """
    if events[INFINITE] <= 0:
        return ""
    if events[OVERFLOW]:  # a mode that saturates leaves nothing infinite
        return OVERFLOWED
    if overflowed_sums(events) or sums_beyond(events):
        return OVERFLOWED_SUM
    return "" if operation not in DIVISIONS else INHERITED if was_infinite else DIVIDED
