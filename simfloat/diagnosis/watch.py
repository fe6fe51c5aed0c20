"""A recorder that keeps the first NaN or infinite result that the training under the reference does not make."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from simfloat.kernels.events import INFINITE, NAN, OVERFLOW
from simfloat.telemetry import Recorder
from simfloat.telemetry.entries import (
    Key,
    cause_of_nan,
    count_overflowed_sums,
    count_sums_beyond_fp32,
    count_zeros,
    counts_by_name,
)
from simfloat.telemetry.first_nan import POLES, Entries, FirstNaN

#: What made an infinite result, in words as those of the causes of NaN.
OVERFLOWED, OVERFLOWED_SUM, DIVIDED = "an overflow", "an overflow inside a sum", "a division by 0"
LOGARITHM = "log(0)"
INHERITED = "an infinite operand, in data, masks or parameters"

#: Operations that divide.
DIVISIONS = ("divide", "reciprocal", "rsqrt")

#: What is counted of an operation at a place in a step: infinite results, and NaN.
NonFiniteCounts = tuple[int, int]


class FaultRecorder(Recorder):
    """Counts as a Recorder, and keeps the first NaN or infinity.

    `first` names that result, and `entries_then` holds the counts until then. If a loss scale skips the step, both move
    to `skipped`. With the recorder of another training as `reference`, a result counts only if the operation makes more
    infinite results, or more NaN, at its place in the step than it made under the reference. Infinities whose keys are
    in `excused` do not count.
    """

    def __init__(self, reference: FaultRecorder | None = None, excused: Collection[Key] = ()) -> None:
        super().__init__()
        self._reference, self._excused = reference, excused
        self._non_finite_counts: dict[tuple[int, Key], NonFiniteCounts] = {}
        self.first: FirstNaN | None = None
        self.entries_at_first: Entries = []
        self.skipped: list[tuple[FirstNaN, Entries]] = []
        self._was_infinite = False  # a result, of operands that no rounding made

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call."""
        nan, infinite, step, key = (
            int(events[NAN]),
            int(events[INFINITE]),
            self._series.steps,
            Key(path, operation, phase),
        )
        cause = cause_of_nan(events) if nan else ""
        super().observe(events, operation, path, phase)
        if not nan and not infinite:
            return
        before = self._non_finite_counts.get((step, key), (0, 0))
        infinite, nan = counts = before[0] + infinite, before[1] + nan
        self._non_finite_counts[step, key] = counts
        if self.first is not None:
            return
        reference_counts = (0, 0) if self._reference is None else self._reference.count_non_finite(step, key)
        if nan <= reference_counts[1] and (infinite <= reference_counts[0] or key in self._excused):
            self._was_infinite |= key in self._excused or self._reference is None and infinite > 0
            return
        if nan <= reference_counts[1]:
            cause = _cause_of_infinity(events, operation, self._was_infinite)
        self._was_infinite |= infinite > reference_counts[0]
        if cause:
            self.first = FirstNaN(step, path, operation, phase, cause)
            self.entries_at_first = self.entries()

    def count_non_finite(self, step: int, key: Key) -> NonFiniteCounts:
        """Count the infinite results and the NaN that an operation made at a place in a step."""
        return self._non_finite_counts.get((step, key), (0, 0))

    def step(self, /, **values: float) -> None:
        """End a step."""
        if values.get("skipped") == 1 and self.first is not None and self.first.step == self._series.steps:
            self.skipped.append((self.first, self.entries_at_first))
            self.first, self.entries_at_first = None, []
        super().step(**values)

    def share(self, kind: str, key: Key) -> float:
        """The share of the results counted by `key` that had an event; of underflow, of those that are not exactly 0.

        Overflow is what stopped at the largest number. Zero where nothing was counted.
        """
        events = self._events.get((key.path, key.operation, key.phase))
        if events is None:
            return 0.0
        counts = counts_by_name(events)
        total = counts["total"]
        if kind == "overflow":
            return max(counts[kind] - int(events[INFINITE]), 0) / total
        if kind == "underflow":
            total += counts["underflow"] - counts["nan"] - count_zeros(events)
        return counts[kind] / total if total > 0 else 0.0

    def first_step(self, kind: str, key: Key) -> int:
        """The first step in which a result counted by `key` had an event; 0 if none had."""
        steps = np.flatnonzero(self.series(*key[::2], operation=key.operation)[kind])
        return int(steps[0]) if steps.size else 0


def _cause_of_infinity(events: NDArray[np.int64], operation: str, was_infinite: bool) -> str:
    """Return the cause of an infinite result of finite operands; empty if there is none.

    Nothing was infinite before the first one, except for values that no rounding made, such as masks. If results of
    these were infinite before, a quotient may be a quotient of such a value.
    """
    if events[INFINITE] <= 0:
        return ""
    if events[OVERFLOW]:  # a mode that saturates leaves nothing infinite
        return OVERFLOWED
    if count_overflowed_sums(events) or count_sums_beyond_fp32(events):
        return OVERFLOWED_SUM
    if operation not in POLES:
        return ""
    return INHERITED if was_infinite else DIVIDED if operation in DIVISIONS else LOGARITHM
