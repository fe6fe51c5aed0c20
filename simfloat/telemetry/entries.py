"""The entries of a recorder: event vectors by path, operation and phase, and functions that read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.kernels.events import (
    CAUSES,
    COUNTS,
    EVENTS,
    FIRST_CAUSE,
    INFINITE,
    LOWEST_EXPONENT,
    NAN_OPERAND,
    OPTIONAL_COUNTS,
    OVERFLOW,
    PRECISE,
    SIZE,
    SUM_BEYOND,
    SUM_OVERFLOW,
    TOTAL,
    WIDE,
    ZERO,
)  # fmt: skip

#: The counts that `Recorder.counts` gives; how many results are zero stands in the histogram.
COUNT_NAMES = tuple(kind for kind in COUNTS if kind != "zero")


class Key(NamedTuple):
    """The key of an entry."""

    path: str
    operation: str
    phase: str


def counts_by_name(events: NDArray[np.int64]) -> dict[str, int]:
    """The counts in an event vector by name."""
    return {kind: int(events[COUNTS.index(kind)]) for kind in COUNT_NAMES}


def more_counts(events: NDArray[np.int64]) -> dict[str, int]:
    """The counts that stand behind the entries of an event vector, if there are any."""
    return dict(zip(OPTIONAL_COUNTS, events[SIZE:].tolist(), strict=False))


def resize_events(events: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """A copy of an event vector with as many entries behind; those that it lacks are zero."""
    copy = np.zeros(size, np.int64)
    copy[: events.size] = events[:size]
    return copy


def exponent_counts(events: NDArray[np.int64]) -> dict[int | str, int]:
    """The histogram in an event vector: how many results have which exponent."""
    occurrences = events[len(COUNTS) : EVENTS]
    return {int(place) + LOWEST_EXPONENT: int(occurrences[place]) for place in np.flatnonzero(occurrences)}


def count_zeros(events: NDArray[np.int64]) -> int:
    """How many results in an event vector are zero."""
    return int(events[ZERO])


def count_infinities(events: NDArray[np.int64]) -> int:
    """How many results in an event vector are infinite and did not overflow."""
    return int(events[INFINITE] - events[OVERFLOW])


def count_overflowed_sums(events: NDArray[np.int64]) -> int:
    """How many results in an event vector are infinite, or NaN, for their sums overflowed in a narrow format."""
    return int(events[FIRST_CAUSE + SUM_OVERFLOW])


def count_sums_beyond_fp32(events: NDArray[np.int64]) -> int:
    """How many results in an event vector are infinite, or NaN, for their sums were beyond FP32's range."""
    return int(events[FIRST_CAUSE + SUM_BEYOND])


def cause_of_nan(events: NDArray[np.int64]) -> str:
    """Return the cause of NaN in an event vector: of several the one that made most NaN from numbers."""
    counts = events[FIRST_CAUSE:WIDE]
    most_frequent = int(counts[NAN_OPERAND + 1 :].argmax()) + NAN_OPERAND + 1
    return CAUSES[most_frequent if counts[most_frequent] else NAN_OPERAND]


def are_wide(events: NDArray[np.int64]) -> bool:
    """Whether the results in an event vector went to formats with FP32's range."""
    return 0 < events[TOTAL] == events[WIDE]


def are_precise(events: NDArray[np.int64]) -> bool:
    """Whether the results in an event vector went to formats with FP32's precision."""
    return 0 < events[TOTAL] == events[PRECISE]
