"""Operands of matrix units, prepared for 32-bit lanes: factors, panels of columns, and exponents as bytes.

The rows of `b` for a chunk are stored next to each other in a panel, which all rows of `a` use. The innermost loops run
over its columns, and LLVM vectorises them.

The 32-bit arithmetic of exponents, powers of two and truncations comes first: vectors have twice as many 32-bit
elements as 64-bit elements. Numba widens integers to 64 bits wherever it can. Every result here is converted back, and
LLVM then never widens it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from simfloat.kernels.compile.intrinsics import shift_left, shift_right, truncate, whole_number
from simfloat.kernels.compile.jit import overload, reader, scalar

#: The mask of a bit pattern without its sign; the sign bit; the sum of the float32 exponent fields of a power of two
#: and its inverse.
MAGNITUDE, SIGN, BOTH_FIELDS = np.int32(0x7FFFFFFF), np.int32(-0x80000000), np.int32(0x7F000000)


@scalar
def image_of(x):
    """Return the bit pattern of a float32 number."""
    return np.float32(x).view(np.int32)


@scalar
def number_of(image):
    """Return the float32 number of a bit pattern."""
    return np.int32(image).view(np.float32)


@scalar
def without_bits(x, count):
    """Return a float32 number without its last `count` bits, truncated toward zero."""
    return number_of(image_of(x) & shift_left(np.int32(-1), np.int32(count)))


@scalar
def sign_bits(x):
    """Return -1 for a float32 number with a minus sign, otherwise 0."""
    return np.int32(image_of(x) >> np.int32(31))


@scalar
def exponent_of(x):
    """Return the exponent of a float32 number: -127 for zeros and subnormal numbers, 128 for infinities and NaN."""
    field = shift_right(np.uint32(image_of(x) & MAGNITUDE), np.uint32(23))
    return np.int32(np.int32(field) - np.int32(127))


@scalar
def power_of_two(exponent):
    """Return 2^exponent for exponents from -126 to 127; the result for others is undefined."""
    return number_of(shift_left(np.int32(exponent + np.int32(127)), np.int32(23)))


@scalar
def inverse(power):
    """Return 1 over a power of two from 2^-126 to 2^126; the result for others is undefined."""
    return number_of(BOTH_FIELDS - image_of(power))


def integer_toward_zero(x):
    """Return a float as int32, truncated toward zero; the result is undefined if it does not fit."""
    return np.int32(x) if abs(x) < 2.0**31 else SIGN


@overload(integer_toward_zero)
def _integer_toward_zero(x):
    assert isinstance(x, types.Float)
    return lambda x: np.int32(x)


@scalar
def number_toward_zero(x):
    """Return an int32 of magnitude below 2^31 - 128 as float32, rounded toward zero."""
    magnitude = np.int32(-x) if x < 0 else np.int32(x)
    # The conversion rounds to nearest. If it rounded up, subtracting one from the bit pattern gives the next lower
    # number, even across a power of two. The sign is restored as a bit.
    near = np.float32(magnitude)
    is_above = np.int32(integer_toward_zero(near) > magnitude)
    return number_of(np.int32(image_of(near) - is_above) | np.int32(np.int32(x) & SIGN))


#: Maximum number of columns of a panel; their number is a multiple of STEP.
COLUMNS, STEP = 256, 16

#: Products that are added before their sum is stored to memory.
PASS = 4

#: Maximum spread of the exponents of both operands together. A byte represents them, and smaller values for zeros.
SPREAD = 126


class IntegerUnit(NamedTuple):
    """The constants of 32-bit sums of a matrix unit."""

    terms: float
    sections: float  # separate sums of a chunk: with two, one of the products 0, 2, ... and one of 1, 3, ...
    part: float  # products, a multiple of PASS, that one int32 adds with the sum so far; a second int32 adds the others
    fraction_bits: float
    a_least: float  # emin of the left and of the right operand
    b_least: float
    dropped: float  # trailing float32 bits of operands that are ignored
    least: float  # emin of the output format
    zero: float  # the exponent of a sum of zero
    output_drops: float  # trailing float32 bits that the output format drops
    lowest: float  # the smallest exponent of products
    align: float  # index in INTEGERS: the alignment of terms
    totals: float  # index in `integers.TOTALS`: the rounding of totals


unpack_integer_unit = reader(IntegerUnit)


class Workspace(NamedTuple):
    """The converted operands of a matrix product, and the intermediate results of a row's chunk."""

    factors: NDArray[np.float32]  # rows of `a`, each chunk padded with zeros to whole passes, and their exponents
    factor_bytes: NDArray[np.int8]
    panel: NDArray[np.float32]  # the same for some columns of `b` and one chunk
    panel_bytes: NDArray[np.int8]
    sums: NDArray[np.floating]  # of these columns
    tops: NDArray[np.int8]  # the largest exponent in a column, relative to the lowest; negative without products
    scales: NDArray[np.float32]  # units in one
    parts: NDArray[np.int32]  # both parts of the sum of a chunk
    dots: NDArray[np.float64]  # sums of two sections, and the largest powers of their products
    powers: NDArray[np.float64]  # or the last bits that are kept


@scalar
def allocate_workspace(rows, out, depth, unit, together):
    """Return a workspace for `rows` rows of `depth` products, and a panel for `together` chunks.

    The panel has as many columns as `out`, up to COLUMNS.
    """
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
    """Return the workspace with only the panel of chunk `number`, which has `whole` rows."""
    factors, factor_bytes, panel, panel_bytes, sums, tops, scales, parts, dots, powers = space
    first, last = number * whole, (number + 1) * whole
    panel, panel_bytes = panel[first:last], panel_bytes[first:last]
    return Workspace(factors, factor_bytes, panel, panel_bytes, sums, tops, scales, parts, dots, powers)


@scalar
def _round_up_to_multiple(size, step):
    """Return the smallest multiple of a step that is not below a size."""
    return -(-size // step) * step


@scalar
def exponents_in(x, least, dropped):
    """Return the lowest and the highest exponent of the nonzero elements of a matrix; 0 and 0 if there are none."""
    # Zeros have no exponent. The minimum reads a value above all exponents instead, and the maximum a value below all
    # exponents. So neither needs a branch, and LLVM vectorises the loop.
    nothing = np.int32(1 << 20)
    low, high = nothing, -nothing
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            exponent, is_zero = exponent_and_zero(without_bits(x[i, j], dropped), least)
            low, high = min(low, nothing if is_zero else exponent), max(high, -nothing if is_zero else exponent)
    return (np.int64(low), np.int64(high)) if low <= high else (np.int64(0), np.int64(0))


@scalar
def exponent_and_zero(x, least):
    """Return the exponent of a number, at least `least`, and True if the number is zero."""
    return max(exponent_of(x), np.int32(least)), x == np.float32(0)


@scalar
def has_room(low_a, high_a, low_b, high_b, lowest, above):
    """Return True if operands with such exponents are summed without loss; infinities and NaN have exponent 128."""
    # -127 is the exponent that subnormal float32 numbers show: their significands do not begin with one, so no bound on
    # products would be valid. 128 is the exponent of infinities and NaN. In both cases the loops in float64 take the
    # matrix.
    are_normal = (min(low_a, low_b) >= -126) & (max(high_a, high_b) < 128)
    are_products = (low_a + low_b >= lowest) & (high_a + high_b + above <= 126)
    return are_normal & are_products & (high_a - low_a + high_b - low_b <= SPREAD)


@scalar
def room_above(sums, depth):
    """Return the number of binades above products that float64 sums need.

    Float64 sums of `depth` products must stay below 2^127, as float32 sums do.
    """
    above = 0
    if sums.itemsize == 8:
        above = 2
        while depth > 1 << (above - 2):
            above += 1
        for i in range(sums.shape[0]):
            for j in range(sums.shape[1]):
                # A finite sum so far of 2^126 or more might reach 2^127 with the products. Returning more than the
                # available range excludes the matrix. An infinite sum does not change and needs no range.
                above = 2 * SPREAD if 2.0**126 <= abs(sums[i, j]) < np.inf else above
    return above


@scalar
def _place_of_product(k, space, unit):
    """Return the index of product k of a chunk: the products of a section are contiguous."""
    sections = np.int64(unit.sections)
    return k % sections * (space.panel.shape[0] // sections) + k // sections


@scalar
def fill_factors(x, space, unit, low, none):
    """Write the rows of `a` to the factors, chunk by chunk, and their exponents relative to the lowest one."""
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
    """Write `width` columns of some rows of `b` to the panel, and their exponents relative to the lowest one."""
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
    """Find the largest exponent in every column of the products `first` to `last` of a chunk.

    The factors are in row i, and begin at index `at`.
    """
    factors, panel, tops = space.factor_bytes, space.panel_bytes, space.tops
    # The smallest byte: sums of two bytes of nonzero numbers are never negative, so any product raises it. A vector has
    # four times as many bytes as float32 elements, so exponents take little time in the loop.
    tops[:] = -128
    for k in range(first, last, PASS):
        w, x, y, z = factors[i, at + k], factors[i, at + k + 1], factors[i, at + k + 2], factors[i, at + k + 3]
        for j in range(tops.size):
            one = max(np.int8(w + panel[k, j]), np.int8(x + panel[k + 1, j]))
            two = max(np.int8(y + panel[k + 2, j]), np.int8(z + panel[k + 3, j]))
            tops[j] = max(tops[j], max(one, two))


@scalar
def cut_to_integer(x, scale):
    """Return a term in units of 1 / scale, truncated."""
    return integer_toward_zero(x * scale)


@scalar
def nearest_integer(x, scale):
    """Return a term in units of 1 / scale, rounded to nearest, ties to even."""
    return integer_toward_zero(whole_number(x * scale))


@scalar
def odd_integer(x, scale):
    """Return a term in units of 1 / scale, truncated; the last bit is set if any bit was dropped (sticky bit)."""
    # The float is truncated before it is converted, so the conversion is exact. A comparison with the truncated float
    # shows if a nonzero part was dropped.
    whole = truncate(x * scale)
    cut = integer_toward_zero(whole)
    # Units far below one may be zero, so the term itself is compared. For negative terms, the odd integer is below the
    # even one.
    sticky = np.int32(np.int32(cut + sign_bits(x)) | np.int32(1))
    return sticky if x != whole * inverse(scale) else cut


@scalar
def lower_integer(x, scale):
    """Return a term in units of 1 / scale, rounded down."""
    whole = truncate(x * scale)
    # As above: units far below one may be zero, so the term itself is compared.
    return np.int32(integer_toward_zero(whole) - np.int32(x < whole * inverse(scale)))


#: The alignments of terms, by the steps of the rounding mode.
INTEGERS = {
    "truncated": cut_to_integer,
    "nearest": nearest_integer,
    "sticky": odd_integer,
    "downward": lower_integer,
}


def adding(cut):
    """Return the function that adds products that are aligned by `cut`."""

    @scalar
    def add_products(space, i, at, first, last, unit):
        """Add the aligned products `first` to `last` of a chunk in every column."""
        factors, panel, scales, parts = space.factors, space.panel, space.scales, space.parts
        for k in range(first, last, PASS):
            w, x, y, z = factors[i, at + k], factors[i, at + k + 1], factors[i, at + k + 2], factors[i, at + k + 3]
            part = 0 if k < unit.part else 1
            for j in range(scales.size):
                scale = scales[j]
                one, two = cut(w * panel[k, j], scale), cut(x * panel[k + 1, j], scale)
                three, four = cut(y * panel[k + 2, j], scale), cut(z * panel[k + 3, j], scale)
                # Four products for one load and store of the sum. The order does not matter, because int32 sums are
                # exact.
                parts[part, j] += one + two + (three + four)

    return add_products


add_products = adding(cut_to_integer)
