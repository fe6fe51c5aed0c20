"""What is known of the operands of a sum: it decides in which carrier the steps are exact."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.formats import Format


class Facts(NamedTuple):
    """Bounds on the finite nonzero numbers of an array: each is a multiple of 2^low, below 2^high in magnitude,
    and has at most `precision` significant bits."""

    precision: int
    low: int
    high: int

    def times(self, other: Facts) -> Facts:
        """Of the products of two arrays' elements."""
        return Facts(self.precision + other.precision, self.low + other.low, self.high + other.high)

    def rounded(self, format: Format) -> Facts:
        """Of the same numbers rounded to nearest in the format."""
        low = max(self.low, format.emin - format.mantissa_bits)
        return Facts(min(self.precision, format.precision), low, self.high + 1)

    def summed(self, terms: int) -> Facts:
        """Of sums of so many terms, each sum rounded to nearest: a rounding at most doubles what a term adds."""
        high = self.high + math.ceil(math.log2(max(terms, 1))) + 1
        return Facts(high - self.low, self.low, high)


#: Of arrays without a finite nonzero number, and of ones.
NOTHING = Facts(1, 0, 1)
ONES = Facts(1, 0, 1)


def facts_of(x: NDArray) -> Facts:
    """The facts of a float32 or float64 array."""
    bits = np.empty(3, np.int64)
    kernels.facts.bit_facts(x.reshape(-1), bits)
    fractions, least, greatest = bits.tolist()
    if greatest < 0:
        return NOTHING
    unused = (fractions & -fractions).bit_length() - 1 if fractions else 52
    # A subnormal float64 is a multiple of the smallest one; a normal number's last bit follows from its first.
    precision = 53 - unused
    low = max(least, 1) - 1023 - (52 if least == 0 else precision - 1)
    return Facts(precision if least else 53, low, max(greatest, 1) - 1022)
