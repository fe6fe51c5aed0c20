"""Sums in ascending order of k, rounded at every step: sum = round(sum + a * b).

`a` is (m, k) and `b` is (k, n), both of the carrier type, in which the steps compute. `out` (m, n) has the same type
and contains the start values, then the sums. Deterministic steps also accept stacks of matrices, and replace every NaN
by the positive quiet NaN (`kernels/sums/rows.py`). The innermost loop runs over columns, which have independent sums,
so LLVM vectorises it. A block of `b` is used for every row while it stays in the cache. The loop is the same for all
steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.kernels.compile.intrinsics import fma
from simfloat.kernels.compile.intrinsics import shift_left as lifted
from simfloat.kernels.compile.jit import copy_into, kernel, scalar
from simfloat.kernels.elementwise.exact import fma_wide
from simfloat.kernels.elementwise.half import fma_halves
from simfloat.kernels.lanes.tiles import add_in_tiles, no_tiles
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.random import (
    RANDOM_COLUMNS,
    ROWS,
    WORD,
    draw_shift,
    draws_are_bytes,
    element_at,
    empty_rows,
    fill_rows,
    steps_in_rows,
    unpack_counter,
    word_index,
    word_row,
    words_of_sum,
)
from simfloat.kernels.sums.likely import (
    NONE_UNSURE,
    SURE_FROM,
    add_unless_in_doubt,
    dropped_bits,
    first_unsure_column,
    fuse_unless_in_doubt,
    fused_row_and_least_doubt,
    multiply_unless_in_doubt,
    next_unsure_column,
)
from simfloat.kernels.sums.orders import KINDS, StepOptions, converted_odd_add, native_product, round_wide, wide_product
from simfloat.kernels.sums.rows import make_nans_one, product_count, product_matrices

COLUMNS, DEPTH = 512, 16

#: The stochastic kinds; the last one differs only if products are rounded.
DRAWING = ("random", "drawn_odd", "likely", "drawn_sums")
NO_WORDS = (np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0))


def sequential(product, add):
    """Return the loop of deterministic steps. Steps of a sum wait for each other, so COLUMNS sums take turns."""

    @kernel
    def loop(a, b, out, grid_numbers, product_numbers, sign):
        options = StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), sign, False)
        for number in range(product_count(a, b)):
            factors, terms, totals = product_matrices(a, b, out, number)
            for left in range(0, totals.shape[1], COLUMNS):
                right = min(left + COLUMNS, totals.shape[1])
                # Steps of one sum wait for each other, so COLUMNS sums are computed in turn, from several rows if rows
                # are short. DEPTH steps of a row then read its sums from the first-level cache. Taking two steps or two
                # rows at a time was slower.
                rows = COLUMNS // (right - left)
                for first in range(0, factors.shape[1], DEPTH):
                    for top in range(0, totals.shape[0], rows):
                        for k in range(first, min(first + DEPTH, factors.shape[1])):
                            for i in range(top, min(top + rows, totals.shape[0])):
                                x, row, sums = factors[i, k], terms[k, left:right], totals[i, left:right]
                                for j in range(sums.size):
                                    sums[j] = add(sums[j], product(x, row[j], 0.0, options), 0.0, options)
            make_nans_one(totals)

    return loop


def chain(add_to_row, add_in_tiles):
    """Return the loop of steps that are the hardware's fused multiply-add.

    It uses tiles that stay in registers. Fewer rows than a tile has are summed one by one. Two rows at a time were 1.1
    to 1.25 times as fast for two or three rows of sums, and took a fifth of the compile time.
    """

    @kernel
    def loop(a, b, out, grid_numbers, product_numbers, sign):
        for number in range(product_count(a, b)):
            factors, terms, totals = product_matrices(a, b, out, number)
            columns = 0 if add_in_tiles(factors, terms, totals) else totals.shape[1]
            for left in range(0, columns, COLUMNS):
                right = min(left + COLUMNS, columns)
                for first in range(0, factors.shape[1], DEPTH):
                    last = min(first + DEPTH, factors.shape[1])
                    rows = terms[first:last]  # all columns, as a slice would hide from Numba that they are contiguous
                    for i in range(totals.shape[0]):
                        add_to_row(totals[i, left:right], factors[i, first:last], rows, left)
            make_nans_one(totals)

    return loop


def adding_to_row(fma):
    """Return the function that adds the products of factors with the columns of `rows` from `left` to a row of sums.

    It takes four steps at a time, so that a sum is loaded and stored once for four steps.
    """

    @scalar
    def add(sums, x, rows, left):
        fours, right = x.size // 4 * 4, left + sums.size
        for k in range(0, fours, 4):
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            row0, row1 = rows[k, left:right], rows[k + 1, left:right]
            row2, row3 = rows[k + 2, left:right], rows[k + 3, left:right]
            for j in range(sums.size):
                # In the order of k, which is the order that is emulated.
                sums[j] = fma(x3, row3[j], fma(x2, row2[j], fma(x1, row1[j], fma(x0, row0[j], sums[j]))))
        for k in range(fours, x.size):
            x0, row = x[k], rows[k, left:right]
            for j in range(sums.size):
                sums[j] = fma(x0, row[j], sums[j])

    return add


def stepping(product, add, rounds_products):
    """Return (one, step): a stochastic step of column j, and of a row of sums, from `sums` to `new`."""

    @scalar
    def one(j, sums, x, row, words, product_words, lift, options):
        word = lifted(product_words[j], lift) if rounds_products else np.uint32(0)
        return add(sums[j], product(x, row[j], word, options), lifted(words[j], lift), options)

    @scalar
    def step(sums, new, terms, doubts, x, row, words, product_words, lift, options):
        for j in range(sums.size):
            new[j] = one(j, sums, x, row, words, product_words, lift, options)

    return one, step


def stepping_likely(one, rounds_products):
    """Return the step of a row in float32 by likely roundings; if one is uncertain, `one` computes the column again.

    `terms` and `doubts` are rows for intermediate results.
    """

    @scalar
    def step(sums, new, terms, doubts, x, row, words, product_words, lift, options):
        cut = dropped_bits(options.grid)
        if rounds_products:
            multiply_unless_in_doubt(terms, doubts, x, row, row, product_words, lift, dropped_bits(options.products))
            add_unless_in_doubt(new, doubts, x, sums, terms, words, lift, cut)
        # The first attempt does not write a doubt for each column: one or two roundings of 2^12 are in doubt in FP16,
        # and of 2^15 in BF16, so most rows of 128 columns have none. If a row has one, it is computed again with its
        # doubts.
        elif fused_row_and_least_doubt(new, x, row, sums, words, lift, cut) < SURE_FROM:
            fuse_unless_in_doubt(new, doubts, x, row, sums, words, lift, cut)
        else:
            return
        j = first_unsure_column(doubts)
        while j < doubts.size:
            new[j] = one(j, sums, x, row, words, product_words, lift, options)
            j = next_unsure_column(doubts, j)

    return step


def sequential_random(step, rounds_products):
    """Return the loop of stochastic steps. Sums draw from the stage of the counter, products from the next stage."""

    @kernel
    def loop(a, b, out, grid_numbers, product_numbers, place, seed):
        options = StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), 1.0, False)
        counter, short, terms = unpack_counter(place), draws_are_bytes(options.grid), a.shape[1]
        words, product_words = empty_rows(WORD, ROWS, RANDOM_COLUMNS), empty_rows(WORD, ROWS, RANDOM_COLUMNS)
        rows, no_doubts = empty_rows(out, 3, RANDOM_COLUMNS), empty_rows(WORD, 1, RANDOM_COLUMNS)[0]
        no_doubts[:] = NONE_UNSURE
        for left in range(0, out.shape[1], RANDOM_COLUMNS):
            columns = min(RANDOM_COLUMNS, out.shape[1] - left)
            right = left + columns
            for i in range(out.shape[0]):
                sums, new, added, doubts = rows[0, :columns], rows[1, :columns], rows[2, :columns], no_doubts[:columns]
                copy_into(sums, out[i, left:right])
                for first in range(0, terms, steps_in_rows(short)):
                    fill_rows(words, columns, counter, i, left, first, 0, seed, short)
                    if rounds_products:
                        fill_rows(product_words, columns, counter, i, left, first, 1, seed, short)
                    for k in range(first, min(first + steps_in_rows(short), terms)):
                        line, lift, row = word_row(k, short), draw_shift(k, short), b[k, left:right]
                        sum_words, words_of_products = words[line], product_words[line]
                        step(sums, new, added, doubts, a[i, k], row, sum_words, words_of_products, lift, options)
                        sums, new = new, sums
                copy_into(out[i, left:right], sums)

    return loop


@kernel
def sequential_wide(a, b, out, grid_numbers, product_numbers, sign, place, seed, pair, rounds_products):
    """Sum with any operands, any grid and any mode, without attention to speed; `pair` as in `StepOptions`."""
    grid, counter = unpack_grid(grid_numbers), unpack_counter(place)
    options = StepOptions(grid, unpack_grid(product_numbers), sign, pair)
    draws, short = grid.random_step != 0.0, draws_are_bytes(grid)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total, element, words, product_words = out[i, j], element_at(counter, i, j), NO_WORDS, NO_WORDS
            for k in range(a.shape[1]):
                row, lift = word_index(counter.step + k, short), draw_shift(k, short)
                # A call of Philox computes four words. Draws that are bytes share a word in fours, so a call serves 16
                # steps; longer draws take a word each, so a call serves four.
                if draws and row % 4 == 0 and (k % 4 == 0 or not short):
                    words = words_of_sum(counter, element, row, 0, seed)
                    product_words = words_of_sum(counter, element, row, 1, seed)
                x, y = np.float64(a[i, k]), np.float64(b[k, j])
                if rounds_products:
                    word = lifted(np.uint32(product_words[row % 4]), lift)
                    x, y = wide_product(x, y, word, options), 1.0
                high, low, exponent = fma_wide(x, y, total, sign)
                total = round_wide(high, low, exponent, lifted(np.uint32(words[row % 4]), lift), grid, pair)
            out[i, j] = total


def _both_loops(kind: str) -> dict[str, Any]:
    """Return the loops of a kind of step with exact products and with rounded ones."""
    product, add, *_ = KINDS[kind]
    return {f"fused_{kind}": sequential(native_product, add), f"unfused_{kind}": sequential(product, add)}


def _random(kind: str, rounds_products: bool) -> Any:
    """Return the loop of a stochastic kind."""
    product, add, *_ = KINDS[kind]
    one, step = stepping(product if rounds_products else native_product, add, rounds_products)
    return sequential_random(stepping_likely(one, rounds_products) if kind == "likely" else step, rounds_products)


def _chain(fma: Any, add_in_tiles: Any) -> Any:
    return chain(adding_to_row(fma), add_in_tiles)


#: Loops by the kind of step; (a, b, out, grid_numbers, product_numbers, sign).
steps: dict[str, Any] = {}
for _kind in ("plain", "odd", "directed", "sticky", "converted"):
    steps |= _both_loops(_kind)
steps["fused_converted_odd"] = sequential(native_product, converted_odd_add)
steps |= {"fused_native": _chain(fma, add_in_tiles), "unfused_native": sequential(*KINDS["native"][:2])}
steps |= {"fused_halves": _chain(fma_halves, no_tiles), "unfused_halves": sequential(*KINDS["halves"][:2])}

#: Stochastic loops; (a, b, out, grid_numbers, product_numbers, place, seed). `place` contains a Counter.
random_steps = {f"fused_{kind}": _random(kind, False) for kind in DRAWING[:3]}
random_steps |= {f"unfused_{kind}": _random(kind, True) for kind in DRAWING}
