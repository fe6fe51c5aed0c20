"""Sums of rounded products in trees: pairwise, and in the order of a program.

**Pairwise:** products are rounded, then neighbours are added level by level; an odd last one is carried up unchanged.
The tree is walked without storing its levels: a sum of 2^l products waits on a stack until its right neighbour is
complete, like a carry in a binary counter. Four products, the lowest two levels, are summed in registers.

`a` is (m, k), `b` is (k, n), `out` is (m, n), all of the carrier's type, or stacks of such matrices
(`kernels/sums/rows.py`). A sum of no products leaves `out` unchanged, and every NaN becomes the positive quiet NaN. The
addition that has product k as the first one of its right operand uses the random word of step k, stage 0. Product k
uses the word of step k, stage 1.

**Programs** are described in `simfloat/sums/trees.py`. They have the same arrays, steps and words as pairwise sums. A
term beyond the last one is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.kernels.compile.intrinsics import shift_left as left_by
from simfloat.kernels.compile.intrinsics import shift_left as lifted
from simfloat.kernels.compile.jit import kernel, scalar
from simfloat.kernels.elementwise.half import with_one_nan
from simfloat.kernels.rounding.grid import unpack_grid
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
from simfloat.kernels.sums.likely import (
    NONE_UNSURE,
    add_unless_in_doubt,
    dropped_bits,
    first_unsure_column,
    multiply_unless_in_doubt,
    next_unsure_column,
)
from simfloat.kernels.sums.orders import KINDS_OF_ONE_FORMAT, StepKind, StepOptions
from simfloat.kernels.sums.rows import row_of_left, top_of_right

#: Columns of a block: the part of `b` that a block reads for every row stays in the second-level cache.
COLUMNS = 128
GROUP = 4

#: Additional rows for a group: four products and two sums.
SPARE = 6


def tree_operations(product, add):
    """Return (four_of, four, one, two), the operations of the tree.

    four_of and four are the lowest two levels for a column and for a row, one is a single remaining product, and two is
    a sum of two. The four products are products of `x` and `rows` (or `y`); `p` and `s` are the words of the products
    and of the three sums.
    """

    @scalar
    def four_of(x, y, p, s, lifts, options):
        p0 = product(x[0], y[0], lifted(p[0], lifts[0]), options)
        p1 = product(x[1], y[1], lifted(p[1], lifts[1]), options)
        p2 = product(x[2], y[2], lifted(p[2], lifts[2]), options)
        p3 = product(x[3], y[3], lifted(p[3], lifts[3]), options)
        s1 = add(p0, p1, lifted(s[0], lifts[1]), options)
        s3 = add(p2, p3, lifted(s[2], lifts[3]), options)
        return add(s1, s3, lifted(s[1], lifts[2]), options)

    @scalar
    def four(node, spare, doubts, x, rows, p, s, lifts, options):
        r0, r1, r2, r3 = rows
        p0, p1, p2, p3 = p
        s1, s2, s3 = s
        for j in range(node.size):
            y, p_words, s_words = (r0[j], r1[j], r2[j], r3[j]), (p0[j], p1[j], p2[j], p3[j]), (s1[j], s2[j], s3[j])
            node[j] = four_of(x, y, p_words, s_words, lifts, options)

    @scalar
    def one(node, x, row, words, lift, options):
        for j in range(node.size):
            node[j] = product(x, row[j], lifted(words[j], lift), options)

    @scalar
    def two(lower, upper, spare, doubts, words, options):
        for j in range(lower.size):
            lower[j] = add(lower[j], upper[j], words[j], options)

    return four_of, four, one, two


def tree_operations_unless_in_doubt(four_of, one, add):
    """Return (four, one, two) in float32 by likely roundings; uncertain columns are added again exactly."""

    @scalar
    def four(node, spare, doubts, x, rows, p, s, lifts, options):
        # Each loop rounds once and writes a row: a loop over the whole group would be a chain of seven roundings,
        # longer than a processor looks ahead for independent work.
        size, cut = node.size, dropped_bits(options.grid)
        p0, p1, p2, p3 = spare[0, :size], spare[1, :size], spare[2, :size], spare[3, :size]
        s1, s3 = spare[4, :size], spare[5, :size]
        multiply_unless_in_doubt(p0, doubts, x[0], rows[0], rows[0], p[0], lifts[0], cut)
        multiply_unless_in_doubt(p1, doubts, x[1], rows[1], rows[1], p[1], lifts[1], cut)
        multiply_unless_in_doubt(p2, doubts, x[2], rows[2], rows[2], p[2], lifts[2], cut)
        multiply_unless_in_doubt(p3, doubts, x[3], rows[3], rows[3], p[3], lifts[3], cut)
        add_unless_in_doubt(s1, doubts, x[0], p0, p1, s[0], lifts[1], cut)
        add_unless_in_doubt(s3, doubts, x[0], p2, p3, s[2], lifts[3], cut)
        add_unless_in_doubt(node, doubts, x[0], s1, s3, s[1], lifts[2], cut)
        j = first_unsure_column(doubts)
        while j < size:
            y = rows[0][j], rows[1][j], rows[2][j], rows[3][j]
            p_words, s_words = (p[0][j], p[1][j], p[2][j], p[3][j]), (s[0][j], s[1][j], s[2][j])
            node[j] = four_of(x, y, p_words, s_words, lifts, options)
            j = next_unsure_column(doubts, j)

    @scalar
    def two(lower, upper, spare, doubts, words, options):
        new = spare[0, : lower.size]
        add_unless_in_doubt(new, doubts, lower[0], lower, upper, words, np.uint32(0), dropped_bits(options.grid))
        j = first_unsure_column(doubts)
        while j < doubts.size:
            new[j] = add(lower[j], upper[j], words[j], options)
            j = next_unsure_column(doubts, j)
        for j in range(lower.size):
            lower[j] = new[j]

    return four, one, two


@scalar
def _four_rows(rows, k, left, right):
    """Return the rows k to k + 3 between two columns."""
    return rows[k, left:right], rows[k + 1, left:right], rows[k + 2, left:right], rows[k + 3, left:right]


@scalar
def _words_of_four(words, k, short):
    """Return the rows of words for the steps k to k + 3."""
    return (
        words[word_row(k, short)],
        words[word_row(k + 1, short)],
        words[word_row(k + 2, short)],
        words[word_row(k + 3, short)],
    )


@scalar
def _lifts_of_four(k, short):
    """Return the shifts that bring their draws to the top."""
    return draw_shift(k, short), draw_shift(k + 1, short), draw_shift(k + 2, short), draw_shift(k + 3, short)


def pairwise(four, one, two, drawing):
    """Return the loop for pairwise sums; `drawing` is True for stochastic steps, and None if the grid decides.

    The first word of a group belongs to the sum that has this group as the start of its right operand. It waits on the
    stack next to the group.
    """

    @kernel
    def loop(a, b, out, grid_numbers, sign, pair, place, seed):
        grid, counter = unpack_grid(grid_numbers), unpack_counter(place)
        options = StepOptions(grid, grid, sign, pair)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        stack, spare, waiting = (
            empty_rows(out, 40, COLUMNS),
            empty_rows(out, SPARE, COLUMNS),
            empty_rows(WORD, 40, COLUMNS),
        )
        s, p, no_doubts = (
            empty_rows(WORD, ROWS, COLUMNS),
            empty_rows(WORD, ROWS, COLUMNS),
            empty_rows(WORD, 1, COLUMNS)[0],
        )
        waiting[:], s[:], p[:], no_doubts[:] = 0, 0, 0, NONE_UNSURE
        terms, together = a.shape[1], steps_in_rows(short)
        grouped = terms - terms % GROUP
        for left in range(0, out.shape[1], COLUMNS):
            columns = min(COLUMNS, out.shape[1] - left)
            doubts = no_doubts[:columns]
            for i in range(out.shape[0]):
                depth, k, x, top = 0, 0, row_of_left(a, i), top_of_right(a, b, out, i)
                while True:
                    # `complete` has a 1 for every neighbour that waits to be added; at the end all bits are 1. The tree
                    # consists of pairs of neighbours. A binary counter walks it: the trailing ones in the number of
                    # previous groups are the sums that wait for this group, on top of the stack. -1 has only ones, so
                    # all are added after the last product.
                    complete, node, line, lift = -1, stack[depth, :columns], word_row(k, short), draw_shift(k, short)
                    if draws and k < terms:
                        if k % together == 0:
                            fill_rows(s, columns, counter, i, left, k, 0, seed, short)
                            fill_rows(p, columns, counter, i, left, k, 1, seed, short)
                        for j in range(columns):
                            # The draw of a later sum is stored next to its right operand, because the words of its step
                            # are overwritten before that sum.
                            waiting[depth, j] = lifted(s[line, j], lift)
                    if k < grouped:
                        factors, rows = a[x, k : k + GROUP], _four_rows(b, top + k, left, left + columns)
                        of_products, of_sums = _words_of_four(p, k, short), _words_of_four(s, k, short)[1:]
                        lifts = _lifts_of_four(k, short)
                        four(node, spare, doubts, factors, rows, of_products, of_sums, lifts, options)
                        depth, complete, k = depth + 1, k // GROUP, k + GROUP
                    elif k < terms:
                        one(node, a[x, k], b[top + k, left : left + columns], p[line], lift, options)
                        depth, complete, k = depth + 1, k - grouped, k + 1
                    while depth > 1 and complete & 1:
                        depth, complete = depth - 1, complete >> 1
                        lower, upper = stack[depth - 1, :columns], stack[depth, :columns]
                        two(lower, upper, spare, doubts, waiting[depth], options)
                    if complete < 0:
                        break
                if terms > 0:
                    for j in range(columns):
                        out[i, left + j] = with_one_nan(stack[0, j])

    return loop


def _pairwise_loop(name: str, kind: StepKind) -> Any:
    """Return the loop of a kind of step."""
    four_of, four, one, two = tree_operations(kind.product, kind.add)
    if name == "likely":
        four, one, two = tree_operations_unless_in_doubt(four_of, one, kind.add)
    return pairwise(four, one, two, kind.draws)


#: Loops by the kind of step; (a, b, out, numbers, sign, pair, place, seed). `place` contains a Counter.
pairwise_loops = {name: _pairwise_loop(name, kind) for name, kind in KINDS_OF_ONE_FORMAT.items()}


@scalar
def most_waiting_sums(program):
    """Return the maximum number of sums that wait at once."""
    depth, most = 0, 1
    for t in range(program.size):
        depth += 1 if program[t] >= 0 else -1
        most = max(most, depth)
    return most


@scalar
def _words_with_draws_on_top(lifted, words, lift):
    """Write the words, shifted so that their draws are on top."""
    for j in range(words.size):
        lifted[j] = left_by(words[j], lift)


def program_order_loop(one, two, drawing):
    """Return the loop for sums in program order; `drawing` is True for stochastic steps, None if the grid decides."""

    @kernel
    def loop(a, b, out, program, grid_numbers, sign, pair, place, seed):
        grid, counter = unpack_grid(grid_numbers), unpack_counter(place)
        options = StepOptions(grid, grid, sign, pair)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        stack, spare = empty_rows(out, most_waiting_sums(program), COLUMNS), empty_rows(out, SPARE, COLUMNS)
        s, p, no_doubts = empty_rows(WORD, ROWS, COLUMNS), empty_rows(WORD, ROWS, COLUMNS), empty_rows(WORD, 1, COLUMNS)
        words = empty_rows(WORD, 1, COLUMNS)[0]
        s[:], p[:], words[:], no_doubts[:] = 0, 0, 0, NONE_UNSURE
        terms, together = a.shape[1], steps_in_rows(short)
        for left in range(0, out.shape[1], COLUMNS):
            columns = min(COLUMNS, out.shape[1] - left)
            doubts = no_doubts[0, :columns]
            for i in range(out.shape[0]):
                x, top, depth = row_of_left(a, i), top_of_right(a, b, out, i), 0
                # The groups of steps to which the words in `s` and `p` belong.
                of_sums, of_products = -1, -1
                for t in range(program.size):
                    k = program[t]
                    if k >= terms:
                        stack[depth, :columns] = 0
                        depth += 1
                    elif k >= 0:
                        # Programs visit products in any order. Words are computed for `together` steps at once, and
                        # again only if the next step is in another group. The usual programs ascend, so each group is
                        # computed once.
                        if draws and k // together != of_products:
                            of_products = k // together
                            fill_rows(p, columns, counter, i, left, of_products * together, 1, seed, short)
                        row = b[top + k, left : left + columns]
                        one(stack[depth, :columns], a[x, k], row, p[word_row(k, short)], draw_shift(k, short), options)
                        depth += 1
                    else:
                        k = -1 - k
                        if draws and k // together != of_sums:
                            of_sums = k // together
                            fill_rows(s, columns, counter, i, left, of_sums * together, 0, seed, short)
                        depth -= 1
                        lower, upper = stack[depth - 1, :columns], stack[depth, :columns]
                        if draws:
                            _words_with_draws_on_top(words, s[word_row(k, short)], draw_shift(k, short))
                        two(lower, upper, spare, doubts, words[:columns], options)
                for j in range(columns):
                    out[i, left + j] = with_one_nan(stack[0, j])

    return loop


def _tree_loop(name: str, kind: StepKind) -> Any:
    """Return the loop of a kind of step."""
    four_of, _, one, two = tree_operations(kind.product, kind.add)
    if name == "likely":
        _, one, two = tree_operations_unless_in_doubt(four_of, one, kind.add)
    return program_order_loop(one, two, kind.draws)


#: Loops by the kind of step; (a, b, out, program, numbers, sign, pair, place, seed). `place` contains a Counter.
tree_loops = {name: _tree_loop(name, kind) for name, kind in KINDS_OF_ONE_FORMAT.items()}
