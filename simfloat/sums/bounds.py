"""Bounds on values, and carriers: the hardware types in which the steps of a sum are exact.

Bounds are significant bits and exponents. They decide in which carrier the steps are exact, and when a rounding by the
carrier is harmless.
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

#: The fields of Bounds as a plain tuple, which is faster to create.
RawBounds = tuple[int, int, int, int, bool]


class Bounds(NamedTuple):
    """Bounds on the finite nonzero values of an array.

    Each value has at most `precision` significant bits, is a multiple of 2^low, and has a magnitude from 2^least to
    below 2^high.
    """

    precision: int
    low: int
    least: int
    high: int
    finite: bool = True  # True without infinities and NaN

    def product_bounds(self, other: Bounds) -> Bounds:
        """Return bounds on the products of elements of two arrays."""
        precision, low, least, high, finite = self
        least, high, finite = least + other.least, high + other.high, finite and other.finite
        bits = precision + other.precision - (min(precision, other.precision) == 1)  # a power of two adds none
        return Bounds(bits, low + other.low, least, high, finite)

    def after_rounding(self, format: Format, rounding: Rounding = nearest_even) -> Bounds:
        """Return bounds after rounding to the format, which may round up to the next power of two, or to infinity."""
        smallest = format.emin - format.mantissa_bits
        # A value just below 2^high may round up to it, so there is one more binade.
        least, high = max(self.least, smallest), max(self.high, smallest) + 1
        precision = min(self.precision, format.precision)
        # The last bit of a value of at least 2^least with `precision` bits has this weight or more. For values as small
        # as the spacing of the format, the spacing is the last bit.
        low = max(self.low, least - precision + 1, smallest)
        return Bounds(precision, low, least, high, self.finite).after_clamping(format, rounding)

    def after_clamping(self, format: Format, rounding: Rounding) -> Bounds:
        """Return bounds in a format with a largest number: larger values become infinite, or become that number.

        In a format without a sign, negative values become NaN.
        """
        if self.finite and self.high <= format.last_binade:
            return self if format.signed else self._replace(finite=False)
        # Values that overflow become infinite or NaN and are not finite any more: the bounds still apply to the others.
        if not (format.clamps or rounding.stops(negative=False) or rounding.stops(negative=True)):
            return self._replace(finite=False)
        # Values that overflow become the largest number. It may have more bits, and a lower last bit, than all values
        # before.
        low, high = min(self.low, format.last_binade - format.mantissa_bits), max(self.high, format.last_binade + 1)
        return Bounds(max(self.precision, format.precision), low, min(self.least, format.last_binade), high, False)

    def union(self, other: Bounds) -> Bounds:
        """Return bounds on the values of both arrays together."""
        precision, low, least, high, finite = self
        least, high = min(least, other.least), max(high, other.high)
        return Bounds(max(precision, other.precision), min(low, other.low), least, high, finite and other.finite)

    def after_summation(self, terms: int, outward: Format | None = None) -> Bounds:
        """Return bounds on sums of `terms` values, each sum rounded to nearest or toward zero.

        Such a rounding at most doubles the contribution of a term. In modes that may round outward, to the next number
        of the format `outward`, sums grow more.
        """
        # `terms` values below 2^high add up to less than terms * 2^high; one more binade allows for roundings.
        high = self.high + math.ceil(math.log2(max(terms, 1))) + 1
        if outward is not None:
            # A rounding adds at most the smallest number, as if terms were larger by it, and one part in 2^m. No sum
            # exceeds the largest number by more than a term.
            smallest = outward.emin - outward.mantissa_bits
            high += max(smallest - self.high, 0) + math.ceil(terms * math.log2(1 + 2.0**-outward.mantissa_bits))
            high = min(high, max(self.high, outward.last_binade + 1) + 1)
        # Cancellation may leave any multiple of the terms' last bit: that is the least sum, and sums may have all bits
        # above it.
        return Bounds(high - self.low, self.low, self.low, high, self.finite)

    def within_format(self, format: Format) -> Bounds:
        """Return bounds on numbers of the format; values beyond it became infinite, NaN or its largest number."""
        smallest = format.emin - format.mantissa_bits
        low = min(max(self.low, smallest), format.last_binade - format.mantissa_bits)
        # E8M0 has no zero: values below its smallest number, 2^-127, become that number, which may be above all of
        # them.
        high = self.high if format.has_zero else max(self.high, format.emin + 1)
        return Bounds(format.precision, low, low, min(high, format.last_binade + 1), False)

    def are_in_format(self, format: Format) -> bool:
        """Return True if all finite values are certain to be numbers of the format."""
        return (
            self.precision <= format.precision
            and self.low >= format.emin - format.mantissa_bits
            # A format may not have all numbers of its last binade: E4M3 ends at 448, below 480, for which all bits
            # would be one.
            and (self.high <= format.last_binade or (self.high == format.last_binade + 1 and self._below_max(format)))
            and (format.subnormals or self.least >= format.emin)
        )

    def _below_max(self, format: Format) -> bool:
        """Return True if the largest value with this precision below 2^high is at most the largest number of the
        format."""
        return (2.0 - 2.0 ** (1 - self.precision)) * 2.0**format.last_binade <= format.max

    def need_no_rounding(self, format: Format) -> bool:
        """Return True if rounding to the format is certain to change nothing."""
        return self.finite and format.has_negative_zero and self.are_in_format(format)


def terms_and_sums(
    products: Bounds,
    terms: int,
    format: Format,
    rounding: Rounding,
    products_format: Format | None,
    initial: Bounds | None = None,
) -> tuple[Bounds, Bounds]:
    """Return bounds on the terms of a sum, and on its partial sums, if every step is rounded to the format.

    Sums start from zero, or from numbers of the format with the bounds `initial`. A partial sum stays a multiple of the
    lowest last bit of all terms when it is rounded.
    """
    added = products if products_format is None else products.after_rounding(products_format, rounding)
    inward = rounding.is_to_nearest or rounding.is_toward_zero
    summands, count = (added, terms) if initial is None else (added.union(initial), terms + 1)
    return limited_sums(added, summands.after_summation(count, None if inward else format), format, rounding)


def limited_sums(added: Bounds, sums: Bounds, format: Format, rounding: Rounding) -> tuple[Bounds, Bounds]:
    """Widen the bounds for a format in which infinite sums and terms may become the largest number."""
    limited = sums.after_clamping(format, rounding)
    if limited.high > sums.high or limited.low < sums.low:
        # Sums can continue from the largest number; they are multiples of its last bit.
        return added._replace(low=min(added.low, limited.low)), limited._replace(high=limited.high + 1)
    return added, sums


@lru_cache(maxsize=256)
def format_bounds(format: Format) -> Bounds:
    """Return the bounds of all numbers of a format, including infinities and NaN."""
    smallest = format.emin - format.mantissa_bits
    return Bounds(format.precision, smallest, smallest, format.last_binade + 1, False)


#: The bounds of ones, and of arrays without a finite nonzero value.
ONES = Bounds(1, 0, 0, 1)


def raw_bounds_of(x: NDArray) -> RawBounds:
    """Return the fields of the bounds of a float32 or float64 array."""
    if x.size > 1 and not any(x.strides):  # all strides are 0, so all elements are one value
        # The ones of long sums are such arrays.
        x = x[(slice(1),) * x.ndim]
    # In memory order, which avoids a copy of a transposed matrix.
    return device_of(x).loops.counting.bit_facts(x.ravel("K"))


def bounds_of(x: NDArray) -> Bounds:
    """Return the bounds of a float32 or float64 array."""
    return Bounds._make(raw_bounds_of(x))


class Carrier(NamedTuple):
    """float32 or float64 as the type of sums: P bits of precision, and exponents from `lowest` to below `highest`."""

    type: FloatType
    precision: int
    lowest: int
    highest: int

    def contains(self, numbers: Bounds) -> bool:
        """Return True if the type can represent all values with these bounds."""
        return numbers.precision <= self.precision and numbers.low >= self.lowest and numbers.high <= self.highest

    def has_room(self, format: Format, sums: Bounds) -> bool:
        """Return True if the anchors that round sums with these bounds to the format are in the range of the type."""
        top = min(sums.high - 1, format.last_binade)
        anchor = max(top, format.emin) + self.precision - 1 - format.mantissa_bits
        inside = format.emin - format.mantissa_bits >= self.lowest and format.mantissa_bits <= self.precision - 3
        # A normal number of the format must be a normal number of the type; otherwise its binade would be read as zero.
        normal = format.emin >= self.lowest + self.precision - 1
        # A clamped infinity becomes the largest number.
        inside = inside and format.last_binade < self.highest
        # `to_odd` finds even numbers with anchors of twice the spacing, and the largest anchor must also be in the
        # range.
        return inside and normal and max(anchor + 2, sums.high) < self.highest

    def needs_no_error(self, format: Format, terms: Bounds, sums: Bounds) -> bool:
        """Return True if fl(sum + term), rounded to nearest even in the format, is the exact sum rounded once.

        A second rounding errs only if the first one reaches or crosses a value that decides it: a tie of the format.
        Let e be the exponent of the sum. The type then truncates bits below 2^(e - P + 1). There are two cases:

        * Only bits of a term are truncated. The term is then so small (below half the distance of a tie) that no tie is
          near the partial sum. That needs P >= p + q + 2 for terms of q bits.
        * Only bits of the partial sum are truncated. The same applies with the roles swapped, if the term is itself a
          number of p bits: q <= p and P >= 2p + 2.

        Neither case can occur if the last bits of the operands are above the truncated ones. A partial sum is a
        multiple of 2^sums.low, because the terms and the initial values are: a value that is rounded to the format
        either stays unchanged or becomes a multiple of a larger power.
        """
        top = min(sums.high - 1, format.last_binade)  # beyond it the sum overflows in any case
        cut = top - self.precision + 1
        partial_low = max(sums.low, format.emin - format.mantissa_bits)
        p, q = format.precision, terms.precision
        term_harmless = terms.low >= cut or self.precision >= p + q + 2
        partial_harmless = partial_low >= cut or (q <= p and self.precision >= 2 * p + 2)
        return term_harmless and partial_harmless

    def allows_round_to_odd(self, format: Format, terms: Bounds, sums: Bounds) -> bool:
        """Return True if a sum rounded to odd in the type can be rounded again to the format, in any deterministic
        mode.

        Numbers of the format and, with P >= p + 2, the ties halfway between them are even numbers of the type. An
        inexact sum becomes an odd number, so it neither equals nor crosses one of them: it stays on its side of every
        value that decides a rounding. (A sum too small for P bits is a multiple of the smallest number of the type, and
        so is exact.)
        """
        return self.precision >= format.precision + 2

    def shows_draws(self, format: Format, rounding: Rounding, sums: Bounds) -> bool:
        """Return True if values rounded to odd in the type keep all bits that a draw reads, and one bit for the
        rest."""
        if self.precision == CARRIERS[1].precision:
            return odd_suffices(format, rounding)
        # The bits of a draw are below the last place of a number, and two more bits represent the rest (see
        # `odd_suffices`).
        smallest = format.emin - format.mantissa_bits - rounding.bits - 2
        enough = format.precision + rounding.bits + 2 <= self.precision and smallest >= self.lowest
        return enough and self.has_room(format, sums)

    def has_thresholds(self, format: Format) -> bool:
        """Return True if the type can represent thresholds of draws, with all bits, at the smallest spacing of the
        format."""
        return format.emin - format.mantissa_bits - self.precision >= self.lowest

    def can_add_smallest_normal(self, format: Format, numbers: Bounds) -> bool:
        """Return True if adding the smallest normal number of the format to smaller values is exact."""
        # The spacing of a format is constant below its smallest normal number. That number is added before a draw is
        # compared, so that all these sums have its spacing, and is subtracted afterwards.
        return numbers.low >= format.emin - self.precision + 1


CARRIERS = (Carrier(np.float32, 24, -149, 128), Carrier(np.float64, 53, -1074, 1024))

#: The kinds of steps in which the hardware rounds float32 sums to FP16. On an AMD Zen 3, sums that are rounded to odd
#: first are 1.1 to 1.5 times as fast this way, at 16 x 16 x 16 to 128 x 256 x 128, as with the steps below in float64;
#: one sum of 4,096 products is 0.9 times as fast. `sequential.py` has the rates of the others.
CONVERTED_STEPS = (("converted", Carrier.needs_no_error), ("converted_odd", Carrier.allows_round_to_odd))

#: The kinds of steps for each way of rounding in kernels (`grid.way_of`), fastest first, and the tests of exactness.
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
        """The dtype of its packed grids."""
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
    """Return the fastest kind of step for which sums rounded again to the first format are the exact sums rounded once.

    `formats` are all formats of sums and products, and `products_format` is the format of rounded products. `a` and `b`
    are the bounds of the operands, and `initial` the bounds of the start values. The result is None if only the loop
    for all operands is exact.
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
    # The hardware's conversion to FP16 is one instruction. Rounding with an anchor is a chain of six dependent ones:
    # exponent, anchor, add, subtract, compare, select. The conversion rounds subnormal numbers and overflow like FP16,
    # so only overflow of float32 itself must be excluded.
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
    """Return the fastest step of a stochastic mode; `products` are the bounds of rounded products, None if exact."""
    if _may_round_unless_in_doubt(formats, rounding, products, operand_bounds, sums):
        return CarrierStep("likely", CARRIERS[0].type, sums.high - 1)
    for carrier in CARRIERS:
        if not all(map(carrier.contains, operand_bounds)) or not all(
            carrier.shows_draws(format, rounding, sums) for format in formats
        ):
            continue
        # There are three ways to use a draw. `drawn_odd` adds the smallest normal number to small sums, which must be
        # exact. Otherwise, sums are compared with the threshold between two numbers, which the type must be able to
        # represent.
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
    """Return True if stochastic sums may be rounded by `likely` steps in float32, with a fallback in float64.

    A `likely` step decides most roundings in float32 and detects the others, for any float32 operands and any format
    within the normal numbers of float32 (the proof is in `kernels.sums.likely`). The fallback `drawn_odd` is exact in
    float64 under the conditions below. The frequency of the fallback is only a matter of speed. It is used if certain
    bits are all zeros or all ones: as many as a draw has, or as the format drops, whichever is fewer. A draw that ends
    above the last bit of float32 is offset by half a step, so sums of few bits do not need the fallback, except in
    variant A.
    """
    single, double = CARRIERS
    are_told = all(
        format.has_negative_zero
        and format.emin >= single.lowest + single.precision - 1
        and format.last_binade < single.highest
        for format in formats
    )
    # One or two roundings in 2^12 are in doubt for FP16, and in 2^15 for BF16. These steps are repeated in float64. A
    # format that keeps nearly all bits of float32 would gain nothing.
    are_rare = all(
        min(rounding.bits, single.precision - format.precision) >= (11 if rounding.variant == "A" else 8)
        for format in formats
    )
    are_shown = all(
        double.shows_draws(format, rounding, sums) for format in formats
    ) and double.can_add_smallest_normal(formats[0], sums)
    grows = products is None or double.can_add_smallest_normal(formats[-1], products)
    return are_told and are_rare and are_shown and grows and all(map(single.contains, operand_bounds))
