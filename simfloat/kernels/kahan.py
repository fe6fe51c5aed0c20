"""Kahan's compensated sums, every operation rounded (Kahan 1965; Higham 2002, section 4.3).

For every k: p = a * b, y = p - c, t = s + y, c = (t - s) - y, s = t. `a` is (m, k), `b` is (k, n), both of the
carrier's type; `out` (m, n) of that type holds what the sums start from, and in the end the sums, every NaN of which
becomes the one NaN. Stacks of matrices are taken, too (`stack`). t draws from stage 0, p from 1, y from 2, t - s from 3
and c from 4, each at step k.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.grid import unpack
from simfloat.kernels.halves import negative
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import left as lifted
from simfloat.kernels.random import ROWS, are_bytes, counter_of, fill_rows, lift_of, line_of, steps_of_rows
from simfloat.kernels.stack import finish, row_of_left, top_of_right
from simfloat.kernels.steps import KINDS_OF_ONE_FORMAT

COLUMNS, DEPTH = 512, 16
STAGES = 5


def kahan_step(product, add):
    """One product taken into a sum: (sum, rest) -> (sum, rest), the rest being what the sum is too large by."""

    @scalar
    def step(s, c, x, y, grid, sign, pair, s_draw, p_draw, y_draw, d_draw, c_draw):
        p = product(x, y, grid, sign, pair, p_draw)
        corrected = add(p, negative(c), grid, sign, pair, y_draw)
        t = add(s, corrected, grid, sign, pair, s_draw)
        d = add(t, negative(s), grid, sign, pair, d_draw)
        return t, add(d, negative(corrected), grid, sign, pair, c_draw)

    return step


def kahan(step, drawing):
    """The loop for steps that draw, or not, or (None) as the grid says."""

    @kernel
    def loop(a, b, out, numbers, sign, pair, place, seed):
        grid, counter = unpack(numbers), counter_of(place)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), are_bytes(grid)
        words, terms, depth = np.zeros((STAGES, ROWS, COLUMNS), np.uint32), a.shape[1], DEPTH
        if draws:
            depth = steps_of_rows(short)
        rests = np.zeros_like(out)
        for left in range(0, out.shape[1], COLUMNS):
            right = min(left + COLUMNS, out.shape[1])
            for first in range(0, terms, depth):
                last = min(first + depth, terms)
                for i in range(out.shape[0]):
                    sums, rest, top = out[i, left:right], rests[i, left:right], top_of_right(a, b, out, i)
                    factors = a[row_of_left(a, i)]
                    if draws:
                        for stage in range(STAGES):
                            fill_rows(words[stage], sums.size, counter, i, left, first, last, stage, seed, short)
                    for k in range(first, last):
                        x, row, line, lift = factors[k], b[top + k, left:right], line_of(k, short), lift_of(k, short)
                        w0, w1, w2 = words[0, line], words[1, line], words[2, line]
                        w3, w4 = words[3, line], words[4, line]
                        for j in range(sums.size):
                            s, p, y = lifted(w0[j], lift), lifted(w1[j], lift), lifted(w2[j], lift)
                            d, c = lifted(w3[j], lift), lifted(w4[j], lift)
                            sums[j], rest[j] = step(sums[j], rest[j], x, row[j], grid, sign, pair, s, p, y, d, c)
        finish(out)

    return loop


#: Loops by the kind of step; (a, b, out, numbers, sign, pair, place, seed), `place` being a Counter in an array.
loops = {name: kahan(kahan_step(kind.product, kind.add), kind.draws) for name, kind in KINDS_OF_ONE_FORMAT.items()}
