"""The range of a format, compared with a histogram of exponents: the shares that it can represent, and scales."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simfloat.arithmetic.machines import on_cpu
from simfloat.common import as_rectangular_array
from simfloat.environment import in_usual_environment
from simfloat.formats.format import Format

Histogram = Mapping[int | str, int]


class Binades(NamedTuple):
    """The binades of a format: exponents from `lowest` to `highest`; from `normal`, numbers have all bits."""

    lowest: int
    normal: int
    highest: int

    def shift(self, k: int) -> Binades:
        """Return the binades of the values that a scale of 2^k brings into these."""
        return Binades(self.lowest - k, self.normal - k, self.highest - k)


class RangeCounts(NamedTuple):
    """The numbers of nonzero values below the smallest number of a format, within its binades, and beyond them."""

    below: int
    within: int
    beyond: int

    @property
    @in_usual_environment
    def share(self) -> float:
        """The share of values within the range; 1 if there are no values."""
        return self.within / sum(self) if sum(self) else 1.0


def format_binades(format: Format) -> Binades:
    """Return the binades of the positive numbers of a format, including subnormal numbers."""
    lowest, normal, largest = (
        math.frexp(x)[1] - 1 for x in (format.smallest_subnormal, format.smallest_normal, format.max)
    )
    return Binades(lowest, normal, largest)


def histogram_of_values(values: ArrayLike) -> dict[int | str, int]:
    """Return the histogram of an array, as in a recorder: finite nonzero values by floor(log2|value|), zeros under
    "zero".
    """
    numbers = as_rectangular_array(on_cpu(values), "values", np.float64)
    numbers = numbers[np.isfinite(numbers)]
    exponents = np.frexp(numbers[numbers != 0])[1] - 1
    distinct, occurrences = np.unique(exponents, return_counts=True)
    counts = dict(zip(distinct.tolist(), occurrences.tolist(), strict=True))
    return counts | {"zero": int(np.count_nonzero(numbers == 0))}


def count_in_range(histogram: Histogram, binades: Binades) -> RangeCounts:
    """Count the values of a histogram below, within and beyond the binades; zeros are left out.

    A histogram contains only exponents. A value that is rounded up to the smallest number, or beyond the largest
    number in its own binade, is therefore counted by the binade of the value before rounding.
    """
    exponents = {int(exponent): number for exponent, number in histogram.items() if exponent != "zero"}
    below = sum(number for exponent, number in exponents.items() if exponent < binades.lowest)
    beyond = sum(number for exponent, number in exponents.items() if exponent > binades.highest)
    return RangeCounts(below, sum(exponents.values()) - below - beyond, beyond)


#: Range of exponents in which a scale is a normal number of float64.
LEAST_SCALE, GREATEST_SCALE = -1022, 1023


def exponent_of_scale(histogram: Histogram, binades: Binades, *, smaller: bool) -> int:
    """Return log2 of the largest scale that brings no result beyond the format; at most -1 if `smaller` is True."""
    highest = max((exponent for exponent in histogram if isinstance(exponent, int)), default=binades.normal)
    room = min(max(binades.highest - highest, LEAST_SCALE), GREATEST_SCALE)
    return min(room, -1) if smaller else room
