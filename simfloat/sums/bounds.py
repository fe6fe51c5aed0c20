"""Bounds on numbers, and carriers: the hardware types in which the steps of a sum are exact.

Bounds are significant bits and exponents. They decide in which carrier steps are exact, and when a rounding of the
carrier's does no harm.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.machines import device_of
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.target import odd_suffices
from simfloat.formats import FP16, Format, Rounding, nearest_even

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


class Carrier(NamedTuple):
    """float32 or float64 as a place to add: P bits of precision, exponents from `lowest` to below `highest`."""

    type: FloatType
    precision: int
    lowest: int
    highest: int

    def contains(self, numbers: Bounds) -> bool:
        """Whether the type has all such numbers."""
        return numbers.precision <= self.precision and numbers.low >= self.lowest and numbers.high <= self.highest

    def has_room(self, format: Format, sums: Bounds) -> bool:
        """Whether the anchors that round such sums to the format stay inside the type."""
        top = min(sums.high - 1, format.last_binade)
        anchor = max(top, format.emin) + self.precision - 1 - format.mantissa_bits
        inside = format.emin - format.mantissa_bits >= self.lowest and format.mantissa_bits <= self.precision - 3
        # A normal number of the format must be one of the type, lest its binade read as zero.
        normal = format.emin >= self.lowest + self.precision - 1
        # A clamped infinity becomes the largest number.
        inside = inside and format.last_binade < self.highest
        # `to_odd` finds even numbers with anchors of twice the spacing, and the largest of them must fit too.
        return inside and normal and max(anchor + 2, sums.high) < self.highest

    def needs_no_error(self, format: Format, terms: Bounds, sums: Bounds) -> bool:
        """Whether fl(sum + term), rounded in the format to nearest even, is the exact sum rounded once.

        A second rounding errs only if the first one lands on or crosses what decides it: a tie of the format. Let e be
        the exponent of the sum, so that the type cuts bits below 2^(e - P + 1). If only bits of a term are cut, the
        term is so small (below half the distance of a tie) that none is near the partial sum; that needs
        P >= p + q + 2 for terms of q bits. If only bits of the partial sum are cut, the same holds with the roles
        swapped, provided that the term is itself a number of p bits: q <= p and P >= 2p + 2. Neither can happen where
        the operands' last bits lie above the cut. A partial sum is a multiple of 2^sums.low: so are the terms and what
        the sums start from, and a number that is rounded to the format either stays as it is or becomes a multiple of
        more.
        """
        top = min(sums.high - 1, format.last_binade)  # beyond it the sum overflows, however it was rounded
        cut = top - self.precision + 1
        partial_low = max(sums.low, format.emin - format.mantissa_bits)
        p, q = format.precision, terms.precision
        term_harmless = terms.low >= cut or self.precision >= p + q + 2
        partial_harmless = partial_low >= cut or (q <= p and self.precision >= 2 * p + 2)
        return term_harmless and partial_harmless

    def allows_round_to_odd(self, format: Format, terms: Bounds, sums: Bounds) -> bool:
        """Whether a sum rounded to odd in the type can be rounded again to the format, in any deterministic mode.

        Numbers of the format, and with P >= p + 2 the ties halfway between them, are even numbers of the type. An
        inexact sum becomes an odd one, so it neither lands on them nor crosses one: it stays on its side of all that
        decides a rounding. (A sum too small for P bits is a multiple of the type's smallest number, and exact.)
        """
        return self.precision >= format.precision + 2

    def shows_draws(self, format: Format, rounding: Rounding, sums: Bounds) -> bool:
        """Whether numbers rounded to odd in the type show all that a draw reads, and one bit for what lies below."""
        if self.precision == CARRIERS[1].precision:
            return odd_suffices(format, rounding)
        # A draw's bits lie below the last place of a number, and two more
        # stand for all that lies below them (see `odd_suffices`).
        smallest = format.emin - format.mantissa_bits - rounding.bits - 2
        enough = format.precision + rounding.bits + 2 <= self.precision and smallest >= self.lowest
        return enough and self.has_room(format, sums)

    def has_thresholds(self, format: Format) -> bool:
        """Whether the type has thresholds of draws down to the smallest spacing of the format, with their last bits."""
        return format.emin - format.mantissa_bits - self.precision >= self.lowest

    def can_add_smallest_normal(self, format: Format, numbers: Bounds) -> bool:
        """Whether such numbers below the format's smallest normal one stay exact when that is added to them."""
        # Below its smallest normal number a format's spacing stays what it is there. That number is added
        # before a draw is compared, so that all these sums have its spacing, and subtracted afterwards.
        return numbers.low >= format.emin - self.precision + 1


CARRIERS = (Carrier(np.float32, 24, -149, 128), Carrier(np.float64, 53, -1074, 1024))

#: The kinds of steps whose roundings to FP16 the hardware makes, of sums in float32. On an AMD Zen 3, sums that are
#: moved to odd first are 1.1 to 1.5 times as quick so, at 16 x 16 x 16 to 128 x 256 x 128, as by the steps below in
#: float64; one sum of 4,096 products is 0.9 times as quick. `sequential.py` has the rates of the others.
CONVERTED_STEPS = (("converted", Carrier.needs_no_error), ("converted_odd", Carrier.allows_round_to_odd))

#: Kinds of steps by how kernels round in a mode (`grid.way_of`), quickest first, and what shows that they are exact.
STEPS = {
    "nearest": (("plain", Carrier.needs_no_error), ("odd", Carrier.allows_round_to_odd)),
    "directed": (("directed", Carrier.allows_round_to_odd),),
    "sticky": (("sticky", Carrier.allows_round_to_odd),),
}


class CarrierStep(NamedTuple):
    """A kind of step, the type that carries it, and a bound on the exponents of its sums."""

    kind: str
    carrier: FloatType
    top: int

    @property
    def grid_type(self) -> FloatType:
        """The type of the numbers of its grids."""
        return np.float64 if self.kind == "likely" else self.carrier


def quickest_step(
    formats: tuple[Format, ...],
    rounding: Rounding,
    a: Bounds,
    b: Bounds,
    terms: Bounds,
    sums: Bounds,
    initial: Bounds | None = None,
    products_format: Format | None = None,
) -> CarrierStep | None:
    """The cheapest step in the first format whose sums, rounded again, are the exact sums rounded once.

    `formats` are all that sums and products are rounded to; `a` and `b` are the operands' bounds, `initial` those of
    what the sums start from; `products_format` is the format of products that are rounded. None if only the careful
    loop will do.
    """
    _, double = CARRIERS
    products = a.product_bounds(b)
    to_hold = (a, b, products) if initial is None else (a, b, products, initial)
    if not all(kernels.rounding.grid.has_plain_grid(format, rounding) for format in formats) or not double.contains(
        products
    ):
        return None
    if rounding.is_stochastic:
        return _stochastic_step(formats, rounding, products if products_format else None, to_hold, terms, sums)
    # The hardware's conversion to FP16 is one instruction. An anchor is a chain of six, which wait for
    # one another: exponent, anchor, add, subtract, compare, select. The conversion rounds subnormal
    # numbers and overflow as FP16 has them, so that only float32's own overflow is to be ruled out.
    if (
        rounding == nearest_even
        and kernels.compile.processor.CONVERTS_FP16
        and all(format == FP16 for format in formats)
    ):
        single = CARRIERS[0]
        if all(map(single.contains, to_hold)) and sums.high < single.highest:
            kind = next(kind for kind, suits in CONVERTED_STEPS if suits(single, FP16, terms, sums))
            return CarrierStep(kind, single.type, sums.high - 1)
    able = [
        carrier
        for carrier in CARRIERS
        if all(map(carrier.contains, to_hold)) and all(carrier.has_room(format, sums) for format in formats)
    ]
    for kind, suits in STEPS[kernels.rounding.grid.way_of(rounding)]:
        for carrier in able:
            if suits(carrier, formats[0], terms, sums):
                return CarrierStep(kind, carrier.type, sums.high - 1)
    return None


def _stochastic_step(
    formats: tuple[Format, ...],
    rounding: Rounding,
    products: Bounds | None,
    operand_bounds: tuple[Bounds, ...],
    terms: Bounds,
    sums: Bounds,
) -> CarrierStep | None:
    """The cheapest step in a stochastic mode; `products` are those that are rounded, None if they are not."""
    if _may_round_unless_in_doubt(formats, rounding, products, operand_bounds, sums):
        return CarrierStep("likely", CARRIERS[0].type, sums.high - 1)
    for carrier in CARRIERS:
        if not all(map(carrier.contains, operand_bounds)) or not all(
            carrier.shows_draws(format, rounding, sums) for format in formats
        ):
            continue
        # Three ways to draw. `drawn_odd` adds the smallest normal number to small sums, which has to be exact; where it
        # is not, sums are compared with the threshold between two numbers, which has to be a number of the type.
        by_threshold = all(map(carrier.has_thresholds, formats))
        if not carrier.can_add_smallest_normal(formats[0], sums):
            kind = "random" if by_threshold else None
        elif products is None or carrier.can_add_smallest_normal(formats[-1], products):
            kind = "drawn_odd"
        else:
            kind = "drawn_sums" if by_threshold else None
        if kind is not None:
            return CarrierStep(kind, carrier.type, sums.high - 1)
    return None


def _may_round_unless_in_doubt(
    formats: tuple[Format, ...],
    rounding: Rounding,
    products: Bounds | None,
    operand_bounds: tuple[Bounds, ...],
    sums: Bounds,
) -> bool:
    """Whether sums may be drawn in float32 by what is likely, and in float64's images where that is not certain.

    What is likely is told apart for any operands of float32 and any format among its normal numbers (the proof is in
    `kernels.sums.likely`), and `drawn_odd` is right in float64 by the conditions below. How rarely it is needed is a
    matter of speed: of a draw's bits and those that a format drops, as many as are fewer must be zeros or ones. A draw
    that ends above float32's last bit has half a step below it, which keeps sums of few bits clear of that, except in
    variant A.
    """
    single, double = CARRIERS
    are_told = all(
        format.has_negative_zero
        and format.emin >= single.lowest + single.precision - 1
        and format.last_binade < single.highest
        for format in formats
    )
    # Of FP16's roundings one or two in 2^12 are in doubt, and of BF16's in 2^15. Those steps are made
    # again in float64, so a format that keeps nearly all of float32's bits would gain nothing.
    are_rare = all(
        min(rounding.bits, single.precision - format.precision) >= (11 if rounding.variant == "A" else 8)
        for format in formats
    )
    are_shown = all(
        double.shows_draws(format, rounding, sums) for format in formats
    ) and double.can_add_smallest_normal(formats[0], sums)
    grows = products is None or double.can_add_smallest_normal(formats[-1], products)
    return are_told and are_rare and are_shown and grows and all(map(single.contains, operand_bounds))
