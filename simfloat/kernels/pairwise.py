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
from simfloat.kernels.jit import specialize
from simfloat.kernels.steps import KINDS, fill_draws

#: The part of `b` that a block of columns reads for every row stays in the second-level cache.
COLUMNS = 128
GROUP = 4


def _pairwise(a, b, out, numbers, sign, pair, place, seed):
    grid = unpack(numbers)
    draws = thresholds or (words and grid.random_step != 0.0)  # noqa: F821
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
                        fill_draws(s, columns, place, i, left, k, 0, seed, grid, words)  # noqa: F821
                        fill_draws(p, columns, place, i, left, k, 1, seed, grid, words)  # noqa: F821
                if k < grouped:
                    x0, x1, x2, x3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
                    r0, r1, r2, r3 = b[k, left:right], b[k + 1, left:right], b[k + 2, left:right], b[k + 3, left:right]
                    for j in range(r0.size):
                        p0 = product(x0, r0[j], grid, sign, pair, p[0, j])  # noqa: F821
                        p1 = product(x1, r1[j], grid, sign, pair, p[1, j])  # noqa: F821
                        p2 = product(x2, r2[j], grid, sign, pair, p[2, j])  # noqa: F821
                        p3 = product(x3, r3[j], grid, sign, pair, p[3, j])  # noqa: F821
                        s1 = add(p0, p1, grid, sign, pair, s[1, j])  # noqa: F821
                        s3 = add(p2, p3, grid, sign, pair, s[3, j])  # noqa: F821
                        node[j] = add(s1, s3, grid, sign, pair, s[2, j])  # noqa: F821
                    depth, complete, k = depth + 1, k // GROUP, k + GROUP
                elif k < terms:
                    row = b[k, left:right]
                    for j in range(columns):
                        node[j] = product(a[i, k], row[j], grid, sign, pair, p[k - grouped, j])  # noqa: F821
                    depth, complete, k = depth + 1, k - grouped, k + 1
                while depth > 1 and complete & 1:
                    depth, complete = depth - 1, complete >> 1
                    lower, upper, start = stack[depth - 1], stack[depth], starts[depth]
                    if draws:
                        fill_draws(s, columns, place, i, left, start, 0, seed, grid, words)  # noqa: F821
                    drawn = s[start & 3]
                    for j in range(columns):
                        lower[j] = add(lower[j], upper[j], grid, sign, pair, drawn[j])  # noqa: F821
                if complete < 0:
                    break
            if terms > 0:
                out[i, left:right] = stack[0, :columns]


#: Loops by the kind of step; (a, b, out, numbers, sign, pair, place, seed).
loops = {kind: specialize(_pairwise, f"pairwise_{kind}", **names) for kind, names in KINDS.items()}
