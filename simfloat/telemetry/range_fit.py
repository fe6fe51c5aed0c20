"""How much of a histogram of exponents a format keeps, with a scale or without one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simfloat.arithmetic.machines import on_cpu
from simfloat.checks import as_rectangular_array
from simfloat.formats.format import Format

Histogram = Mapping[int | str, int]


class Binades(NamedTuple):
    """The binades of a format: exponents from `lowest` on, from `normal` on with all bits, up to `highest`."""

    lowest: int
    normal: int
    highest: int

    def shift(self, k: int) -> Binades:
        """The binades of the values that a scale of 2^k brings into these."""
        return Binades(self.lowest - k, self.normal - k, self.highest - k)


class RangeCounts(NamedTuple):
    """How many nonzero values lie below a format's smallest number, in the binades of its numbers, and beyond them."""

    below: int
    within: int
    beyond: int

    @property
    def share(self) -> float:
        """The share that lies within; 1 where there are no values."""
        return self.within / sum(self) if sum(self) else 1.0


def format_binades(format: Format) -> Binades:
    """The binades of a format's positive numbers, subnormal ones included."""
    lowest, normal, largest = (
        math.frexp(x)[1] - 1 for x in (format.smallest_subnormal, format.smallest_normal, format.max)
    )
    return Binades(lowest, normal, largest)


def histogram_of_values(values: ArrayLike) -> dict[int | str, int]:
    """The histogram of an array, as a recorder's: finite nonzero values by floor(log2|value|), zeros under "zero"."""
    numbers = as_rectangular_array(on_cpu(values), "values", np.float64)
    numbers = numbers[np.isfinite(numbers)]
    exponents = np.frexp(numbers[numbers != 0])[1] - 1
    distinct, occurrences = np.unique(exponents, return_counts=True)
    counts = dict(zip(distinct.tolist(), occurrences.tolist(), strict=True))
    return counts | {"zero": int(np.count_nonzero(numbers == 0))}


def count_in_range(histogram: Histogram, binades: Binades) -> RangeCounts:
    """Count the values of a histogram below, within and beyond the binades; its zeros are left out.

    A histogram knows exponents alone: what a rounding takes up to the smallest number, or beyond the largest one in its
    own binade, is counted by the binade in which it lay.
    """
    exponents = {int(exponent): number for exponent, number in histogram.items() if exponent != "zero"}
    below = sum(number for exponent, number in exponents.items() if exponent < binades.lowest)
    beyond = sum(number for exponent, number in exponents.items() if exponent > binades.highest)
    return RangeCounts(below, sum(exponents.values()) - below - beyond, beyond)
