"""What is counted of roundings, as a vector of int64: its layout, for those who count and those who read.

The first entries are the counts named in COUNTS; the rest is a histogram, how many finite nonzero results have which
exponent floor(log2|result|), from LOWEST_EXPONENT on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: total: results; overflow: finite exact results rounded beyond the largest number, clamped or not; underflow: nonzero
#: ones that became zero; subnormal: nonzero results below the smallest normal number; nan: NaN results; unchanged: sums
#: that lost an addend; zero: results that are zero.
COUNTS = ("total", "overflow", "underflow", "subnormal", "nan", "unchanged", "zero")

TOTAL, OVERFLOW, UNDERFLOW, SUBNORMAL, NAN, UNCHANGED, ZERO = range(len(COUNTS))

LOWEST_EXPONENT = -1074
HIGHEST_EXPONENT = 1023

#: The place of exponent 0 in the vector.
EXPONENTS = len(COUNTS) - LOWEST_EXPONENT

#: Entries of the vector.
EVENTS = EXPONENTS + HIGHEST_EXPONENT + 1


def no_events() -> NDArray[np.int64]:
    """An event vector of zeros."""
    return np.zeros(EVENTS, np.int64)
