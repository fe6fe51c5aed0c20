"""Sums of matrix units by multiply-adds that cut: where float32 has the bits of a chunk's sum, as of FP8's on Hopper.

An anchor is the power of two that is 2^23 units of the last bit kept, so what is added to it toward zero, if it is not
negative, is cut to whole units: product, alignment and cut are one multiply-add. Terms above zero are added to one
anchor, and the magnitudes of those below to another; by what one has then more than the other the sum is found, and
exactly. A factor meets both, with the columns of `b` that are above zero and with the others; zeros change nothing.

Nothing is lost. Let E be the exponent of a product, 2^top the largest power of a chunk, F = fraction_bits.

* `simfloat/sums/integers.py` has this loop only for units whose terms and sum so far are together below 2^23 units: an
  anchor with them stays below twice the anchor, where float32's last bit is one unit.
* Products are not rounded before they are added, and a unit, 2^(top - F), is at least 2^-149: top is -126 or more.
* Sums are below 2^LARGEST, so anchors, 2^(top + 23 - F), are float32 numbers: see `_leaves_room`.
* A sum so far that meets no product has no bits to cut off: F is no less than its format's mantissa bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.kernels.compile.intrinsics import shift_left as lifted
from simfloat.kernels.compile.jit import kernel, scalar
from simfloat.kernels.lanes.lanes import add_byte, choose, image, larger, load, load_bytes, number, store, width
from simfloat.kernels.lanes.rounding import TO_ZERO, add_to_zero, fma_to_zero, restore_mode, set_mode
from simfloat.kernels.lanes.tiles import copy_columns
from simfloat.kernels.sums.rows import product_count, product_matrices
from simfloat.kernels.units.integer_operands import (
    exponent_and_zero,
    exponents_in,
    has_room,
    unpack_integer_unit,
    without_bits,
)

U32 = np.uint32

#: The vectors of a panel: eight sums that do not wait for each other keep two multipliers busy.
VECTORS_OF_PANEL = 4

#: What makes four of a byte.
FOUR_TIMES = U32(0x01010101)

#: Bytes of a line of the cache.
LINE = 64

#: A power of two that sums stay below.
LARGEST = 101


class SignedFactors(NamedTuple):
    """The numbers of `a` that are not zero, by row and chunk, from a chunk's first place on."""

    counts: NDArray[np.int64]
    magnitudes: NDArray[np.float32]
    exponents: NDArray[np.uint32]  # bytes, four times each
    places: NDArray[np.int32]  # of the rows that they meet
    rows: NDArray[np.int32]  # of a panel, that they meet: those of its second part, if the factor is below zero


class Panel(NamedTuple):
    """Some columns of a chunk's rows of `b`."""

    magnitudes: NDArray[np.float32]  # of the numbers above zero, those of the ones below zero, and the former again
    exponents: NDArray[np.uint8]  # 0 of zeros
    tops: NDArray[np.uint8]  # one row: float32's field of the largest of every column's products, 1 if there is none


class AnchorRule(NamedTuple):
    """What a chunk's sums are told."""

    least: Any  # the sum of two bytes of exponents, at least, if none of the numbers is zero
    base: Any  # float32's field of a product whose bytes have the sum 0, modulo 2^8
    lift: Any  # how much an anchor's field is above that of the largest power
    kept_mask: Any  # the bits of an image that the output format has


@kernel
def add_anchored_products(a, b, out, first, unit_numbers, grid_numbers, place, seed):
    """The sums of `aligned.py`, for terms and totals that are cut: a loop of `integers.py`."""
    unit, count, depth = unpack_integer_unit(unit_numbers), product_count(a, b), a.shape[1]
    terms, rows, columns = np.int64(unit.terms), out.shape[0] // max(count, 1), VECTORS_OF_PANEL * width(out)
    factors, panel = _allocate_space(rows, -(-depth // terms), terms, columns)
    edge = np.zeros((rows if out.shape[1] % columns > 0 else 0, columns), np.float32)
    for i in range(first, count if depth > 0 else 0):
        x, y, sums = product_matrices(a, b, out, i)
        low_x, high_x = exponents_in(x, unit.a_least, unit.dropped)
        low_y, high_y = exponents_in(y, unit.b_least, unit.dropped)
        if not _leaves_room(low_x, high_x, low_y, high_y, unit, sums, depth):
            return i
        # A zero's byte, with any number's of the other operand, is below the sum of any two numbers'.
        least_x, least_y = high_y - low_y + 1, high_x - low_x + 1
        rule = _anchor_rule(unit, least_x + least_y, low_x + low_y)
        _fill_factors(x, factors, unit, terms, least_x - low_x)
        for left in range(0, sums.shape[1], columns):
            size = min(columns, sums.shape[1] - left)
            if size < columns:
                copy_columns(sums, left, edge, 0, size)
            for chunk in range(factors.counts.shape[1]):
                _fill_panel(y[chunk * terms : (chunk + 1) * terms], left, size, panel, unit, least_y - low_y)
                if size < columns:
                    _add_chunk(factors, chunk, terms, panel, edge, 0, rule)
                else:
                    _add_chunk(factors, chunk, terms, panel, sums, left, rule)
            if size < columns:
                copy_columns(edge, 0, sums, left, size)
    return count


@scalar
def _allocate_space(rows, chunks, terms, columns):
    """For the factors of so many rows and chunks, and a panel."""
    factors = SignedFactors(
        np.zeros((rows, chunks), np.int64),
        np.zeros((rows, chunks * terms), np.float32),
        np.zeros((rows, chunks * terms), np.uint32),
        np.zeros((rows, chunks * terms), np.int32),
        np.zeros((rows, chunks * terms), np.int32),
    )
    magnitudes, exponents = (
        _zeros_on_cache_lines(3 * terms, columns, np.float32),
        _zeros_on_cache_lines(terms, columns, np.uint8),
    )
    return factors, Panel(magnitudes, exponents, _zeros_on_cache_lines(1, columns, np.uint8))


@scalar
def _zeros_on_cache_lines(rows, columns, kind):
    """Zeros of this type that begin with a line of the cache: a vector then never is part of two."""
    # A vector of 512 bits is as long as a line of the cache. Where it lies across two, each load reads both.
    space = np.zeros(rows * columns + LINE, kind)
    first = -space.ctypes.data % LINE // space.itemsize
    return space[first : first + rows * columns].reshape(rows, columns)


@scalar
def _leaves_room(low_x, high_x, low_y, high_y, unit, sums, depth):
    """Whether sums stay below 2^LARGEST, and exponents, of products too, have room in bytes and in float32's field."""
    fits = has_room(low_x, high_x, low_y, high_y, unit.lowest, 0)
    # The byte of a product is the sum of two bytes, which zeros make smaller by as much as both operands' exponents
    # spread; it has to stay a number of float32's field after the base is added modulo 2^8.
    fits &= low_x + low_y - (high_x - low_x) - (high_y - low_y) >= -124
    fits &= high_x + high_y + 2 + np.log2(depth) < LARGEST - 1
    for i in range(sums.shape[0]):
        for j in range(sums.shape[1]):
            fits &= abs(sums[i, j]) < np.float32(2.0 ** (LARGEST - 1))
    return fits


@scalar
def _anchor_rule(unit, least, low):
    """The rule for exponents whose least sum, as bytes, is that of a product with the exponent `low`."""
    mask = lifted(np.int32(-1), np.int32(unit.output_drops))
    return AnchorRule(np.uint8(least), np.uint8((low - least + 127) % 256), U32(23 - unit.fraction_bits), U32(mask))


@scalar
def _fill_factors(x, factors, unit, terms, shift):
    """Write the numbers of a matrix that are not zero to the factors; `shift` is added to exponents."""
    depth = x.shape[1]
    places = np.empty(depth, np.int32)
    for k in range(depth):
        places[k] = k % terms
    for i in range(x.shape[0]):
        row, zeros = _factors_in_row(factors, i), 0
        for k in range(depth):
            value = without_bits(x[i, k], unit.dropped)
            exponent, is_zero = exponent_and_zero(value, unit.a_least)
            below = np.int32(terms) if value < np.float32(0) else np.int32(0)
            byte = np.uint32(exponent + np.int32(shift))
            row.magnitudes[k], row.exponents[k] = abs(value), np.uint32(byte * FOUR_TIMES)
            row.places[k], row.rows[k] = places[k], places[k] + below
            zeros += is_zero
        for chunk in range(row.counts.size):
            first, last = chunk * terms, min((chunk + 1) * terms, depth)
            row.counts[chunk] = last - first if zeros == 0 else _compact_nonzero_factors(row, first, last)


@scalar
def _factors_in_row(factors, i):
    """The factors of one row."""
    counts, magnitudes, exponents, places, rows = factors
    return SignedFactors(counts[i], magnitudes[i], exponents[i], places[i], rows[i])


@scalar
def _compact_nonzero_factors(row, first, last):
    """Bring a chunk's factors that are not zero to its front; how many they are."""
    zeros = 0
    for magnitude in row.magnitudes[first:last]:
        zeros += magnitude == np.float32(0)
    # Zeros are dropped from `a` only, whose factors are numbers, one a step: a zero among the columns of `b` costs
    # nothing beside its neighbours. The order of the others stays, though exact sums would not show it.
    place = last if zeros == 0 else first
    for k in range(first if zeros > 0 else last, last):
        row.magnitudes[place], row.exponents[place] = row.magnitudes[k], row.exponents[k]
        row.places[place], row.rows[place] = row.places[k], row.rows[k]
        place += 0 if row.magnitudes[k] == np.float32(0) else 1
    return place - first


@scalar
def _fill_panel(rows, left, width, panel, unit, shift):
    """Write `width` columns of some rows of `b`, zeros among them, to the panel."""
    magnitudes, exponents, zero = panel.magnitudes, panel.exponents, np.float32(0)
    terms, columns = exponents.shape
    for k in range(terms):
        size = width if k < rows.shape[0] else 0
        above, below, again, bytes_of = magnitudes[k], magnitudes[terms + k], magnitudes[2 * terms + k], exponents[k]
        row = rows[min(k, rows.shape[0] - 1), left : left + size]
        for j in range(size):
            value = without_bits(row[j], unit.dropped)
            exponent, is_zero = exponent_and_zero(value, unit.b_least)
            above[j], below[j], again[j] = max(value, zero), max(-value, zero), max(value, zero)
            bytes_of[j] = np.uint8(0) if is_zero else np.uint8(np.int32(exponent + np.int32(shift)))
        for j in range(size, columns):
            above[j], below[j], again[j], bytes_of[j] = zero, zero, zero, 0


@scalar
def _add_chunk(factors, chunk, terms, panel, out, left, rule):
    """Add a chunk's products to some columns of all rows of `out`."""
    before = set_mode(TO_ZERO)
    for i in range(out.shape[0]):
        first = chunk * terms
        last = first + factors.counts[i, chunk]
        _find_tops(factors.exponents[i, first:last], factors.places[i, first:last], panel, rule)
        _add_row(factors.magnitudes[i, first:last], factors.rows[i, first:last], panel, out, i, left, rule)
    restore_mode(before)


@scalar
def _find_tops(exponents, places, panel, rule):
    """The largest exponent of every column's products, as float32's field."""
    # Lanes of zeros, made of any lanes: a number becomes lanes only where it meets some.
    tops = load(panel.tops, 0, 0) & np.uint8(0)
    for n in range(places.size):
        tops = larger(tops, add_byte(load(panel.exponents, places[n], 0), exponents[n]))
    store(panel.tops, 0, 0, choose(tops < rule.least, np.uint8(1), tops + rule.base))


@scalar
def _add_row(magnitudes, rows, panel, out, i, left, rule):
    """The chunk's sums of one row: four vectors of columns, each with a sum of terms above zero and of those below."""
    step, terms, panel_rows = width(out), panel.exponents.shape[0], panel.magnitudes
    second, third, fourth = step, 2 * step, 3 * step
    # p holds the anchor with terms above zero, q the one with magnitudes of terms below: toward zero cuts a term
    # rightly only if it moves the anchor up. Two multiply-adds for 16 columns took the place of four instructions with
    # int32 lanes, and made FP8 on Hopper twice as quick.
    p0, q0 = _start_from_sums(panel, 0, out, i, left, rule)
    p1, q1 = _start_from_sums(panel, second, out, i, left, rule)
    p2, q2 = _start_from_sums(panel, third, out, i, left, rule)
    p3, q3 = _start_from_sums(panel, fourth, out, i, left, rule)
    for n in range(rows.size):
        x, up = magnitudes[n], np.int64(rows[n])
        down = up + terms
        p0, q0 = fma_to_zero(x, load(panel_rows, up, 0), p0, 0), fma_to_zero(x, load(panel_rows, down, 0), q0, 0)
        p1, q1 = (
            fma_to_zero(x, load(panel_rows, up, second), p1, 0),
            fma_to_zero(x, load(panel_rows, down, second), q1, 0),
        )
        p2, q2 = (
            fma_to_zero(x, load(panel_rows, up, third), p2, 0),
            fma_to_zero(x, load(panel_rows, down, third), q2, 0),
        )
        p3, q3 = (
            fma_to_zero(x, load(panel_rows, up, fourth), p3, 0),
            fma_to_zero(x, load(panel_rows, down, fourth), q3, 0),
        )
    _cut_totals(p0, q0, 0, out, i, left, rule)
    _cut_totals(p1, q1, second, out, i, left, rule)
    _cut_totals(p2, q2, third, out, i, left, rule)
    _cut_totals(p3, q3, fourth, out, i, left, rule)


@scalar
def _start_from_sums(panel, at, out, i, left, rule):
    """Both anchors, with the sum so far."""
    so_far = image(load(out, i, left + at))
    magnitude = so_far & U32(0x7FFFFFFF)
    field = larger(magnitude >> U32(23), load_bytes(panel.tops, 0, at))
    anchor = number((field + rule.lift) << U32(23))
    # The sum so far goes to the anchor of its sign. As an image, `magnitude - above` is then zero or the magnitude: one
    # subtraction in the place of a second choice.
    above = choose(so_far == magnitude, magnitude, U32(0))
    return add_to_zero(number(above), anchor, 0), add_to_zero(number(magnitude - above), anchor, 0)


@scalar
def _cut_totals(above, below, at, out, i, left, rule):
    """The total, cut to the output format; a zero is +0."""
    # Both anchors are equal and cancel. The difference is exact: a multiple of the unit, with fewer than 2^24 of them.
    total = fma_to_zero(np.float32(-1.0), below, above, 0)
    store(out, i, left + at, number(image(total) & rule.kept_mask))
