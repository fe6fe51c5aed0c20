"""Sums of matrix units by multiply-adds that truncate, if float32 has enough bits for a chunk, as for FP8 on Hopper.

An anchor is a power of two: 2^23 units of the last kept bit. Adding a nonnegative term to it, rounded toward zero,
truncates the term to whole units: product, alignment and truncation are one multiply-add. Positive terms are added to
one anchor, and the magnitudes of negative terms to another. The difference of the two is the sum, and it is exact. A
factor is multiplied with both the positive elements of `b` and the magnitudes of the negative ones; zeros change
nothing.

Nothing is lost. Let E be the exponent of a product, 2^top the largest power of a chunk, F = fraction_bits.

* `simfloat/sums/integers.py` selects this loop only for units with terms and a sum so far that are together below 2^23
  units: their sum with an anchor stays below twice the anchor, where the last bit of float32 is one unit.
* Products are not rounded before they are added, and a unit, 2^(top - F), is at least 2^-149, because top is at least
  -126.
* Sums are below 2^LARGEST, so anchors, 2^(top + 23 - F), are float32 numbers: see `_leaves_room`.
* A sum so far without products has no bits to truncate: F is no less than the mantissa bits of its format.
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
from simfloat.kernels.sums.stacks import product_count, product_matrices
from simfloat.kernels.units.integer_operands import (
    exponent_and_zero,
    exponents_in,
    has_room,
    unpack_integer_unit,
    without_bits,
)

U32 = np.uint32

#: The vectors of a panel: eight independent sums keep two multipliers busy.
VECTORS_OF_PANEL = 4

#: The factor that repeats a byte four times.
FOUR_TIMES = U32(0x01010101)

#: Bytes of a cache line.
LINE = 64

#: Sums stay below this power of two.
LARGEST = 101


class SignedFactors(NamedTuple):
    """The nonzero elements of `a` by row and chunk; they begin at the first index of their chunk."""

    counts: NDArray[np.int64]
    magnitudes: NDArray[np.float32]
    exponents: NDArray[np.uint32]  # bytes, four times each
    places: NDArray[np.int32]  # of the rows of `b` for these factors
    rows: NDArray[np.int32]  # of a panel, for these factors: rows of its second part if the factor is negative


class Panel(NamedTuple):
    """Some columns of a chunk's rows of `b`."""

    magnitudes: NDArray[np.float32]  # of the positive elements, of the negative ones, and of the positive ones again
    exponents: NDArray[np.uint8]  # 0 for zeros
    tops: NDArray[np.uint8]  # one row: the float32 exponent field of a column's largest product, or 1 without products


class AnchorRule(NamedTuple):
    """Arguments for the sums of a chunk."""

    least: Any  # the smallest sum of two exponent bytes if neither number is zero
    base: Any  # the float32 exponent field of a product if the sum of its bytes is 0, modulo 2^8
    lift: Any  # the difference between the exponent fields of an anchor and of the largest power
    kept_mask: Any  # the bits of a bit pattern that the output format has


@kernel
def add_anchored_products(a, b, out, first, unit_numbers, grid_numbers, place, seed):
    """Compute the sums of `aligned.py` for terms and totals that are truncated: a loop of `integers.py`."""
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
        # The byte of a zero plus the byte of any number of the other operand is below the sum of any two numbers.
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
    """Return the arrays for the factors of `rows` rows and `chunks` chunks, and for a panel."""
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
    """Return zeros of this type that begin at a cache line, so that no vector is split between two lines."""
    # A vector of 512 bits is as long as a cache line. If it is split between two lines, each load reads both.
    space = np.zeros(rows * columns + LINE, kind)
    first = -space.ctypes.data % LINE // space.itemsize
    return space[first : first + rows * columns].reshape(rows, columns)


@scalar
def _leaves_room(low_x, high_x, low_y, high_y, unit, sums, depth):
    """Return True if sums stay below 2^LARGEST, and exponents fit into bytes and into the exponent field of float32."""
    fits = has_room(low_x, high_x, low_y, high_y, unit.lowest, 0)
    # The byte of a product is the sum of two bytes, which zeros reduce by as much as the exponents of both operands
    # spread. After the base is added modulo 2^8, it must still be a valid exponent field of float32.
    fits &= low_x + low_y - (high_x - low_x) - (high_y - low_y) >= -124
    fits &= high_x + high_y + 2 + np.log2(depth) < LARGEST - 1
    for i in range(sums.shape[0]):
        for j in range(sums.shape[1]):
            fits &= abs(sums[i, j]) < np.float32(2.0 ** (LARGEST - 1))
    return fits


@scalar
def _anchor_rule(unit, least, low):
    """Return the rule for exponents; the least sum of bytes belongs to a product with the exponent `low`."""
    mask = lifted(np.int32(-1), np.int32(unit.output_drops))
    return AnchorRule(np.uint8(least), np.uint8((low - least + 127) % 256), U32(23 - unit.fraction_bits), U32(mask))


@scalar
def _fill_factors(x, factors, unit, terms, shift):
    """Write the nonzero elements of a matrix to the factors; `shift` is added to exponents."""
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
    """Return the factors of one row."""
    counts, magnitudes, exponents, places, rows = factors
    return SignedFactors(counts[i], magnitudes[i], exponents[i], places[i], rows[i])


@scalar
def _compact_nonzero_factors(row, first, last):
    """Move the nonzero factors of a chunk to its front; return their number."""
    zeros = 0
    for magnitude in row.magnitudes[first:last]:
        zeros += magnitude == np.float32(0)
    # Zeros are dropped only from `a`, which provides one scalar factor per step: a zero among the columns of `b` costs
    # nothing next to its neighbours. The order of the others does not change, although the exact sums do not depend on
    # it.
    place = last if zeros == 0 else first
    for k in range(first if zeros > 0 else last, last):
        row.magnitudes[place], row.exponents[place] = row.magnitudes[k], row.exponents[k]
        row.places[place], row.rows[place] = row.places[k], row.rows[k]
        place += 0 if row.magnitudes[k] == np.float32(0) else 1
    return place - first


@scalar
def _fill_panel(rows, left, width, panel, unit, shift):
    """Write `width` columns of some rows of `b`, including zeros, to the panel."""
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
    """Add the products of a chunk to some columns of all rows of `out`."""
    before = set_mode(TO_ZERO)
    for i in range(out.shape[0]):
        first = chunk * terms
        last = first + factors.counts[i, chunk]
        _find_tops(factors.exponents[i, first:last], factors.places[i, first:last], panel, rule)
        _add_row(factors.magnitudes[i, first:last], factors.rows[i, first:last], panel, out, i, left, rule)
    restore_mode(before)


@scalar
def _find_tops(exponents, places, panel, rule):
    """Write the largest exponent among the products of every column, as a float32 exponent field."""
    # Zero lanes are computed from other lanes: a scalar only becomes lanes in an operation with lanes.
    tops = load(panel.tops, 0, 0) & np.uint8(0)
    for n in range(places.size):
        tops = larger(tops, add_byte(load(panel.exponents, places[n], 0), exponents[n]))
    store(panel.tops, 0, 0, choose(tops < rule.least, np.uint8(1), tops + rule.base))


@scalar
def _add_row(magnitudes, rows, panel, out, i, left, rule):
    """Compute the sums of a chunk for one row: four vectors of columns, each with a positive and a negative sum."""
    step, terms, panel_rows = width(out), panel.exponents.shape[0], panel.magnitudes
    second, third, fourth = step, 2 * step, 3 * step
    # p contains the anchor plus the positive terms, q the anchor plus the magnitudes of the negative terms: rounding
    # toward zero truncates a term correctly only if the term moves the anchor up. Two multiply-adds for 16 columns
    # replaced four instructions on int32 lanes, and made FP8 on Hopper twice as fast.
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
    """Return both anchors, plus the sum so far."""
    so_far = image(load(out, i, left + at))
    magnitude = so_far & U32(0x7FFFFFFF)
    field = larger(magnitude >> U32(23), load_bytes(panel.tops, 0, at))
    anchor = number((field + rule.lift) << U32(23))
    # The sum so far is added to the anchor of its sign. As a bit pattern, `magnitude - above` is then zero or the
    # magnitude: one subtraction instead of a second `choose`.
    above = choose(so_far == magnitude, magnitude, U32(0))
    return add_to_zero(number(above), anchor, 0), add_to_zero(number(magnitude - above), anchor, 0)


@scalar
def _cut_totals(above, below, at, out, i, left, rule):
    """Write the total, truncated to the output format; a zero is +0."""
    # The anchors are equal and cancel. The difference is exact: it is a multiple of the unit, and fewer than 2^24
    # units.
    total = fma_to_zero(np.float32(-1.0), below, above, 0)
    store(out, i, left + at, number(image(total) & rule.kept_mask))
