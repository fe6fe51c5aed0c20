"""Sums of tensor cores, a thread for every element of the result: see `kernels/fused_loops.py`."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.thread_loops import threads_over
from simfloat.cuda.thread_memory import run_of
from simfloat.cuda.thread_random import NO_WORDS, word_of, words_from
from simfloat.kernels.fused_loops import (
    GROUP,
    NOTHING,
    cut,
    first_power,
    loops_of,
    power_of,
    truncated,
    unit_of,
    unless_special,
)
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import scalar
from simfloat.kernels.random import are_bytes, counter_of, element_at


@threads_over("out")
def powers_of(t, x, least, out):
    """The power of two at or below every magnitude, at least `least`; 0 for zeros."""
    i, j = t // out.shape[1], t % out.shape[1]
    out[i, j] = power_of(np.float64(x[i, j]), least)


@scalar
def _has_zero(row, column, width, first, last):
    """Whether one of the products is zero."""
    found, k = False, first
    while k < last:
        found |= row[k] * column[k * width] == 0.0
        k += 1
    return found


@scalar
def _largest(row, column, width, first, last):
    """The largest of products that are no NaN; 0 for none."""
    top, k = 0.0, first
    while k < last:
        top = max(top, row[k] * column[k * width])
        k += 1
    return top


def fused(cut, rounding):
    """The loop for units that align terms by `cut` and round their totals so."""
    finish, drawing = rounding

    @threads_over("out")
    def loop(t, a, b, a_powers, b_powers, out, unit_numbers, grid_numbers, finite, place, seed):
        unit, grid, depth, width = unit_of(unit_numbers), unpack(grid_numbers), a.shape[1], out.shape[1]
        i, j, terms = t // width, t % width, np.int64(unit.terms)
        counter, short = counter_of(place), are_bytes(grid)
        draws = drawing or (drawing is None and grid.random_step != 0.0)
        element, words = element_at(counter, i, j), NO_WORDS
        row, row_powers = run_of(a, i * depth), run_of(a_powers, i * depth)
        column, column_powers = run_of(b, j), run_of(b_powers, j)
        so_far = out[i, j]
        for first in range(0, depth, terms):
            chunk = first // terms
            if draws and chunk % 4 == 0:
                words = words_from(words, counter, element, chunk, 0, seed, short)
            last, top = min(first + terms, depth), first_power(so_far, unit)
            if unit.zero > max(unit.least, NOTHING):
                # Zero products, and those beyond the operands' end, take part.
                top = max(top, unit.zero if _has_zero(row, column, width, first, last) else 0.0)
                top = max(top, unit.zero if last < first + terms else 0.0)
            top = max(top, _largest(row_powers, column_powers, width, first, last))
            scale = unit.unit / top
            total, plain = cut(so_far, scale), so_far
            k = first
            while k < last:
                product = row[k] * column[k * width]
                total += cut(product, scale)
                plain += 0.0 if finite != 0 else product
                k += 1
            so_far = finish(total, scale, plain, word_of(words, chunk, short), grid)
        out[i, j] = so_far

    return loop


@threads_over("out")
def fused_groups(t, a, b, a_scales, b_scales, a_powers, b_powers, out, unit_numbers, grid_numbers, block):
    """Groups of 16 products of E2M1 numbers, summed without error and then scaled."""
    unit, grid, depth = unit_of(unit_numbers), unpack(grid_numbers), a.shape[1]
    i, j, terms = t // out.shape[1], t % out.shape[1], np.int64(unit.terms)
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
            # Only a scale of NaN makes a group special: the sum, an infinite one too, becomes NaN.
            plain += dot * 0.0
        so_far = unless_special(truncated(total / scale, grid), plain)
    out[i, j] = so_far


loops = loops_of(fused)
