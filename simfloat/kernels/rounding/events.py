"""The vector of int64 in which events of roundings are counted: its layout, for those who count and those who read.

The first entries are the counts named in COUNTS; then comes a histogram, how many finite nonzero results have which
exponent floor(log2|result|), from LOWEST_EXPONENT on. Behind them stand the infinite results, the causes of NaN, named
in CAUSES, and the results in formats that have FP32's range, and its precision. Observers may ask for optional events,
`OPTIONAL_COUNTS`, which cost one more pass over the results, and stand behind all entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: total: results; overflow: finite exact results rounded beyond the largest number, clamped or not; underflow: nonzero
#: ones that became zero; subnormal: nonzero results below the smallest normal number; nan: NaN results; unchanged: sums
#: that lost an addend; zero: results that are zero. In fixed point there is neither underflow nor subnormal.
COUNTS = ("total", "overflow", "underflow", "subnormal", "nan", "unchanged", "zero")

TOTAL, OVERFLOW, UNDERFLOW, SUBNORMAL, NAN, UNCHANGED, ZERO = range(len(COUNTS))

LOWEST_EXPONENT = -1074
HIGHEST_EXPONENT = 1023

#: The place of exponent 0 in the vector.
EXPONENTS = len(COUNTS) - LOWEST_EXPONENT

#: Entries of counts and histogram.
EVENTS = EXPONENTS + HIGHEST_EXPONENT + 1

#: The place of results that are infinite.
INFINITE = EVENTS

#: Why a result is NaN, as people read it: an operand was, an operation of numbers has no result, the format has no
#: infinity for what lies beyond its max, or a sum met infinities: those of its operands, or its own, which it made in
#: a format narrower than FP32 or not. The last two count results too that are infinite for the same reason.
CAUSES = (
    "a NaN operand", "0 / 0", "inf / inf", "inf - inf", "0 * inf", "an operand outside the domain",
    "beyond max in a format without infinities", "an infinite operand in a sum", "an overflow inside a sum",
    "a sum beyond FP32's range",
)  # fmt: skip

(
    NAN_OPERAND,
    ZERO_BY_ZERO,
    INF_BY_INF,
    INF_MINUS_INF,
    ZERO_TIMES_INF,
    DOMAIN,
    BEYOND,
    INF_IN_SUM,
    SUM_OVERFLOW,
    SUM_BEYOND,
) = range(len(CAUSES))

#: The places of the causes, and of results in formats that have FP32's range, and FP32's precision.
FIRST_CAUSE = INFINITE + 1
WIDE = FIRST_CAUSE + len(CAUSES)
PRECISE = WIDE + 1

#: Entries of the vector.
SIZE = PRECISE + 1

#: Optional events. saturated: results that stopped at the largest number, though the exact ones
#: lie beyond it; inexact: results that are numbers, or infinite, other than the exact ones.
OPTIONAL_COUNTS = ("saturated", "inexact")


def no_events() -> NDArray[np.int64]:
    """An event vector of zeros."""
    return np.zeros(SIZE, np.int64)


def wants_optional_counts(observer: Any) -> bool:
    """Whether an observer asks for these counts too."""
    return bool(getattr(observer, "more", False))


def events_for(observer: Any) -> NDArray[np.int64]:
    """An event vector of zeros, as long as the observer wants it."""
    return np.zeros(SIZE + len(OPTIONAL_COUNTS), np.int64) if wants_optional_counts(observer) else no_events()


def add_optional_counts(
    exact: NDArray, out: NDArray, chosen: NDArray | None, ends: tuple[float, float], events: NDArray[np.int64]
) -> None:
    """Add to an event vector what it has behind its entries.

    `ends` are the numbers at which results stop; `chosen` are the exact results rounded without these, None where no
    finite one lies beyond them and did not become infinite.
    """
    beyond, (least, largest) = np.isinf(exact), ends
    if chosen is not None:
        beyond |= (chosen > largest) | (chosen < least)
    events[SIZE] += int(np.count_nonzero(beyond & ((out == largest) | (out == least))))
    events[SIZE + 1] += int(np.count_nonzero((exact != out) & ~np.isnan(out)))
