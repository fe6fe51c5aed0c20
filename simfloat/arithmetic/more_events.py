"""Two more counts of a rounding, for observers that ask for them: they cost another pass over the results."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.target import MOST_PRECISION
from simfloat.formats import Format
from simfloat.kernels.events import SIZE, no_events

#: Behind the entries of an event vector. saturated: results that stopped at the largest number, though the exact ones
#: lie beyond it; inexact: results that are numbers, or infinite, other than the exact ones.
MORE = ("saturated", "inexact")

#: Below this float64 has too few bits to tell an inexact result by the last one of them.
LEAST = 2.0**-1070


def wants_more(observer: Any) -> bool:
    """Whether an observer asks for these counts too."""
    return bool(getattr(observer, "more", False))


def events_for(observer: Any) -> NDArray[np.int64]:
    """An event vector of zeros, as long as the observer wants it."""
    return np.zeros(SIZE + len(MORE), np.int64) if wants_more(observer) else no_events()


def check_inexact(format: Format, operation: str) -> None:
    """Raise ValueError for a format so wide that exact results, rounded to odd in float64, may be taken for its own."""
    if format.mantissa_bits >= MOST_PRECISION or format.smallest_subnormal < LEAST:
        raise ValueError(
            f"Which results of {operation} are inexact cannot be told in {format}; it can in formats of at most "
            f"{MOST_PRECISION} bits of precision and no numbers below 2^-1070. Count without more=True."
        )


def count_more(exact: NDArray, out: NDArray, chosen: NDArray | None, largest: float, events: NDArray[np.int64]) -> None:
    """Add to an event vector what it has behind its entries.

    `chosen` are the exact results rounded without a largest number, None where no finite one lies beyond it and did not
    become infinite.
    """
    beyond = np.isinf(exact)
    if chosen is not None:
        beyond |= np.abs(chosen) > largest
    events[SIZE] += int(np.count_nonzero(beyond & (np.abs(out) == largest)))
    events[SIZE + 1] += int(np.count_nonzero((exact != out) & ~np.isnan(out)))
