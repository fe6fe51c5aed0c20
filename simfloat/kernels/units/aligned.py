"""Sums of several products at once, aligned to the largest exponent and truncated, as tensor cores compute them.

A chunk consists of `terms` products and the sum so far, each exact. They are truncated to multiples of 2^(top -
fraction_bits), where 2^top is the largest of their powers of two, and added without error. The total is rounded and is
the sum so far of the next chunk. (Fasi, Higham, Mikaitis and Pranesh, PeerJ CS 7:e330, 2021; Xie et al., MMA-Sim, arXiv
2511.10909.) Real matrix units truncate terms toward zero. Custom units can also round terms to nearest even, to odd and
down, and totals in any format and mode. The loops of the CPU and of a GPU use the same functions for aligning terms and
rounding totals.

Everything is float64: products are exact, powers of two represent exponents, and a truncation to units is a
multiplication and a truncation to an integer. `a` is (m, k), `b` is (k, n); `out` (m, n) contains the start values,
then the sums. The innermost loops run over columns, so LLVM vectorises them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.compile.intrinsics import binade, floor, truncate
from simfloat.kernels.compile.intrinsics import shift_left as lifted
from simfloat.kernels.compile.jit import copy_into, kernel, reader, scalar
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import (
    nearest,
    round_by_threshold,
    round_in_direction,
    round_to_any_grid,
    to_odd,
)
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

#: The power that represents a missing exponent: it is below the power of every product.
NOTHING = 2.0**-900

#: Adding it to a number of units and subtracting it leaves the nearest integer, ties to even.
ANCHOR = 1.5 * 2.0**52


class Unit(NamedTuple):
    """The constants of a fused multi-term sum."""

    terms: float
    unit: float  # 2^fraction_bits
    least: float  # smallest power of the exponent of a sum: 2^emin of its format
    zero: float  # the power of a zero; NOTHING if zeros have no exponent
    align: float  # index in ALIGNMENTS: the alignment of terms
    rounding: float  # index in ROUNDINGS: the rounding of totals


#: Reads a unit from an array.
unpack_unit = reader(Unit)


@scalar
def power_at_or_below(x, least):
    """Return the power of two at or below |x|, at least `least`; 0 for zero."""
    return max(binade(abs(x)), least) if x != 0.0 else 0.0


@scalar
def first_power(so_far, unit):
    """Return the power of the sum so far, the initial value in the search for the largest power of a chunk."""
    return power_at_or_below(so_far, unit.least) if so_far != 0.0 else unit.zero


@scalar
def cut(x, scale):
    """Return a term in units of 1 / scale, truncated to an integer; scale is 2^fraction_bits over the largest power."""
    return truncate(x * scale)


@scalar
def cut_to_nearest(x, scale):
    """Return a term in units of 1 / scale, rounded to the nearest, ties to even. A term has at most 2^42 units."""
    return (x * scale + ANCHOR) - ANCHOR


@scalar
def cut_to_odd(x, scale):
    """Return a term in units of 1 / scale, truncated; the last bit is set if any bit was dropped (sticky bit)."""
    units = x * scale
    whole = truncate(units)
    # Computed with floats, because a conversion to integers and back would not vectorise on every processor. The sign
    # is the sign of the term, since `whole` may be 0.
    is_even = truncate(0.5 * whole) == 0.5 * whole
    # Units far below one may be zero.
    is_cut = (whole != units) | ((units == 0.0) & (x != 0.0))
    return whole + math.copysign(1.0, x) if is_even & is_cut else whole


@scalar
def cut_down(x, scale):
    """Return a term in units of 1 / scale, rounded down, as two's complement numbers are when they are shifted."""
    units = x * scale
    # Units far below one may be zero.
    return -1.0 if (units == 0.0) & (x < 0.0) else floor(units)


@scalar
def unless_special(rounded, plain):
    """Return the result of a chunk, or the plain sum if it is NaN or infinite; then the matrix unit gives the same."""
    return rounded if abs(plain) < np.inf else plain


@scalar
def truncate_to_format(x, grid):
    """Round toward zero to a format with the exponents of float32; overflow becomes infinite, and zeros are +0."""
    magnitude = abs(x)
    drop = np.uint64(52.0 - grid.mantissa_bits)
    # Rounding toward zero is a mask on the bit pattern. The spacing is constant below the smallest normal number, so
    # the number of spacings is truncated instead. Shifts by `drop` bits and back replace a mask that would depend on
    # the format.
    normal = np.uint64(np.uint64(np.float64(magnitude).view(np.uint64) >> drop) << drop).view(np.float64)
    spacing = grid.min_normal * grid.epsilon
    rounded = normal if magnitude >= grid.min_normal else truncate(magnitude * (1.0 / spacing)) * spacing
    rounded = rounded if magnitude < 2.0 * grid.top else np.inf
    return math.copysign(rounded, x) + 0.0


class TotalRounding(NamedTuple):
    """The rounding of the total of a chunk, which becomes the sum so far.

    `finish` is (total, scale, plain, word, grid) -> value, where `plain` is the sum by float64 additions, which gives
    infinities and NaN. `draws` is True if `word` is used, None if the grid decides.
    """

    finish: Any
    draws: bool | None = False


def round_finite_total(convert: Any) -> TotalRounding:
    """Return the rounding of real matrix units: infinite sums and NaN stay unchanged."""

    @scalar
    def finish(total, scale, plain, word, grid):
        # `scale` is a power of two, so the division is exact if the quotient is a normal number. On a GPU it is 1,
        # because there the total is multiplied by the inverse first.
        return unless_special(convert(total / scale, grid), plain)

    return TotalRounding(finish)


def round_any_total(convert: Any) -> TotalRounding:
    """Return a rounding that also rounds infinite sums and NaN, as the format and the mode require."""

    @scalar
    def finish(total, scale, plain, word, grid):
        return convert(unless_special(total / scale, plain), grid) + 0.0

    return TotalRounding(finish)


def round_total_by_word(convert: Any, draws: bool | None = True) -> TotalRounding:
    """Return a rounding of totals, including infinite sums and NaN, by a random word."""

    @scalar
    def finish(total, scale, plain, word, grid):
        return convert(unless_special(total / scale, plain), word, grid) + 0.0

    return TotalRounding(finish, draws)


#: The alignments of terms, by the steps of the rounding mode.
ALIGNMENTS = {"truncated": cut, "nearest": cut_to_nearest, "sticky": cut_to_odd, "downward": cut_down}

#: The roundings of totals: as real matrix units do, and by the kinds of `grid.way_of`.
ROUNDINGS = {
    "truncated": round_finite_total(truncate_to_format),
    "nearest": round_any_total(nearest),
    "directed": round_any_total(round_in_direction),
    "sticky": round_any_total(to_odd),
    "random": round_total_by_word(round_by_threshold),
    "general": round_total_by_word(round_to_any_grid, None),
}


def codes_of_unit(align: str, rounding: str) -> tuple[int, int]:
    """Return the indices of a unit's alignment and of its rounding of totals."""
    return list(ALIGNMENTS).index(align), list(ROUNDINGS).index(rounding)


#: Columns of a block: rows of `b` and of its powers for a chunk stay in the first-level cache.
COLUMNS = 128

#: The word of deterministic roundings.
NO_WORD = np.uint32(0)

#: Products of E2M1 numbers that a matrix unit for them adds without error before it aligns their sum.
GROUP = 16


@kernel
def fill_powers(x, least, out):
    """Write the power of two at or below every magnitude, at least `least`; 0 for zeros."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = power_at_or_below(x[i, j], least)


def aligning(cut):
    """Return the function that adds the sum so far and the products `first` to `last`, aligned by `cut`, in units."""

    @scalar
    def add(a, b, i, left, right, first, last, sums, top, scale, total, unit):
        # Four products at a time: `total` and `scale` are loaded and stored once for four. All terms are integers and
        # their sums are exact, so the order of these additions does not matter.
        paired = last - (last - first) % 4
        for j in range(sums.size):
            scale[j] = unit.unit / top[j]
            total[j] = cut(sums[j], scale[j])
        for k in range(first, paired, 4):
            w, x, y, z = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
            p, q = b[k, left:right], b[k + 1, left:right]
            r, s = b[k + 2, left:right], b[k + 3, left:right]
            for j in range(sums.size):
                one, two = cut(w * p[j], scale[j]), cut(x * q[j], scale[j])
                three, four = cut(y * r[j], scale[j]), cut(z * s[j], scale[j])
                total[j] += (one + two) + (three + four)
        for k in range(paired, last):
            w, p = a[i, k], b[k, left:right]
            for j in range(sums.size):
                total[j] += cut(w * p[j], scale[j])

    return add


def finishing(finish):
    """Return the function that rounds the totals of a chunk, which become the sums so far."""

    @scalar
    def finish_all(total, scale, plain, word_rows, lift, draws, grid, sums):
        for j in range(sums.size):
            word = lifted(word_rows[j], lift) if draws else NO_WORD
            sums[j] = finish(total[j], scale[j], plain[j], word, grid)

    return finish_all


_cut, _to_nearest, _to_odd, _down = (aligning(cut) for cut in ALIGNMENTS.values())
_truncated, _nearest, _directed, _odd, _random, _general = (finishing(how.finish) for how in ROUNDINGS.values())


@scalar
def _add_as_unit_aligns(a, b, i, left, right, first, last, sums, top, scale, total, unit):
    """Add terms with the alignment of the unit. Each alignment has a separate loop, so the choice takes no time."""
    if unit.align == 0.0:
        _cut(a, b, i, left, right, first, last, sums, top, scale, total, unit)
    elif unit.align == 1.0:
        _to_nearest(a, b, i, left, right, first, last, sums, top, scale, total, unit)
    elif unit.align == 2.0:
        _to_odd(a, b, i, left, right, first, last, sums, top, scale, total, unit)
    else:
        _down(a, b, i, left, right, first, last, sums, top, scale, total, unit)


@scalar
def _finish_as_unit_rounds(total, scale, plain, word_rows, lift, draws, grid, sums, unit):
    # The branch is outside of the loops over columns: inside, LLVM would not vectorise them. A common loop for all
    # custom units halves the amount of code to compile, and the rates are the same.
    if unit.rounding == 0.0:
        _truncated(total, scale, plain, word_rows, lift, False, grid, sums)
    elif unit.rounding == 1.0:
        _nearest(total, scale, plain, word_rows, lift, False, grid, sums)
    elif unit.rounding == 2.0:
        _directed(total, scale, plain, word_rows, lift, False, grid, sums)
    elif unit.rounding == 3.0:
        _odd(total, scale, plain, word_rows, lift, False, grid, sums)
    elif unit.rounding == 4.0:
        _random(total, scale, plain, word_rows, lift, True, grid, sums)
    else:
        _general(total, scale, plain, word_rows, lift, draws, grid, sums)


def fused(align, finish, may_draw):
    """Return the loop for units that add aligned terms by `align` and round their totals by `finish`."""

    @kernel
    def loop(a, b, a_powers, b_powers, out, unit_numbers, grid_numbers, finite, place, seed):
        unit, grid, counter = unpack_unit(unit_numbers), unpack_grid(grid_numbers), unpack_counter(place)
        terms, short = np.int64(unit.terms), draws_are_bytes(grid)
        draws = may_draw and grid.random_step != 0.0
        # Products of the chunks that get their draws at once; otherwise of one chunk, so that its rows of `b` are in
        # the cache.
        together = terms * steps_in_rows(short) if draws else terms
        top, scale, total, plain = np.empty(COLUMNS), np.empty(COLUMNS), np.empty(COLUMNS), np.empty(COLUMNS)
        words = empty_rows(WORD, ROWS if draws else 1, COLUMNS)
        for left in range(0, out.shape[1], COLUMNS):
            right = min(left + COLUMNS, out.shape[1])
            for start in range(0, a.shape[1], together):
                for i in range(out.shape[0]):
                    sums = out[i, left:right]
                    if draws:
                        fill_rows(words, right - left, counter, i, left, start // terms, 0, seed, short)
                    for first in range(start, min(start + together, a.shape[1]), terms):
                        last = min(first + terms, a.shape[1])
                        paired = last - (last - first) % 4
                        for j in range(sums.size):
                            top[j] = first_power(sums[j], unit)
                        # Some units give a zero product an exponent, which may be the largest of a chunk and truncate
                        # other terms. Most do not, so the loop over zeros is separate and is skipped as a whole.
                        if unit.zero > max(unit.least, NOTHING):
                            _admit_zeros(a, b, i, left, right, first, first + terms, top, unit.zero)
                        for k in range(first, paired, 4):
                            w, x, y, z = a_powers[i, k], a_powers[i, k + 1], a_powers[i, k + 2], a_powers[i, k + 3]
                            p, q = b_powers[k, left:right], b_powers[k + 1, left:right]
                            r, s = b_powers[k + 2, left:right], b_powers[k + 3, left:right]
                            for j in range(sums.size):
                                # Powers of two are multiplied instead of adding exponents: float64 can represent the
                                # powers of all products, and neither operands nor results need a conversion.
                                top[j] = max(top[j], max(max(w * p[j], x * q[j]), max(y * r[j], z * s[j])))
                        for k in range(paired, last):
                            w, p = a_powers[i, k], b_powers[k, left:right]
                            for j in range(sums.size):
                                top[j] = max(top[j], w * p[j])
                        align(a, b, i, left, right, first, last, sums, top, scale, total, unit)
                        # Infinities and NaN are taken from the float64 sum, which is NaN or infinite exactly if the sum
                        # of the unit is. If all operands are finite, so are the products, and only the sum so far can
                        # be special.
                        copy_into(plain, sums)
                        if not finite:
                            for k in range(first, last):
                                w, p = a[i, k], b[k, left:right]
                                for j in range(sums.size):
                                    plain[j] += w * p[j]
                        chunk = first // terms
                        chunk_words, lift = words[word_row(chunk, short) if draws else 0], draw_shift(chunk, short)
                        finish(total, scale, plain, chunk_words, lift, draws, grid, sums, unit)

    return loop


def _finish_in_one_mode(finish):
    """Return a rounding that is fixed for the kernel."""

    @scalar
    def finish_all(total, scale, plain, word_rows, lift, draws, grid, sums, unit):
        finish(total, scale, plain, word_rows, lift, False, grid, sums)

    return finish_all


@scalar
def _admit_zeros(a, b, i, left, right, first, last, top, zero):
    """Let zero products, and products beyond the end of the operands, take part with the power `zero`.

    Needed only if this power is larger than the least power of a sum; otherwise a nonzero sum hides it.
    """
    for k in range(first, last):
        for j in range(right - left):
            if k >= a.shape[1] or a[i, k] * b[k, left + j] == 0.0:
                top[j] = max(top[j], zero)


@kernel
def fused_groups(a, b, a_scales, b_scales, a_powers, b_powers, out, unit_numbers, grid_numbers, block):
    """Sum groups of 16 products of E2M1 numbers without error, scale them, and use them in place of single products.

    The exponent of a group is the exponent of its scales; a group of zeros has none. Row g of the scales belongs to the
    products that begin at g * block.
    """
    unit, grid = unpack_unit(unit_numbers), unpack_grid(grid_numbers)
    terms = np.int64(unit.terms)
    sets = terms // GROUP
    top, scale, total, plain = np.empty(COLUMNS), np.empty(COLUMNS), np.empty(COLUMNS), np.empty(COLUMNS)
    dots, used = np.empty((sets, COLUMNS)), np.empty((sets, COLUMNS))
    for left in range(0, out.shape[1], COLUMNS):
        right = min(left + COLUMNS, out.shape[1])
        for first in range(0, a.shape[1], terms):
            for i in range(out.shape[0]):
                sums = out[i, left:right]
                for j in range(sums.size):
                    top[j] = first_power(sums[j], unit)
                for g in range(sets):
                    start = first + g * GROUP
                    dot, use = dots[g], used[g]
                    dot[:], use[:] = 0.0, 0.0
                    for k in range(start, min(start + GROUP, a.shape[1])):
                        w, p = a[i, k], b[k, left:right]
                        for j in range(sums.size):
                            dot[j] += w * p[j]
                            use[j] = max(use[j], abs(w * p[j]))
                    if start < a.shape[1]:
                        s, t = a_scales[i, start // block], b_scales[start // block, left:right]
                        x, y = a_powers[i, start // block], b_powers[start // block, left:right]
                        for j in range(sums.size):
                            dot[j] *= s * t[j]
                            top[j] = max(top[j], x * y[j] if use[j] > 0.0 else 0.0)
                for j in range(sums.size):
                    scale[j] = unit.unit / top[j]
                    total[j], plain[j] = cut(sums[j], scale[j]), sums[j]
                for g in range(sets):
                    dot = dots[g]
                    for j in range(sums.size):
                        total[j] += cut(dot[j], scale[j])
                        # Only a NaN scale makes a group special: the sum becomes NaN, even if it was infinite.
                        plain[j] += dot[j] * 0.0
                for j in range(sums.size):
                    sums[j] = unless_special(truncate_to_format(total[j] / scale[j], grid), plain[j])


#: Loops for the roundings of real matrix units, and one for all others, which is compiled once for them.
_HARDWARE_LOOPS = {
    how: fused(_cut, _finish_in_one_mode(finish), False)
    for how, finish in (("truncated", _truncated), ("nearest", _nearest))
}
_custom_unit_loop = fused(_add_as_unit_aligns, _finish_as_unit_rounds, True)

#: Loops by the alignment of terms and the rounding of totals; (a, b, a_powers, b_powers, out, unit_numbers,
#: grid_numbers, finite, place, seed). `place` contains a Counter.
loops = {align: dict.fromkeys(ROUNDINGS, _custom_unit_loop) for align in ALIGNMENTS}
loops["truncated"] |= _HARDWARE_LOOPS
