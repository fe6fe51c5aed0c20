"""Sums of matrix units on a GPU, with a thread for every element of the result or for eight elements of a column.

Tensor cores: see `kernels/units/aligned.py`. AMD's matrix cores, with a thread for every element: see
`kernels/units/matrix_cores.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simfloat.kernels.compile.intrinsics import exponent_field
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import power_of_two
from simfloat.kernels.gpu.elementwise import NO_WORDS, next_four_words, step_word
from simfloat.kernels.gpu.threads import load_four, numbers_from, registers, row_and_column, threads_over
from simfloat.kernels.gpu.tiles import Tile, TileLoop, tile_corner
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.random import draws_are_bytes, element_at, unpack_counter
from simfloat.kernels.units.aligned import (
    ALIGNMENTS,
    GROUP,
    NOTHING,
    ROUNDINGS,
    TotalRounding,
    cut,
    first_power,
    power_at_or_below,
    truncate_to_format,
    unless_special,
    unpack_unit,
)
from simfloat.kernels.units.matrix_cores import _flush, _normal, exact_chunk, floored_total, flushed_pair


@threads_over("out")
def fill_powers(t, x, least, out):
    """Write the power of two at or below every magnitude, at least `least`; 0 for zeros."""
    i, j = t // out.shape[1], t % out.shape[1]
    out[i, j] = power_at_or_below(np.float64(x[i, j]), least)


#: The exponent of a zero: its sum with the exponent of any number is below the exponents of all products.
NO_EXPONENT = np.int32(-(1 << 20))

#: Larger exponents belong to infinite products, which have special sums.
HIGHEST = np.int32(1023)

#: The elements of a thread if there are many results: all of its rows use the same values of `b`, so it waits for these
#: reads once. On an H100, 4096^3 products take 56 ms with eight rows a thread, 90 with four and 124 with one. Units
#: that may be stochastic keep one element a thread, because each element has its own words.
ROWS = Tile(8, 1, side_by_side=2)


@threads_over("out")
def fill_exponents(t, powers, out):
    """Write the exponents of powers of two."""
    i, j = t // out.shape[1], t % out.shape[1]
    out[i, j] = _exponent(powers[i, j]) if powers[i, j] != 0.0 else NO_EXPONENT


@scalar
def _exponent(power):
    """Return the exponent of a power of two."""
    return np.int32(exponent_field(power) - 1023)


@scalar
def _larger(a, b):
    """Return the larger of two 32-bit numbers; Numba's max would widen them to 64 bits."""
    return b if b > a else a


class FusedLoop:
    """A loop over `out` (m, n) of a unit's sums. Exponents become integers, which are faster to add and compare."""

    def __init__(self, tiles: TileLoop) -> None:
        self.tiles = tiles

    def __call__(self, a: Any, b: Any, a_powers: Any, b_powers: Any, out: Any, *numbers: Any) -> None:
        """Start as many threads as the result has tiles, or elements if tiles are few."""
        tile = self.tiles.tile_for(*out.shape, out.dtype.itemsize)
        # Exponents as int32 are added and compared by one instruction; powers in float64 took a product and a
        # comparison. With eight rows a thread and no division, 4096^3 takes 56 ms instead of 250.
        left, right = (np.empty_like(powers, dtype=np.int32) for powers in (a_powers, b_powers))
        fill_exponents(a_powers, left)
        fill_exponents(b_powers, right)
        if many := tile != self.tiles.element:
            a, left = a.T.copy(), left.T.copy()
        count = tile.threads(*out.shape) if many else out.size
        self.tiles.with_tile(tile).start(count, a, b, left, right, out, *numbers)


def fused(cut: Callable, rounding: TotalRounding) -> FusedLoop:
    """Return the loop for units that align terms by `cut` and round their totals by `rounding`."""
    finish, drawing = rounding

    def body_of(tile: Tile) -> Callable:
        rows, beside = tile.rows, tile.side_by_side
        of = registers(rows)
        corner = tile_corner(tile)

        @scalar
        def read(x, left, k, height):
            if beside > 1:
                for r in range(0, rows, 4):
                    x[r], x[r + 1], x[r + 2], x[r + 3] = load_four(left, k * height + r)
            else:
                x[0] = left[k]

        def loop(t, a, b, a_exponents, b_exponents, out, unit_numbers, grid_numbers, finite, place, seed):
            unit, grid, width = unpack_unit(unit_numbers), unpack_grid(grid_numbers), out.shape[1]
            terms, counter, short = np.int64(unit.terms), unpack_counter(place), draws_are_bytes(grid)
            draws = drawing or (drawing is None and grid.random_step != 0.0)
            zero, zeros_count = _exponent(unit.zero), unit.zero > max(unit.least, NOTHING)
            bits = _exponent(unit.unit)
            i, j, own_top, own_first = corner(t, out.shape[0], width)
            element, words, start = element_at(counter, i, j), NO_WORDS, out.dtype.type(0)
            if beside > 1:  # `a` is (k, m)
                depth, height = a.shape
                left, left_exponents = numbers_from(a, i), numbers_from(a_exponents, i)
            else:
                depth, height = a.shape[1], np.int64(1)
                left, left_exponents = numbers_from(a, i * depth), numbers_from(a_exponents, i * depth)
            right, right_exponents, results = (
                numbers_from(b, j),
                numbers_from(b_exponents, j),
                numbers_from(out, i * width + j),
            )
            sums, scales, totals, plain, x = of(start), of(start), of(start), of(start), of(start)
            tops, e = of(zero), of(zero)
            for r in range(rows):
                sums[r] = results[r * width]
            first = 0
            while first < depth:
                chunk, last = first // terms, min(first + terms, depth)
                if draws and chunk % 4 == 0:
                    words = next_four_words(words, counter, element, chunk, 0, seed, short)
                for r in range(rows):
                    tops[r] = _exponent(first_power(sums[r], unit))
                if zeros_count:  # zero products, and products beyond the end of the operands, take part
                    for k in range(first, last):
                        read(x, left, k, height)
                        for r in range(rows):
                            tops[r] = _larger(tops[r], zero if x[r] * right[k * width] == 0.0 else tops[r])
                    for r in range(rows):
                        tops[r] = _larger(tops[r], zero if last < first + terms else tops[r])
                k = first
                while k < last:
                    read(e, left_exponents, k, height)
                    for r in range(rows):
                        tops[r] = _larger(tops[r], np.int32(e[r] + right_exponents[k * width]))
                    k += 1
                for r in range(rows):
                    # An infinite product has a larger exponent, for which the power of two would not be finite; `plain`
                    # then determines the result.
                    tops[r] = min(tops[r], HIGHEST)
                    scales[r] = power_of_two(bits - tops[r])
                    totals[r], plain[r] = cut(sums[r], scales[r]), sums[r]
                k = first
                while k < last:
                    read(x, left, k, height)
                    for r in range(rows):
                        product = x[r] * right[k * width]
                        totals[r] += cut(product, scales[r])
                        plain[r] += 0.0 if finite != 0 else product
                    k += 1
                for r in range(rows):
                    total = totals[r] * power_of_two(tops[r] - bits)  # faster than a division by the scale
                    sums[r] = finish(total, 1.0, plain[r], step_word(words, chunk, short), grid)
                first = last
            for r in range(rows):
                if i + r >= own_top and j >= own_first:
                    results[r * width] = sums[r]

        return loop

    return FusedLoop(TileLoop(body_of, *([ROWS] if drawing is False else [])))


@threads_over("out")
def fused_groups(t, a, b, a_scales, b_scales, a_powers, b_powers, out, unit_numbers, grid_numbers, block):
    """Sum groups of 16 products of E2M1 numbers without error, then scale them."""
    unit, grid, depth = unpack_unit(unit_numbers), unpack_grid(grid_numbers), a.shape[1]
    (i, j), terms = row_and_column(t, out.shape), np.int64(unit.terms)
    so_far = out[i, j]
    for first in range(0, depth, terms):
        top, stop = first_power(so_far, unit), min(first + terms, depth)
        for start in range(first, stop, GROUP):
            used, g = 0.0, start // block
            for k in range(start, min(start + GROUP, depth)):
                used = max(used, abs(a[i, k] * b[k, j]))
            top = max(top, a_powers[i, g] * b_powers[g, j] if used > 0.0 else 0.0)
        scale = unit.unit / top
        total, plain = cut(so_far, scale), so_far
        for start in range(first, stop, GROUP):
            dot, g = 0.0, start // block
            for k in range(start, min(start + GROUP, depth)):
                dot += a[i, k] * b[k, j]
            dot *= a_scales[i, g] * b_scales[g, j]
            total += cut(dot, scale)
            # Only a NaN scale makes a group special: the sum becomes NaN, even if it was infinite.
            plain += dot * 0.0
        so_far = unless_special(truncate_to_format(total / scale, grid), plain)
    out[i, j] = so_far


#: Loops by the alignment of terms and the rounding of totals.
loops = {align: {how: fused(cut, rounding) for how, rounding in ROUNDINGS.items()} for align, cut in ALIGNMENTS.items()}


@threads_over("out")
def exact_chunks(t, a, b, out, terms):
    """Round the exact sum of the sum so far and 2 or 4 products to nearest float32 (CDNA1)."""
    i, j = row_and_column(t, out.shape)
    so_far = out[i, j]
    for k in range(0, a.shape[1], terms):
        three, four = 0.0, 0.0
        if terms == 4:
            three, four = a[i, k + 2] * b[k + 2, j], a[i, k + 3] * b[k + 3, j]
        so_far = exact_chunk(a[i, k] * b[k, j], a[i, k + 1] * b[k + 1, j], three, four, so_far)
    out[i, j] = so_far


@scalar
def _pair(a, b, i, j, k, least):
    """Return two products that begin at k, of operands with their subnormal numbers flushed."""
    w, x = _normal(a[i, k], least), _normal(a[i, k + 1], least)
    return flushed_pair(w, _normal(b[k, j], least), x, _normal(b[k + 1, j], least))


@threads_over("out")
def flushed_pairs(t, a, b, out, terms, least):
    """Compute products and pairwise sums in float32, with subnormal results flushed (CDNA2)."""
    i, j = row_and_column(t, out.shape)
    so_far = out[i, j]
    for k in range(0, a.shape[1], terms):
        pair = _pair(a, b, i, j, k, least)
        if terms == 4:
            pair = _flush(pair + _pair(a, b, i, j, k + 2, least))
        so_far = _flush(so_far + pair)
    out[i, j] = so_far


@scalar
def _cut_sum(a, b, a_powers, b_powers, i, j, first, last, step):
    """Return (sum, largest power) of the products first, first + step, ..., truncated to 2^-24 of that power."""
    top, total = NOTHING, 0.0
    for k in range(first, last, step):
        top = max(top, a_powers[i, k] * b_powers[k, j])
    for k in range(first, last, step):
        total += cut(a[i, k] * b[k, j], 2.0**24 / top)
    return total * (top * 2.0**-24), top


@threads_over("out")
def floored_sums(t, a, b, a_powers, b_powers, out, terms, parts, finite):
    """Compute interleaved sums of products truncated toward zero, then floors and nearest float32 (CDNA3)."""
    i, j = row_and_column(t, out.shape)
    so_far = out[i, j]
    for first in range(0, a.shape[1], terms):
        last, plain = first + terms, so_far
        one, one_top = _cut_sum(a, b, a_powers, b_powers, i, j, first, last, parts)
        two, two_top = 0.0, NOTHING
        if parts == 2:
            two, two_top = _cut_sum(a, b, a_powers, b_powers, i, j, first + 1, last, parts)
        if finite == 0:
            for k in range(first, last):
                product = a[i, k] * b[k, j]
                plain += product if abs(product) < 2.0**128 else product * np.inf
        so_far = unless_special(floored_total(one, two, one_top, two_top, so_far, parts), plain)
    out[i, j] = so_far
