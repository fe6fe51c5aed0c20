"""Sums of rounded products in trees: in the order of a program, and pairwise.

`a` is (m, k), `b` is (k, n), `out` is (m, n), all of the carrier's type, or stacks of such matrices
(`kernels/sums/stacks.py`). Every NaN becomes the positive quiet NaN.

**Programs** are described in `simfloat/sums/trees.py`. A term beyond the last one is 0. The addition that has product k
as the first one of its right operand uses the random word of step k, stage 0. Product k uses the word of step k, stage
1.

**Pairwise:** neighbours are added level by level; an odd last one is carried up unchanged. Programs serve all kinds of
operations. If the hardware rounds, a separate loop is 1.6 to 1.8 times as fast: it sums four products, the lowest two
levels, in registers. It walks the tree without storing its levels: a sum of 2^l products waits on a stack until its
right neighbour is complete, like a carry in a binary counter. For the other kinds such a loop took 1.2 times as long as
a program, because a loop over the whole group is a chain of seven roundings, longer than a processor looks ahead.
"""

from __future__ import annotations

from typing import Any

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
from simfloat.kernels.sums.orders import KINDS, KINDS_OF_ONE_FORMAT, StepKind, StepOptions
from simfloat.kernels.sums.stacks import row_of_left, top_of_right

#: Columns of a block: the part of `b` that a block reads for every row stays in the second-level cache.
COLUMNS = 128
GROUP = 4

#: The kinds with a separate loop for pairwise sums.
IN_REGISTERS = ("native", "halves")


def row_operations(product, add):
    """Return (multiply, add): the rounded products of a number and a row, and the sums of two rows, in the first."""

    @scalar
    def multiply_row(node, doubts, x, row, words, lift, options):
        for j in range(node.size):
            node[j] = product(x, row[j], lifted(words[j], lift), options)

    @scalar
    def add_rows(lower, upper, new, doubts, words, lift, options):
        for j in range(lower.size):
            lower[j] = add(lower[j], upper[j], lifted(words[j], lift), options)

    return multiply_row, add_rows


def row_operations_unless_in_doubt(product, add):
    """Return both operations in float32 by likely roundings; uncertain columns are computed again exactly."""

    @scalar
    def multiply_row(node, doubts, x, row, words, lift, options):
        multiply_unless_in_doubt(node, doubts, x, row, row, words, lift, dropped_bits(options.grid))
        j = first_unsure_column(doubts)
        while j < doubts.size:
            node[j] = product(x, row[j], lifted(words[j], lift), options)
            j = next_unsure_column(doubts, j)

    @scalar
    def add_rows(lower, upper, new, doubts, words, lift, options):
        add_unless_in_doubt(new, doubts, lower[0], lower, upper, words, lift, dropped_bits(options.grid))
        j = first_unsure_column(doubts)
        while j < doubts.size:
            new[j] = add(lower[j], upper[j], lifted(words[j], lift), options)
            j = next_unsure_column(doubts, j)
        for j in range(lower.size):
            lower[j] = new[j]

    return multiply_row, add_rows


@scalar
def most_waiting_sums(program):
    """Return the maximum number of sums that wait at once."""
    depth, most = 0, 1
    for t in range(program.size):
        depth += 1 if program[t] >= 0 else -1
        most = max(most, depth)
    return most


def program_order_loop(multiply_row, add_rows, drawing):
    """Return the loop for sums in program order; `drawing` is True for stochastic steps, None if the grid decides."""

    @kernel
    def loop(a, b, out, program, grid_numbers, sign, pair, place, seed):
        grid, counter = unpack_grid(grid_numbers), unpack_counter(place)
        options = StepOptions(grid, grid, sign, pair)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        stack, spare = empty_rows(out, most_waiting_sums(program), COLUMNS), empty_rows(out, 1, COLUMNS)
        s, p, no_doubts = empty_rows(WORD, ROWS, COLUMNS), empty_rows(WORD, ROWS, COLUMNS), empty_rows(WORD, 1, COLUMNS)
        s[:], p[:], no_doubts[:] = 0, 0, NONE_UNSURE
        terms, together = a.shape[1], steps_in_rows(short)
        for left in range(0, out.shape[1], COLUMNS):
            columns = min(COLUMNS, out.shape[1] - left)
            doubts, new = no_doubts[0, :columns], spare[0, :columns]
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
                        node, row, words = (
                            stack[depth, :columns],
                            b[top + k, left : left + columns],
                            p[word_row(k, short)],
                        )
                        multiply_row(node, doubts, a[x, k], row, words, draw_shift(k, short), options)
                        depth += 1
                    else:
                        k = -1 - k
                        if draws and k // together != of_sums:
                            of_sums = k // together
                            fill_rows(s, columns, counter, i, left, of_sums * together, 0, seed, short)
                        depth -= 1
                        lower, upper, words = stack[depth - 1, :columns], stack[depth, :columns], s[word_row(k, short)]
                        add_rows(lower, upper, new, doubts, words, draw_shift(k, short), options)
                for j in range(columns):
                    out[i, left + j] = with_one_nan(stack[0, j])

    return loop


def _program_order_loop(name: str, kind: StepKind) -> Any:
    """Return the loop of a kind of step."""
    operations = row_operations_unless_in_doubt if name == "likely" else row_operations
    multiply_row, add_rows = operations(kind.product, kind.add)
    return program_order_loop(multiply_row, add_rows, kind.draws)


#: Loops by the kind of step; (a, b, out, program, numbers, sign, pair, place, seed). `place` contains a Counter.
tree_loops = {name: _program_order_loop(name, kind) for name, kind in KINDS_OF_ONE_FORMAT.items()}


def pairwise(product, add):
    """Return the loop for pairwise sums by the hardware's operations."""

    @scalar
    def sum_group(node, x, rows, top, left, options):
        r0, r1 = rows[top, left : left + node.size], rows[top + 1, left : left + node.size]
        r2, r3 = rows[top + 2, left : left + node.size], rows[top + 3, left : left + node.size]
        for j in range(node.size):
            lower = add(product(x[0], r0[j], 0.0, options), product(x[1], r1[j], 0.0, options), 0.0, options)
            upper = add(product(x[2], r2[j], 0.0, options), product(x[3], r3[j], 0.0, options), 0.0, options)
            node[j] = add(lower, upper, 0.0, options)

    @kernel
    def loop(a, b, out, grid_numbers, sign, pair, place, seed):
        grid = unpack_grid(grid_numbers)
        options, terms = StepOptions(grid, grid, sign, pair), a.shape[1]
        stack, grouped = empty_rows(out, 40, COLUMNS), terms - terms % GROUP
        for left in range(0, out.shape[1], COLUMNS):
            columns = min(COLUMNS, out.shape[1] - left)
            for i in range(out.shape[0] if terms > 0 else 0):
                depth, k, x, top = 0, 0, row_of_left(a, i), top_of_right(a, b, out, i)
                while True:
                    # `complete` has a 1 for every neighbour that waits to be added; at the end all bits are 1. The tree
                    # consists of pairs of neighbours. A binary counter walks it: the trailing ones in the number of
                    # previous groups are the sums that wait for this group, on top of the stack. -1 has only ones, so
                    # all are added after the last product.
                    complete, node = -1, stack[depth, :columns]
                    if k < grouped:
                        sum_group(node, a[x, k : k + GROUP], b, top + k, left, options)
                        depth, complete, k = depth + 1, k // GROUP, k + GROUP
                    elif k < terms:
                        row = b[top + k, left : left + columns]
                        for j in range(columns):
                            node[j] = product(a[x, k], row[j], 0.0, options)
                        depth, complete, k = depth + 1, k - grouped, k + 1
                    while depth > 1 and complete & 1:
                        depth, complete = depth - 1, complete >> 1
                        lower, upper = stack[depth - 1, :columns], stack[depth, :columns]
                        for j in range(columns):
                            lower[j] = add(lower[j], upper[j], 0.0, options)
                    if complete < 0:
                        break
                for j in range(columns):
                    out[i, left + j] = with_one_nan(stack[0, j])

    return loop


#: Loops by the kind of step; (a, b, out, numbers, sign, pair, place, seed), of which the last two are not read.
pairwise_loops = {name: pairwise(KINDS[name].product, KINDS[name].add) for name in IN_REGISTERS}
