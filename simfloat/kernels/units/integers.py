"""Sums of matrix units in 32-bit lanes, for operands with a moderate range: the bits of `aligned.py`, several times
faster.

Products are computed in float32, and a term in units of the last kept bit is an int32: the conversion to int32
truncates it toward zero. Exponents are bytes, and columns of `b` are in panels (`integer_operands.py`).

Nothing is lost. Let E be the exponent of a product, 2^top the largest power of a chunk, F = fraction_bits. `has_room`
ensures F - 126 <= E <= 126 for the product of any two nonzero operands. Totals are exact in float64; sums that are not
rounded stay in float64, below 2^127.

* A product has at most 24 significant bits, and is below 2^(E + 2) <= 2^128. Its last bit is at least 2^(E - 22). If
  one operand is a subnormal float32 number of p bits and the other has q bits, it is at least 2^(-149 + F - q + 1),
  with F >= q - 1. Both are 2^-149 or more, so float32 represents the product exactly.
* 2^(F - top) and 2^(top - F) are normal float32 numbers, for top <= 127. A product or sum times the first is rounded
  only if it is subnormal, and it is then truncated to zero.
* A sum of `part` terms and the sum so far never needs more than 31 bits of an int32: see `IntegerUnit`.
* A sum so far without products has no bits to truncate: F is no less than the mantissa bits of its format.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.compile.intrinsics import exponent_field
from simfloat.kernels.compile.intrinsics import shift_left as lifted
from simfloat.kernels.compile.jit import kernel, scalar
from simfloat.kernels.elementwise.exact import power_of_two as wide_power
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import nearest, round_in_direction, round_total_at_random, to_odd
from simfloat.kernels.rounding.random import (
    ROWS,
    WORD,
    draw_shift,
    draws_are_bytes,
    empty_rows,
    fill_rows,
    steps_in_rows,
    unpack_counter,
    word_row,
)
from simfloat.kernels.sums.stacks import make_nans_one, product_count, product_matrices
from simfloat.kernels.units.aligned import ALIGNMENTS, NOTHING
from simfloat.kernels.units.anchored import add_anchored_products
from simfloat.kernels.units.integer_operands import (
    INTEGERS,
    add_products,
    adding,
    allocate_workspace,
    chunk_workspace,
    exponent_of,
    exponents_in,
    fill_factors,
    fill_panel,
    find_tops,
    has_room,
    integer_toward_zero,
    inverse,
    number_toward_zero,
    power_of_two,
    room_above,
    unpack_integer_unit,
    without_bits,
)
from simfloat.kernels.units.matrix_cores import floored_total

#: Below the exponents of all nonzero sums in float64.
LOWEST = np.int32(-900)


def integer_loop(add_chunk, may_draw=False):
    """Return the loop of a unit that adds a chunk by `add_chunk`; `may_draw` is True if totals can be stochastic."""

    @kernel
    def loop(a, b, out, first, unit_numbers, grid_numbers, place, seed):
        unit, grid, count, depth = (
            unpack_integer_unit(unit_numbers),
            unpack_grid(grid_numbers),
            product_count(a, b),
            a.shape[1],
        )
        terms, rows = np.int64(unit.terms), out.shape[0] // max(count, 1)
        counter, short, chunks = unpack_counter(place), draws_are_bytes(grid), -(-depth // terms)
        draws = may_draw and grid.random_step != 0.0
        # Words are computed for 16 chunks at once (64 if draws are bytes): Philox then takes 0.3 ns per word, because
        # four counters of an element share intermediate results. Without draws the panel has a single chunk, which
        # stays in the cache.
        together = min(steps_in_rows(short), max(chunks, 1)) if draws else 1  # chunks that get their words at once
        space = allocate_workspace(rows, out, depth, unit, together)
        whole, columns = space.panel.shape[0] // together, space.panel.shape[1]
        words = empty_rows(WORD, ROWS if draws else 1, columns)
        for i in range(first, count if depth > 0 else 0):
            x, y, sums = product_matrices(a, b, out, i)
            low_x, high_x = exponents_in(x, unit.a_least, unit.dropped)
            low_y, high_y = exponents_in(y, unit.b_least, unit.dropped)
            if not has_room(low_x, high_x, low_y, high_y, unit.lowest, room_above(sums, depth)):
                return i
            # With any number of the other operand, the exponent of a zero is below the exponents of all products. A
            # negative byte therefore means "no product", and the loop that finds the largest exponent needs no mask.
            none_x, none_y = low_y - high_y - 1, low_x - high_x - 1
            fill_factors(x, chunk_workspace(space, 0, whole), unit, low_x, none_x)
            for left in range(0, sums.shape[1], columns):
                width = min(columns, sums.shape[1] - left)
                _load_sums(sums, left, width, space, unit)
                for start in range(0, chunks, together):
                    end = min(start + together, chunks)
                    for chunk in range(start, end):
                        products = y[chunk * terms : (chunk + 1) * terms]
                        fill_panel(
                            products, left, width, chunk_workspace(space, chunk - start, whole), unit, low_y, none_y
                        )
                    for row in range(rows):
                        if draws:
                            fill_rows(words, width, counter, i * rows + row, left, start, 0, seed, short)
                        for chunk in range(start, end):
                            word = words[word_row(chunk, short) if draws else 0], draw_shift(chunk, short)
                            part = chunk_workspace(space, chunk - start, whole)
                            add_chunk(part, row, chunk * whole, low_x + low_y, unit, grid, word)
                            if chunk == 0 and grid.infinite != np.inf:
                                _replace_infinite_sums(space.sums[row], grid)
                for row in range(rows):
                    for j in range(width):
                        sums[row, left + j] = space.sums[row, j]
            make_nans_one(sums)
        return count

    return loop


@scalar
def _load_sums(sums, left, width, space, unit):
    """Load the start values, truncated to the output format: the first chunk would not keep further bits."""
    for i in range(sums.shape[0]):
        for j in range(width):
            so_far = sums[i, left + j]
            is_cut = abs(so_far) < np.inf and unit.output_drops > 0
            space.sums[i, j] = without_bits(so_far, unit.output_drops) if is_cut else so_far


@scalar
def _replace_infinite_sums(sums, grid):
    """Replace infinite sums after the first chunk by the largest number, in modes that saturate."""
    for j in range(sums.size):
        sums[j] = math.copysign(grid.infinite, sums[j]) if abs(sums[j]) == np.inf else sums[j]


def aligning(cut):
    """Return the function that scales the sums so far and adds the products of a chunk, aligned by `cut`."""
    add_aligned = adding(cut)

    @scalar
    def add(space, i, at, low, unit):
        sums, tops, scales, parts = space.sums, space.tops, space.scales, space.parts
        base, bits, least, zero = np.int32(low), np.int32(unit.fraction_bits), np.int32(unit.least), np.int32(unit.zero)
        # The scale of every column, and the sum so far in its units.
        for j in range(tops.size):
            exponent = exponent_of(sums[i, j])
            # -127 is the exponent field of zeros and of subnormal float32 numbers. A product has an exponent of at
            # least F - 126, so a subnormal sum has no effect on it; without products, the sum stays unchanged. So all
            # of them may be read as zeros, which have an exponent of at most emin here (`sums/integers.py`).
            exponent = zero if exponent == np.int32(-127) else max(exponent, least)
            scales[j] = power_of_two(np.int32(bits - max(np.int32(np.int32(tops[j]) + base), exponent)))
            parts[0, j], parts[1, j] = cut(sums[i, j], scales[j]), 0
        add_aligned(space, i, at, 0, space.panel.shape[0], unit)

    return add


def aligning_wide(cut, cut_sum):
    """Return the function that aligns float64 sums of any size by `cut_sum`, and adds products aligned by `cut`."""
    add_aligned = adding(cut)

    @scalar
    def add(space, i, at, low, unit):
        sums, tops, scales, parts, units = space.sums, space.tops, space.scales, space.parts, space.powers
        base, bits = np.int32(low), np.int32(unit.fraction_bits)
        for j in range(tops.size):
            top = np.int32(np.int32(tops[j]) + base) if tops[j] >= 0 else LOWEST
            exponent = np.int32(np.int32(exponent_field(sums[i, j])) - np.int32(1023))
            last = np.int32(max(top, max(exponent, LOWEST)) - bits)
            # Products never exceed 2^127.
            scales[j] = power_of_two(min(np.int32(-last), np.int32(127)))
            units[0, j] = wide_power(last)
            parts[0, j], parts[1, j] = integer_toward_zero(cut_sum(sums[i, j], wide_power(-last))), 0
        add_aligned(space, i, at, 0, space.panel.shape[0], unit)

    return add


def add_as_unit_aligns(to_zero, to_nearest, to_odd, down):
    """Return the function that adds a chunk with the alignment of the unit, one of four."""

    @scalar
    def add(space, i, at, low, unit):
        if unit.align == 0.0:
            to_zero(space, i, at, low, unit)
        elif unit.align == 1.0:
            to_nearest(space, i, at, low, unit)
        elif unit.align == 2.0:
            to_odd(space, i, at, low, unit)
        else:
            down(space, i, at, low, unit)

    return add


def fused_chunk(align, round_totals):
    """Return the sums of `aligned.py` for units that add aligned terms by `align`."""

    @scalar
    def add_chunk(space, i, at, low, unit, grid, word):
        find_tops(space, i, at, 0, space.panel.shape[0])
        align(space, i, at, low, unit)
        round_totals(space, i, unit, grid, word)

    return add_chunk


@scalar
def _exact_totals(space, i, unit, grid, word):
    """Store totals without rounding as the sums so far."""
    sums, tops, parts, units = space.sums, space.tops, space.parts, space.powers
    for j in range(tops.size):
        total = (np.float64(parts[0, j]) + np.float64(parts[1, j])) * units[0, j]
        sums[i, j] = total if abs(sums[i, j]) < np.inf else sums[i, j]


@scalar
def _truncated_totals(space, i, unit, grid, word):
    """Store totals, truncated to the output format, as the sums so far."""
    sums, tops, scales, parts = space.sums, space.tops, space.scales, space.parts
    # Two int32 parts exist only if one could overflow: their sum needs float64, with half as many lanes. With one part
    # the total is rounded toward zero by its float32 bit pattern, without float64.
    if unit.part >= space.panel.shape[0]:
        for j in range(tops.size):
            rounded = without_bits(number_toward_zero(parts[0, j]), unit.output_drops) * inverse(scales[j])
            sums[i, j] = _total_or_sum_so_far(rounded, sums[i, j], tops[j])
    else:
        # float64 has 29 bits more than float32. Together with the bits that the output lacks they are masked from the
        # bit pattern, which rounds toward zero. The result is a float32 number, so the conversion below is exact.
        keep = np.uint64(np.int64(-1) << np.int64(29 + unit.output_drops))
        for j in range(tops.size):
            exact = _exact_total(parts[0, j], parts[1, j], scales[j])
            rounded = np.float32(np.uint64(np.float64(exact).view(np.uint64) & keep).view(np.float64))
            sums[i, j] = _total_or_sum_so_far(rounded, sums[i, j], tops[j])


def _totals(round_one):
    """Return the function that rounds totals in a mode to a signed format of float32 numbers, flushed or not."""

    @scalar
    def round_totals(space, i, unit, grid, word):
        sums, tops, scales, parts = space.sums, space.tops, space.scales, space.parts
        word_row, lift = word
        for j in range(tops.size):
            exact = _exact_total(parts[0, j], parts[1, j], scales[j])
            rounded = round_one(exact, lifted(word_row[j], lift), grid)
            # Two tests, because formats without subnormal numbers differ. Tininess after rounding is tested on the
            # rounded number, tininess before rounding on the exact one (`cut` is zero if that does not apply).
            is_flushed = (abs(rounded) < grid.least) | (abs(exact) < grid.cut)
            sums[i, j] = _total_or_sum_so_far(np.float32(0.0 if is_flushed else rounded), sums[i, j], tops[j])

    return round_totals


def _ignore_word(round_one):
    """Return a rounding that ignores its word."""

    @scalar
    def round_total(exact, word, grid):
        return round_one(exact, grid)

    return round_total


@scalar
def _exact_total(one, two, scale):
    """Return the sum of both parts as a float64 value."""
    return (np.float64(one) + np.float64(two)) * np.float64(inverse(scale))


@scalar
def _total_or_sum_so_far(rounded, so_far, top):
    """Return the result of a chunk; zeros are +0.

    It is the sum so far if the chunk has no products, or if that sum is infinite or NaN.
    """
    # `top` is a byte that is negative if all products of a chunk are zeros. Adding +0 turns -0 into +0, which is the
    # only zero that matrix units return.
    stays = (top < 0) | (not abs(so_far) < np.float32(np.inf))
    return (so_far if stays else rounded) + np.float32(0)


@scalar
def floored_chunk(space, i, at, low, unit, grid, word):
    """Compute the sums of `matrix_cores.floored_sums`."""
    sums, tops, scales, parts, dots, powers = (
        space.sums,
        space.tops,
        space.scales,
        space.parts,
        space.dots,
        space.powers,
    )
    sections, base, bits = np.int64(unit.sections), np.int32(low), np.int32(unit.fraction_bits)
    size = space.panel.shape[0] // sections
    for section in range(sections):
        find_tops(space, i, at, section * size, (section + 1) * size)
        for j in range(tops.size):
            scales[j] = power_of_two(np.int32(bits - np.int32(np.int32(tops[j]) + base)))
            parts[0, j] = 0
        add_products(space, i, at, section * size, (section + 1) * size, unit)
        for j in range(tops.size):
            unit_of_sum = np.float64(inverse(scales[j]))
            dots[section, j] = np.float64(parts[0, j]) * unit_of_sum if tops[j] >= 0 else 0.0
            powers[section, j] = unit_of_sum * 2.0**24 if tops[j] >= 0 else NOTHING
    for j in range(tops.size):
        so_far = np.float64(sums[i, j])
        other, other_power = (dots[1, j], powers[1, j]) if sections == 2 else (0.0, NOTHING)
        total = floored_total(dots[0, j], other, powers[0, j], other_power, so_far, sections)
        sums[i, j] = np.float32(total) if abs(so_far) < np.inf else sums[i, j]


#: The roundings of totals, by the names of `aligned.ROUNDINGS`.
TOTALS = {
    "truncated": _truncated_totals,
    "nearest": _totals(_ignore_word(nearest)),
    "directed": _totals(_ignore_word(round_in_direction)),
    "sticky": _totals(_ignore_word(to_odd)),
    "random": _totals(round_total_at_random),
}


_truncated, _nearest, _directed, _odd, _random = TOTALS.values()


@scalar
def _round_as_unit_rounds(space, i, unit, grid, word):
    """Round totals as the unit requires. Each rounding has a separate loop, so the choice takes no time."""
    if unit.totals == 0.0:
        _truncated(space, i, unit, grid, word)
    elif unit.totals == 1.0:
        _nearest(space, i, unit, grid, word)
    elif unit.totals == 2.0:
        _directed(space, i, unit, grid, word)
    elif unit.totals == 3.0:
        _odd(space, i, unit, grid, word)
    else:
        _random(space, i, unit, grid, word)


def fused_name(align: str, totals: str) -> str:
    """Return the name of the loop of a fused multi-term sum.

    Totals in FP64, which are not rounded, have the loop "exact"; each of the most common units has a separate loop, and
    all others share one.
    """
    return totals if totals == "exact" or (align == "truncated" and totals in _COMMON) else "of one's own"


def codes_of_unit(align: str, totals: str) -> tuple[int, int]:
    """Return the indices of a unit's alignment and of its rounding of totals."""
    return list(INTEGERS).index(align), 0 if totals == "exact" else list(TOTALS).index(totals)


_cut, *_others = (aligning(cut) for cut in INTEGERS.values())
_wide = (aligning_wide(INTEGERS[name], ALIGNMENTS[name]) for name in INTEGERS)

#: Units that truncate terms, as real ones do. A choice within the loop would slow stochastic totals by a twentieth.
_COMMON = {
    how: integer_loop(fused_chunk(_cut, TOTALS[how]), may_draw=how == "random")
    for how in ("truncated", "nearest", "random")
}

#: Loops by the method that adds a chunk: (a, b, out, first, unit_numbers, grid_numbers, place, seed). Each computes the
#: products of a stack from number `first` to the first one with operands outside of the supported range; it returns the
#: number of this product, or the number of all products. Arrays are float32; exact totals are float64 with float32
#: operands.
loops = {
    "anchored": add_anchored_products,
    "floored": integer_loop(floored_chunk),
    **_COMMON,
    "of one's own": integer_loop(fused_chunk(add_as_unit_aligns(_cut, *_others), _round_as_unit_rounds), may_draw=True),
    "exact": integer_loop(fused_chunk(add_as_unit_aligns(*_wide), _exact_totals)),
}
