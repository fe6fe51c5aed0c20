"""Operands of matrix units, made ready for lanes of 32 bits: factors, and panels of columns, with exponents as bytes.

A chunk's rows of `b` lie side by side in a panel, which all rows of `a` meet; the innermost loops run over its columns,
and LLVM vectorises them.

The arithmetic in 32 bits, of exponents, powers of two and cuts, stands first: vectors hold twice as many numbers of 32
bits as of 64. Numba widens integers to 64 bits wherever it can; here every result is brought back, and LLVM then never
widens it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from simfloat.kernels.compile.intrinsics import shift_left, shift_right, truncate, whole_number
from simfloat.kernels.compile.jit import reader, scalar

#: An image without its sign; the image's sign; float32's exponent field of a power of two and of its inverse, added.
MAGNITUDE, SIGN, BOTH_FIELDS = np.int32(0x7FFFFFFF), np.int32(-0x80000000), np.int32(0x7F000000)


@scalar
def image_of(x):
    """The bits of a float32."""
    return np.float32(x).view(np.int32)


@scalar
def number_of(image):
    """The float32 of these bits."""
    return np.int32(image).view(np.float32)


@scalar
def without_bits(x, count):
    """A float32 without its last bits, cut toward zero."""
    return number_of(image_of(x) & shift_left(np.int32(-1), np.int32(count)))


@scalar
def sign_bits(x):
    """-1 for a float32 whose sign is minus, else 0."""
    return np.int32(image_of(x) >> np.int32(31))


@scalar
def exponent_of(x):
    """The exponent of a float32: -127 of zeros and subnormals, 128 of infinities and NaN."""
    field = shift_right(np.uint32(image_of(x) & MAGNITUDE), np.uint32(23))
    return np.int32(np.int32(field) - np.int32(127))


@scalar
def power_of_two(exponent):
    """2^exponent, from -126 to 127; anything for others."""
    return number_of(shift_left(np.int32(exponent + np.int32(127)), np.int32(23)))


@scalar
def inverse(power):
    """1 over a power of two from 2^-126 to 2^126; anything for others."""
    return number_of(BOTH_FIELDS - image_of(power))


def integer_toward_zero(x):
    """A float as int32, cut toward zero; anything where it does not fit."""
    return np.int32(x) if abs(x) < 2.0**31 else SIGN


@overload(integer_toward_zero, jit_options={"forceinline": True})
def _integer_toward_zero(x):
    assert isinstance(x, types.Float)
    return lambda x: np.int32(x)


@scalar
def number_toward_zero(x):
    """An int32 of magnitude below 2^31 - 128 as float32, rounded toward zero."""
    magnitude = np.int32(-x) if x < 0 else np.int32(x)
    # The conversion rounds to nearest; if that went up, one less in the image is the number below, also across a power
    # of two. The sign is put back as a bit.
    near = np.float32(magnitude)
    is_above = np.int32(integer_toward_zero(near) > magnitude)
    return number_of(np.int32(image_of(near) - is_above) | np.int32(np.int32(x) & SIGN))


#: The columns of a panel, at most, and what their number is a multiple of.
COLUMNS, STEP = 256, 16

#: Products that are added before their sum is put back into memory.
PASS = 4

#: How far both operands' exponents together may lie apart: a byte holds them, and less than the least for zeros.
SPREAD = 126


class IntegerUnit(NamedTuple):
    """The numbers of a unit's sums in 32 bits."""

    terms: float
    sections: float  # sums of their own that a chunk has: of the products 0, 2, ... and 1, 3, ..., if there are two
    part: float  # products, a multiple of PASS: an int32 takes so many and the sum so far, another one the others
    fraction_bits: float
    a_least: float  # emin of the left and of the right operand
    b_least: float
    dropped: float  # last bits of float32 that operands are read without
    least: float  # emin of the output format
    zero: float  # the exponent of a sum of zero
    output_drops: float  # last bits of float32 that the output format does not have
    lowest: float  # the exponent of products, at least
    align: float  # how terms are aligned, a number of INTEGERS
    totals: float  # how totals are rounded, a number of `integers.TOTALS`


unpack_integer_unit = reader(IntegerUnit)


class Workspace(NamedTuple):
    """What the operands of a matrix product become, and where a row's chunk is summed."""

    factors: NDArray[np.float32]  # rows of `a`, every chunk with zeros up to whole passes, and their exponents
    factor_bytes: NDArray[np.int8]
    panel: NDArray[np.float32]  # the same of some columns of `b` and of one chunk
    panel_bytes: NDArray[np.int8]
    sums: NDArray[np.floating]  # of these columns
    tops: NDArray[np.int8]  # the largest exponent of a column's products, from the least one on; below 0: there is none
    scales: NDArray[np.float32]  # units in one
    parts: NDArray[np.int32]  # both parts of a chunk's sum
    dots: NDArray[np.float64]  # sums of two sections, and the largest powers of their products
    powers: NDArray[np.float64]  # or the last bits that are kept


@scalar
def allocate_workspace(rows, out, depth, unit, together):
    """For `rows` of so many products, and as many columns of a panel as `out` has, or are worth it, of some chunks."""
    columns, whole = (
        min(COLUMNS, _round_up_to_multiple(out.shape[1], STEP)),
        _round_up_to_multiple(np.int64(unit.terms), PASS),
    )
    chunks = -(-depth // np.int64(unit.terms))
    return Workspace(
        np.zeros((rows, chunks * whole), np.float32),
        np.zeros((rows, chunks * whole), np.int8),
        np.zeros((together * whole, columns), np.float32),
        np.zeros((together * whole, columns), np.int8),
        np.zeros((rows, columns), out.dtype),
        np.empty(columns, np.int8),
        np.empty(columns, np.float32),
        np.empty((2, columns), np.int32),
        np.empty((2, columns)),
        np.empty((2, columns)),
    )


@scalar
def chunk_workspace(space, number, whole):
    """The workspace with the panel of chunk `number` alone, which has `whole` rows."""
    factors, factor_bytes, panel, panel_bytes, sums, tops, scales, parts, dots, powers = space
    first, last = number * whole, (number + 1) * whole
    panel, panel_bytes = panel[first:last], panel_bytes[first:last]
    return Workspace(factors, factor_bytes, panel, panel_bytes, sums, tops, scales, parts, dots, powers)


@scalar
def _round_up_to_multiple(size, step):
    """The multiple of a step at or above a size."""
    return -(-size // step) * step


@scalar
def exponents_in(x, least, dropped):
    """The lowest and the highest exponent of a matrix's numbers that are not zero; 0 of none."""
    # Zeros have no exponent. A bound beyond all exponents, with its sign, takes their place, so that minimum and
    # maximum need no branch, and LLVM vectorises the loop.
    nothing = np.int32(1 << 20)
    low, high = nothing, -nothing
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            exponent, is_zero = exponent_and_zero(without_bits(x[i, j], dropped), least)
            low, high = min(low, nothing if is_zero else exponent), max(high, -nothing if is_zero else exponent)
    return (np.int64(low), np.int64(high)) if low <= high else (np.int64(0), np.int64(0))


@scalar
def exponent_and_zero(x, least):
    """The exponent of a number, at least `least`; whether it is zero."""
    return max(exponent_of(x), np.int32(least)), x == np.float32(0)


@scalar
def has_room(low_a, high_a, low_b, high_b, lowest, above):
    """Whether operands with such exponents are summed without loss; infinities and NaN have 128."""
    # -127 is the exponent that float32's subnormal numbers show: their significands do not begin at one, so no bound on
    # products would hold. 128 is that of infinities and NaN. Both leave the matrix to the loops in float64.
    are_normal = (min(low_a, low_b) >= -126) & (max(high_a, high_b) < 128)
    are_products = (low_a + low_b >= lowest) & (high_a + high_b + above <= 126)
    return are_normal & are_products & (high_a - low_a + high_b - low_b <= SPREAD)


@scalar
def room_above(sums, depth):
    """Binades above products that sums in float64 need: sums of so many stay below 2^127, as those in float32 do."""
    above = 0
    if sums.itemsize == 8:
        above = 2
        while depth > 1 << (above - 2):
            above += 1
        for i in range(sums.shape[0]):
            for j in range(sums.shape[1]):
                # A finite sum so far from 2^126 on might reach 2^127 with the products. More room than there is refuses
                # the matrix; an infinite one stays what it is and needs none.
                above = 2 * SPREAD if 2.0**126 <= abs(sums[i, j]) < np.inf else above
    return above


@scalar
def _place_of_product(k, space, unit):
    """Where product k of a chunk lies: a section's products lie side by side."""
    sections = np.int64(unit.sections)
    return k % sections * (space.panel.shape[0] // sections) + k // sections


@scalar
def fill_factors(x, space, unit, low, none):
    """Write the rows of `a` to the factors, chunk by chunk, and their exponents from the lowest on."""
    terms, whole = np.int64(unit.terms), space.panel.shape[0]
    for i in range(x.shape[0]):
        space.factor_bytes[i, :] = none
        for k in range(x.shape[1]):
            place = k // terms * whole + _place_of_product(k % terms, space, unit)
            number = without_bits(x[i, k], unit.dropped)
            exponent, is_zero = exponent_and_zero(number, unit.a_least)
            space.factors[i, place], space.factor_bytes[i, place] = number, none if is_zero else exponent - low


@scalar
def fill_panel(rows, left, width, space, unit, low, none):
    """Write `width` columns of some rows of `b` to the panel, and their exponents from the lowest on."""
    for k in range(space.panel.shape[0]):
        size, place = width if k < rows.shape[0] else 0, _place_of_product(k, space, unit)
        for j in range(size):
            number = without_bits(rows[k, left + j], unit.dropped)
            exponent, is_zero = exponent_and_zero(number, unit.b_least)
            space.panel[place, j], space.panel_bytes[place, j] = number, none if is_zero else exponent - low
        for j in range(size, space.panel.shape[1]):
            space.panel[place, j], space.panel_bytes[place, j] = 0, none


@scalar
def find_tops(space, i, at, first, last):
    """The largest exponent in every column of products first to last of a chunk: that of row i from place `at` on."""
    factors, panel, tops = space.factor_bytes, space.panel_bytes, space.tops
    # The least byte: sums of two bytes that stand for numbers are never below zero, so any product raises it. A vector
    # holds four times as many bytes as float32 numbers, so exponents take little of the loop's time.
    tops[:] = -128
    for k in range(first, last, PASS):
        w, x, y, z = factors[i, at + k], factors[i, at + k + 1], factors[i, at + k + 2], factors[i, at + k + 3]
        for j in range(tops.size):
            one = max(np.int8(w + panel[k, j]), np.int8(x + panel[k + 1, j]))
            two = max(np.int8(y + panel[k + 2, j]), np.int8(z + panel[k + 3, j]))
            tops[j] = max(tops[j], max(one, two))


@scalar
def cut_to_integer(x, scale):
    """A term in units of 1 / scale, without what lies below one."""
    return integer_toward_zero(x * scale)


@scalar
def nearest_integer(x, scale):
    """Round a term to the nearest unit of 1 / scale, ties to the even one."""
    return integer_toward_zero(whole_number(x * scale))


@scalar
def odd_integer(x, scale):
    """Cut a term to units of 1 / scale, and set the last bit if anything was cut off: a sticky bit."""
    # Truncated first, converted then: the conversion is exact, and whether anything was cut off is asked of the float.
    whole = truncate(x * scale)
    cut = integer_toward_zero(whole)
    # Units far below one may be zero, so the term itself is compared. Below zero odd integers lie below even ones.
    sticky = np.int32(np.int32(cut + sign_bits(x)) | np.int32(1))
    return sticky if x != whole * inverse(scale) else cut


#: How terms are aligned, by the mode's steps.
INTEGERS = {"truncated": cut_to_integer, "nearest": nearest_integer, "sticky": odd_integer}


def adding(cut):
    """What adds products that are aligned by `cut`."""

    @scalar
    def add_products(space, i, at, first, last, unit):
        """The products first to last of a chunk, cut, in every column."""
        factors, panel, scales, parts = space.factors, space.panel, space.scales, space.parts
        for k in range(first, last, PASS):
            w, x, y, z = factors[i, at + k], factors[i, at + k + 1], factors[i, at + k + 2], factors[i, at + k + 3]
            part = 0 if k < unit.part else 1
            for j in range(scales.size):
                scale = scales[j]
                one, two = cut(w * panel[k, j], scale), cut(x * panel[k + 1, j], scale)
                three, four = cut(y * panel[k + 2, j], scale), cut(z * panel[k + 3, j], scale)
                # Four products for one load and store of the sum. Order does not matter: int32 sums are exact.
                parts[part, j] += one + two + (three + four)

    return add_products


add_products = adding(cut_to_integer)
