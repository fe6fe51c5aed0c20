"""Sums of matrix units in lanes of 32 bits, where operands leave room: the bits of `fused_loops`, several times sooner.

Products are made in float32, and a term, in units of the last bit that is kept, is an int32: to convert a number to it
is to cut it toward zero. Exponents are bytes. A chunk's rows of `b` lie side by side in a panel, which all rows of `a`
meet; the innermost loops run over its columns, and LLVM vectorises them.

Nothing is lost. Let E be the exponent of a product, 2^top the largest power of a chunk, F = fraction_bits. `has_room`
sees to it that F - 126 <= E <= 126 for the product of any two operands that are not zero.

* A product has at most 24 significant bits, and lies below 2^(E + 2) <= 2^128. Its last bit is at least 2^(E - 22), or,
  with a subnormal float32 number of p bits, 2^(-149 + F - q + 1) for q bits of the other one, and F >= q - 1. Both are
  2^-149 or more, so float32 holds it.
* 2^(F - top) and 2^(top - F) are normal float32 numbers, for top <= 127. A product or sum times the first is rounded
  only where it is subnormal, and then it is cut to zero.
* Of an int32 no sum of `part` terms, the sum so far with them, needs more than 31 bits: see `IntegerUnit`.
* A sum so far that meets no product has no bits to cut off: F is no less than its format's mantissa bits.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from simfloat.kernels.fused_loops import NOTHING
from simfloat.kernels.grid import unpack
from simfloat.kernels.integer_lanes import exponent_of, inverse, number_toward_zero, power_of_two, without_bits
from simfloat.kernels.integer_panels import (
    INTEGERS,
    add_products,
    adding,
    exponents_in,
    find_tops,
    has_room,
    integer_unit,
    space_for,
    take_factors,
    take_panel,
)
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.matrix_core_loops import floored_total
from simfloat.kernels.plain import directed, nearest, to_odd
from simfloat.kernels.stack import make_nans_one, matrices_of, products_of


def in_integers(add_chunk):
    """The loop of a unit that adds a chunk in this way."""

    @kernel
    def loop(a, b, out, first, unit_numbers, grid_numbers):
        unit, grid, count, depth = integer_unit(unit_numbers), unpack(grid_numbers), products_of(a, b), a.shape[1]
        terms, rows = np.int64(unit.terms), out.shape[0] // max(count, 1)
        space = space_for(rows, out.shape[1], depth, unit)
        whole, columns = space.panel.shape
        for i in range(first, count if depth > 0 else 0):
            x, y, sums = matrices_of(a, b, out, i)
            low_x, high_x = exponents_in(x, unit.a_least, unit.dropped)
            low_y, high_y = exponents_in(y, unit.b_least, unit.dropped)
            if not has_room(low_x, high_x, low_y, high_y, unit.fraction_bits):
                return i
            # With any number of the other operand, a zero's exponent is below that of all products.
            none_x, none_y = low_y - high_y - 1, low_x - high_x - 1
            take_factors(x, space, unit, low_x, none_x)
            for left in range(0, sums.shape[1], columns):
                width = min(columns, sums.shape[1] - left)
                _take_sums(sums, left, width, space, unit)
                for chunk in range(-(-depth // terms)):
                    take_panel(y[chunk * terms : (chunk + 1) * terms], left, width, space, unit, low_y, none_y)
                    for row in range(rows):
                        add_chunk(space, row, chunk * whole, low_x + low_y, unit, grid)
                for row in range(rows):
                    for j in range(width):
                        sums[row, left + j] = space.sums[row, j]
            make_nans_one(sums)
        return count

    return loop


@scalar
def _take_sums(sums, left, width, space, unit):
    """What the sums start from: of the output format, or cut to as many bits as the first chunk would leave of it."""
    for i in range(sums.shape[0]):
        for j in range(width):
            so_far = sums[i, left + j]
            is_finite = abs(so_far) < np.float32(np.inf)
            space.sums[i, j] = without_bits(so_far, unit.output_drops) if is_finite else so_far


def fused_chunk(cut, round_totals):
    """What `fused_loops` defines, for units that align terms by `cut`."""
    add_aligned = adding(cut)

    @scalar
    def add_chunk(space, i, at, low, unit, grid):
        find_tops(space, i, at, 0, space.panel.shape[0])
        sums, tops, scales, parts = space.sums, space.tops, space.scales, space.parts
        base, bits, least, zero = np.int32(low), np.int32(unit.fraction_bits), np.int32(unit.least), np.int32(unit.zero)
        # The scale of every column, and the sum so far in its units.
        for j in range(tops.size):
            own = exponent_of(sums[i, j])
            own = zero if own == np.int32(-127) else max(own, least)
            scales[j] = power_of_two(np.int32(bits - max(np.int32(np.int32(tops[j]) + base), own)))
            parts[0, j], parts[1, j] = cut(sums[i, j], scales[j]), 0
        add_aligned(space, i, at, 0, space.panel.shape[0], unit)
        round_totals(space, i, unit, grid)

    return add_chunk


@scalar
def _truncated_totals(space, i, unit, grid):
    """Totals toward zero, as numbers of the output format, take the place of the sums so far."""
    sums, tops, scales, parts = space.sums, space.tops, space.scales, space.parts
    if unit.part >= space.panel.shape[0]:
        for j in range(tops.size):
            rounded = without_bits(number_toward_zero(parts[0, j]), unit.output_drops) * inverse(scales[j])
            sums[i, j] = _or_so_far(rounded, sums[i, j], tops[j])
    else:
        keep = np.uint64(np.int64(-1) << np.int64(29 + unit.output_drops))
        for j in range(tops.size):
            exact = _exact_total(parts[0, j], parts[1, j], scales[j])
            rounded = np.float32(np.uint64(np.float64(exact).view(np.uint64) & keep).view(np.float64))
            sums[i, j] = _or_so_far(rounded, sums[i, j], tops[j])


def _totals(round_one):
    """The same in another mode, to a plain grid of float32 numbers."""

    @scalar
    def round_totals(space, i, unit, grid):
        sums, tops, scales, parts = space.sums, space.tops, space.scales, space.parts
        for j in range(tops.size):
            rounded = np.float32(round_one(_exact_total(parts[0, j], parts[1, j], scales[j]), grid))
            sums[i, j] = _or_so_far(rounded, sums[i, j], tops[j])

    return round_totals


@scalar
def _exact_total(one, two, scale):
    """Both parts together, in units of one."""
    return (np.float64(one) + np.float64(two)) * np.float64(inverse(scale))


@scalar
def _or_so_far(rounded, so_far, top):
    """The chunk's result: the sum so far where there is no product, and where it is infinite or NaN; zeros are +0."""
    stays = (top < 0) | (not abs(so_far) < np.float32(np.inf))
    return (so_far if stays else rounded) + np.float32(0)


@scalar
def floored_chunk(space, i, at, low, unit, grid):
    """What `matrix_core_loops.floored_sums` defines."""
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


#: How totals are rounded, by the names of `fused_loops.ROUNDINGS`.
TOTALS = {
    "truncated": _truncated_totals,
    "nearest": _totals(nearest),
    "directed": _totals(directed),
    "to_odd": _totals(to_odd),
}


def fused_name(align: str, rounding: str) -> str:
    """The name of the loop of a fused sum."""
    return f"fused, {align}, {rounding}"


#: Loops by how a chunk is added: (a, b, out, first, unit_numbers, grid_numbers). Each sums the products of a stack from
#: number `first` on, in float32 arrays, up to one whose operands leave no room, and returns its number, or how many
#: there are.
loops = {
    "floored": in_integers(floored_chunk),
    **{
        fused_name(*pair): in_integers(fused_chunk(INTEGERS[pair[0]], TOTALS[pair[1]]))
        for pair in product(INTEGERS, TOTALS)
    },
}
