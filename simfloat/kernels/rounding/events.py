"""The layout of the int64 vector in which rounding events are counted.

The first entries are the counts named in COUNTS. A histogram follows: for each exponent floor(log2|result|) from
LOWEST_EXPONENT to HIGHEST_EXPONENT, the number of finite nonzero results. The next entries count infinite results, the
causes of NaN named in CAUSES, and the results in formats with the range and with the precision of FP32. An observer may
request the optional counts of `OPTIONAL_COUNTS`. They cost one more pass over the results, and are appended at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: total: results; overflow: finite exact results rounded beyond the largest number, clamped or not; underflow: nonzero
#: exact results that became zero; subnormal: nonzero results below the smallest normal number; nan: NaN results;
#: unchanged: sums that lost an addend; zero: results that are zero. Fixed point has no underflow and no subnormal
#: numbers.
COUNTS = ("total", "overflow", "underflow", "subnormal", "nan", "unchanged", "zero")

TOTAL, OVERFLOW, UNDERFLOW, SUBNORMAL, NAN, UNCHANGED, ZERO = range(len(COUNTS))

LOWEST_EXPONENT = -1074
HIGHEST_EXPONENT = 1023

#: Index of exponent 0 in the vector.
EXPONENTS = len(COUNTS) - LOWEST_EXPONENT

#: Number of entries of counts and histogram.
EVENTS = EXPONENTS + HIGHEST_EXPONENT + 1

#: Index of the count of infinite results.
INFINITE = EVENTS

#: Causes of a NaN result, as shown to users: an operand is NaN, the operation is undefined for its operands, the format
#: has no infinity for a result beyond its max, or a sum contains infinities. The last cause is split: an operand was
#: infinite, or the sum overflowed in a format narrower than FP32, or in FP32 or a wider one. The last two also count
#: results that are infinite for the same reason.
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

#: Indices of the causes, of results in formats with the range of FP32, and in formats with its precision.
FIRST_CAUSE = INFINITE + 1
WIDE = FIRST_CAUSE + len(CAUSES)
PRECISE = WIDE + 1

#: Number of entries of the vector, without optional ones.
SIZE = PRECISE + 1

#: The events that float32 results may have are in three ranges: the first index of each range, and the index after it.
FIRST_OF_FLOAT32, END_OF_FLOAT32 = (0, EXPONENTS - 149, INFINITE), (len(COUNTS), EXPONENTS + 128, SIZE)

#: Optional events. saturated: results that stopped at the largest number although the exact results are beyond it;
#: inexact: results, finite or infinite, that differ from the exact ones.
OPTIONAL_COUNTS = ("saturated", "inexact")


def wants_optional_counts(observer: Any) -> bool:
    """Return True if an observer requests the optional counts."""
    return bool(getattr(observer, "more", False))


def events_for(observer: Any) -> NDArray[np.int64]:
    """Return an event vector of zeros, with optional entries if the observer requests them."""
    # As in `wants_optional_counts`, written out: small operations call this for every rounding.
    size = SIZE + len(OPTIONAL_COUNTS) if getattr(observer, "more", False) else SIZE
    return np.zeros(size, np.int64)


def no_events() -> NDArray[np.int64]:
    """Return an event vector of zeros without optional entries."""
    return events_for(None)


def add_optional_counts(
    exact: NDArray, out: NDArray, chosen: NDArray | None, ends: tuple[float, float], events: NDArray[np.int64]
) -> None:
    """Add the optional counts to an event vector.

    `ends` are the numbers at which results stop. `chosen` contains the exact results rounded without these limits; None
    if every finite one beyond the limits became infinite.
    """
    beyond, (least, largest) = np.isinf(exact), ends
    if chosen is not None:
        beyond |= (chosen > largest) | (chosen < least)
    events[SIZE] += int(np.count_nonzero(beyond & ((out == largest) | (out == least))))
    events[SIZE + 1] += int(np.count_nonzero((exact != out) & ~np.isnan(out)))
