"""Pairwise sums: products rounded, then neighbours added level by level, an odd last one carried up unchanged.

That tree is walked without storing its levels: a sum of 2^l products waits on a stack until its right neighbour is
complete, as a carry waits in a binary counter. Four products, the lowest two levels, are summed in registers.

`a` is (m, k), `b` is (k, n), `out` is (m, n), all of the carrier's type; a sum of no products leaves `out` as it
is. The addition whose right operand starts with product k draws the random word of step k, stage 0; product k that of
stage 1.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel
from simfloat.kernels.random import counter_of
from simfloat.kernels.steps import KINDS, fill_draws

#: The part of `b` that a block of columns reads for every row stays in the second-level cache.
COLUMNS = 128
GROUP = 4


def pairwise(product, add, words, thresholds):
    """The loop for steps that draw words, or thresholds, or nothing."""

    @kernel
    def loop(a, b, out, numbers, sign, pair, place, seed):
        grid, counter = unpack(numbers), counter_of(place)
        draws = thresholds or (words and grid.random_step != 0.0)
        stack, starts = np.empty((40, COLUMNS), out.dtype), np.empty(40, np.int64)
        s, p = np.zeros((GROUP, COLUMNS)), np.zeros((GROUP, COLUMNS))
        terms = a.shape[1]
        grouped = terms - terms % GROUP
        for left in range(0, out.shape[1], COLUMNS):
            right = min(left + COLUMNS, out.shape[1])
            columns = right - left
            for i in range(out.shape[0]):
                depth, k = 0, 0
                while True:
                    # `complete` has a 1 for every neighbour that waits to be added: all of them at the end.
                    complete = -1
                    if k < terms:
                        node, starts[depth] = stack[depth], k
                        if draws and k <= grouped:
                            fill_draws(s, columns, counter, i, left, k, 0, seed, grid, words)
                            fill_draws(p, columns, counter, i, left, k, 1, seed, grid, words)
                    if k < grouped:
                        x0, x1, x2, x3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
                        r0, r1, r2, r3 = (
                            b[k, left:right],
                            b[k + 1, left:right],
                            b[k + 2, left:right],
                            b[k + 3, left:right],
                        )
                        for j in range(r0.size):
                            p0 = product(x0, r0[j], grid, sign, pair, p[0, j])
                            p1 = product(x1, r1[j], grid, sign, pair, p[1, j])
                            p2 = product(x2, r2[j], grid, sign, pair, p[2, j])
                            p3 = product(x3, r3[j], grid, sign, pair, p[3, j])
                            s1 = add(p0, p1, grid, sign, pair, s[1, j])
                            s3 = add(p2, p3, grid, sign, pair, s[3, j])
                            node[j] = add(s1, s3, grid, sign, pair, s[2, j])
                        depth, complete, k = depth + 1, k // GROUP, k + GROUP
                    elif k < terms:
                        row = b[k, left:right]
                        for j in range(columns):
                            node[j] = product(a[i, k], row[j], grid, sign, pair, p[k - grouped, j])
                        depth, complete, k = depth + 1, k - grouped, k + 1
                    while depth > 1 and complete & 1:
                        depth, complete = depth - 1, complete >> 1
                        lower, upper, start = stack[depth - 1], stack[depth], starts[depth]
                        if draws:
                            fill_draws(s, columns, counter, i, left, start, 0, seed, grid, words)
                        drawn = s[start & 3]
                        for j in range(columns):
                            lower[j] = add(lower[j], upper[j], grid, sign, pair, drawn[j])
                    if complete < 0:
                        break
                if terms > 0:
                    out[i, left:right] = stack[0, :columns]

    return loop


#: Loops by the kind of step; (a, b, out, numbers, sign, pair, place, seed), `place` being a Counter in an array.
loops = {kind: pairwise(*functions) for kind, functions in KINDS.items()}
