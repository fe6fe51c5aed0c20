"""Bounds on numbers: significant bits and exponents, which decide in which carrier the steps of a sum are exact."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from numpy.typing import NDArray

from simfloat.arithmetic.machines import device_of
from simfloat.formats import Format, Rounding, nearest_even

#: The fields of Bounds, which are themselves such a tuple, and take longer to make.
RawBounds = tuple[int, int, int, int, bool]


class Bounds(NamedTuple):
    """Bounds on the finite nonzero numbers of an array.

    Each has at most `precision` significant bits, is a multiple of 2^low, and lies from 2^least to below 2^high in
    magnitude.
    """

    precision: int
    low: int
    least: int
    high: int
    finite: bool = True  # whether there are no infinities and no NaN among them

    def product_bounds(self, other: Bounds) -> Bounds:
        """What is then known of the products of two arrays' elements."""
        precision, low, least, high, finite = self
        least, high, finite = least + other.least, high + other.high, finite and other.finite
        bits = precision + other.precision - (min(precision, other.precision) == 1)  # a power of two adds none
        return Bounds(bits, low + other.low, least, high, finite)

    def after_rounding(self, format: Format, rounding: Rounding = nearest_even) -> Bounds:
        """What is known of the numbers rounded to the format: perhaps up to the next power of two, or to infinity."""
        smallest = format.emin - format.mantissa_bits
        # A number just below 2^high may round up to it: hence the binade more.
        least, high = max(self.least, smallest), max(self.high, smallest) + 1
        precision = min(self.precision, format.precision)
        # A number of at least 2^least that keeps `precision` bits has its last one here or
        # above. Where numbers reach down to the format's spacing, that is the last bit.
        low = max(self.low, least - precision + 1, smallest)
        return Bounds(precision, low, least, high, self.finite).after_clamping(format, rounding)

    def after_clamping(self, format: Format, rounding: Rounding) -> Bounds:
        """What is known in a format that has a largest number: what lies beyond it is infinite, or becomes it.

        In a format without a sign what is negative is NaN.
        """
        if self.finite and self.high <= format.last_binade:
            return self if format.signed else self._replace(finite=False)
        # What overflows becomes infinite or NaN, and is no finite number any more: the bounds hold for the others.
        if not (format.clamps or rounding.stops(negative=False) or rounding.stops(negative=True)):
            return self._replace(finite=False)
        # What overflows becomes the largest number. It may have more bits, and a lower last one, than all numbers had.
        low, high = min(self.low, format.last_binade - format.mantissa_bits), max(self.high, format.last_binade + 1)
        return Bounds(max(self.precision, format.precision), low, min(self.least, format.last_binade), high, False)

    def union(self, other: Bounds) -> Bounds:
        """What is known of the numbers of both arrays together."""
        precision, low, least, high, finite = self
        least, high = min(least, other.least), max(high, other.high)
        return Bounds(max(precision, other.precision), min(low, other.low), least, high, finite and other.finite)

    def after_summation(self, terms: int, outward: Format | None = None) -> Bounds:
        """What is known of sums of so many terms, each sum rounded to nearest or toward zero.

        Such a rounding at most doubles what a term adds. In modes that may round outward, to the next number of the
        format `outward`, sums grow more.
        """
        # Terms below 2^high add up to less than their number times that; the binade more is for roundings.
        high = self.high + math.ceil(math.log2(max(terms, 1))) + 1
        if outward is not None:
            # A rounding adds at most the smallest number, as if terms were larger by it, and one part in 2^m; no sum
            # exceeds the largest number by more than a term.
            smallest = outward.emin - outward.mantissa_bits
            high += max(smallest - self.high, 0) + math.ceil(terms * math.log2(1 + 2.0**-outward.mantissa_bits))
            high = min(high, max(self.high, outward.last_binade + 1) + 1)
        # Cancellation may leave any multiple of the terms' last bit: it is
        # the least sum, and sums have all bits from it up.
        return Bounds(high - self.low, self.low, self.low, high, self.finite)

    def within_format(self, format: Format) -> Bounds:
        """What is known of numbers of the format, among which those beyond it became infinite, NaN or its largest."""
        smallest = format.emin - format.mantissa_bits
        low = min(max(self.low, smallest), format.last_binade - format.mantissa_bits)
        # E8M0 has no zero: numbers below its smallest one, 2^-127, become that, which may lie above all of them.
        high = self.high if format.has_zero else max(self.high, format.emin + 1)
        return Bounds(format.precision, low, low, min(high, format.last_binade + 1), False)

    def are_in_format(self, format: Format) -> bool:
        """Whether all finite ones are numbers of the format for certain."""
        return (
            self.precision <= format.precision
            and self.low >= format.emin - format.mantissa_bits
            # In its last binade a format may lack numbers: E4M3 ends at 448, below 480, whose bits are all ones.
            and (self.high <= format.last_binade or (self.high == format.last_binade + 1 and self._below_max(format)))
            and (format.subnormals or self.least >= format.emin)
        )

    def _below_max(self, format: Format) -> bool:
        """Whether the largest number of so many bits below 2^high is no larger than the format's."""
        return (2.0 - 2.0 ** (1 - self.precision)) * 2.0**format.last_binade <= format.max

    def need_no_rounding(self, format: Format) -> bool:
        """Whether rounding to the format would change nothing for certain."""
        return self.finite and format.has_negative_zero and self.are_in_format(format)


def terms_and_sums(
    products: Bounds,
    terms: int,
    format: Format,
    rounding: Rounding,
    products_format: Format | None,
    initial: Bounds | None = None,
) -> tuple[Bounds, Bounds]:
    """The bounds of what is added to a sum, and of the sums, where every step is rounded to the format.

    Sums start from zero, or from numbers of the format of which `initial` is known. The sums' last bits are those of
    all that is added: a sum that is rounded stays a multiple of them.
    """
    added = products if products_format is None else products.after_rounding(products_format, rounding)
    inward = rounding.is_to_nearest or rounding.is_toward_zero
    summands, count = (added, terms) if initial is None else (added.union(initial), terms + 1)
    return limited_sums(added, summands.after_summation(count, None if inward else format), format, rounding)


def limited_sums(added: Bounds, sums: Bounds, format: Format, rounding: Rounding) -> tuple[Bounds, Bounds]:
    """Widen the bounds for a format whose largest number infinite sums and terms may become."""
    limited = sums.after_clamping(format, rounding)
    if limited.high > sums.high or limited.low < sums.low:
        # From the largest number on, sums go on; they are multiples of its last bit.
        return added._replace(low=min(added.low, limited.low)), limited._replace(high=limited.high + 1)
    return added, sums


@lru_cache(maxsize=256)
def format_bounds(format: Format) -> Bounds:
    """The bounds of all numbers of a format, infinities and NaN among them."""
    smallest = format.emin - format.mantissa_bits
    return Bounds(format.precision, smallest, smallest, format.last_binade + 1, False)


#: The bounds of ones, and of arrays without a finite nonzero number.
ONES = Bounds(1, 0, 0, 1)


def raw_bounds_of(x: NDArray) -> RawBounds:
    """The fields of the bounds of a float32 or float64 array."""
    if x.size > 1 and not any(x.strides):  # one number
        # The ones of long sums are such arrays: one element tells what all of them are.
        x = x[(slice(1),) * x.ndim]
    # In the order of memory, which spares a copy of a transposed matrix.
    return device_of(x).loops.counting.bit_facts(x.ravel("K"))


def bounds_of(x: NDArray) -> Bounds:
    """The bounds of a float32 or float64 array."""
    return Bounds._make(raw_bounds_of(x))
