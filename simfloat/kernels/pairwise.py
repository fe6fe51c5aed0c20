"""Pairwise sums: products rounded, then neighbours added level by level, an odd last one carried up unchanged.

That tree is walked without storing its levels: a sum of 2^l products waits on a stack until its right neighbour is
complete, as a carry waits in a binary counter. Four products, the lowest two levels, are summed in registers.

`a` is (m, k), `b` is (k, n), `out` is (m, n), all of the carrier's type, or stacks of such matrices (`stack`); a sum of
no products leaves `out` as it is, and every NaN becomes the one NaN. The addition whose right operand starts with
product k draws the random word of step k, stage 0; product k that of stage 1.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.grid import unpack
from simfloat.kernels.halves import one_nan_of
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import left as lifted
from simfloat.kernels.random import ROWS, are_bytes, counter_of, fill_rows, lift_of, line_of, steps_of_rows
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.steps import KINDS_OF_ONE_FORMAT

#: The part of `b` that a block of columns reads for every row stays in the second-level cache.
COLUMNS = 128
GROUP = 4


def adding_four(product, add):
    """The sum of four products for every column: the lowest two levels of the tree."""

    @scalar
    def four(node, x, rows, left, p, s, k, short, grid, sign, pair):
        right = left + node.size
        x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
        r0, r1, r2, r3 = rows[0, left:right], rows[1, left:right], rows[2, left:right], rows[3, left:right]
        line0, line1, line2, line3 = (
            line_of(k, short),
            line_of(k + 1, short),
            line_of(k + 2, short),
            line_of(k + 3, short),
        )
        lift0, lift1, lift2, lift3 = (
            lift_of(k, short),
            lift_of(k + 1, short),
            lift_of(k + 2, short),
            lift_of(k + 3, short),
        )
        p_words0, p_words1, p_words2, p_words3 = p[line0], p[line1], p[line2], p[line3]
        s_words1, s_words2, s_words3 = s[line1], s[line2], s[line3]
        for j in range(node.size):
            p0 = product(x0, r0[j], grid, sign, pair, lifted(p_words0[j], lift0))
            p1 = product(x1, r1[j], grid, sign, pair, lifted(p_words1[j], lift1))
            p2 = product(x2, r2[j], grid, sign, pair, lifted(p_words2[j], lift2))
            p3 = product(x3, r3[j], grid, sign, pair, lifted(p_words3[j], lift3))
            s1 = add(p0, p1, grid, sign, pair, lifted(s_words1[j], lift1))
            s3 = add(p2, p3, grid, sign, pair, lifted(s_words3[j], lift3))
            node[j] = add(s1, s3, grid, sign, pair, lifted(s_words2[j], lift2))

    return four


def pairwise(product, add, four, drawing):
    """The loop for steps that draw, or not, or (None) as the grid says.

    The first word of a group is that of the sum which has the group as its right part: it waits beside it on the stack.
    """

    @kernel
    def loop(a, b, out, numbers, sign, pair, place, seed):
        grid, counter = unpack(numbers), counter_of(place)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), are_bytes(grid)
        stack, waiting = np.empty((40, COLUMNS), out.dtype), np.zeros((40, COLUMNS), np.uint32)
        s, p = np.zeros((ROWS, COLUMNS), np.uint32), np.zeros((ROWS, COLUMNS), np.uint32)
        terms, together = a.shape[1], steps_of_rows(short)
        grouped = terms - terms % GROUP
        for left in range(0, out.shape[1], COLUMNS):
            columns = min(COLUMNS, out.shape[1] - left)
            for i in range(out.shape[0]):
                depth, k, x, top = 0, 0, row_of_left(a, i), top_of_right(a, b, out, i)
                while True:
                    # `complete` has a 1 for every neighbour that waits to be added: all of them at the end.
                    complete, node, line, lift = -1, stack[depth, :columns], line_of(k, short), lift_of(k, short)
                    if draws and k < terms:
                        if k % together == 0:
                            last = min(k + together, terms)
                            fill_rows(s, columns, counter, i, left, k, last, 0, seed, short)
                            fill_rows(p, columns, counter, i, left, k, last, 1, seed, short)
                        for j in range(columns):
                            waiting[depth, j] = lifted(s[line, j], lift)
                    if k < grouped:
                        factors, rows = a[x, k : k + GROUP], b[top + k : top + k + GROUP]
                        four(node, factors, rows, left, p, s, k, short, grid, sign, pair)
                        depth, complete, k = depth + 1, k // GROUP, k + GROUP
                    elif k < terms:
                        row, words = b[top + k, left : left + columns], p[line]
                        for j in range(columns):
                            node[j] = product(a[x, k], row[j], grid, sign, pair, lifted(words[j], lift))
                        depth, complete, k = depth + 1, k - grouped, k + 1
                    while depth > 1 and complete & 1:
                        depth, complete = depth - 1, complete >> 1
                        lower, upper, words = stack[depth - 1], stack[depth], waiting[depth]
                        for j in range(columns):
                            lower[j] = add(lower[j], upper[j], grid, sign, pair, words[j])
                    if complete < 0:
                        break
                if terms > 0:
                    for j in range(columns):
                        out[i, left + j] = one_nan_of(stack[0, j])

    return loop


#: Loops by the kind of step; (a, b, out, numbers, sign, pair, place, seed), `place` being a Counter in an array.
loops = {
    name: pairwise(kind.product, kind.add, adding_four(kind.product, kind.add), kind.draws)
    for name, kind in KINDS_OF_ONE_FORMAT.items()
}
