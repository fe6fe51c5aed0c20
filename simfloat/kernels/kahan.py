"""Kahan's compensated sums, every operation rounded (Kahan 1965; Higham 2002, section 4.3).

For every k: p = a * b, y = p - c, t = s + y, c = (t - s) - y, s = t. `a` is (m, k), `b` is (k, n), both of the
carrier's type; `out` (m, n) of that type holds what the sums start from, and in the end the sums. t draws from stage 0,
p from 1, y from 2, t - s from 3 and c from 4, each at step k.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.grid import unpack
from simfloat.kernels.halves import negative
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.random import counter_of
from simfloat.kernels.steps import KINDS, fill_draws

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


def kahan(step, words, thresholds):
    """The loop for steps that draw words, or thresholds, or nothing."""

    @kernel
    def loop(a, b, out, numbers, sign, pair, place, seed):
        grid, counter = unpack(numbers), counter_of(place)
        draws = thresholds or (words and grid.random_step != 0.0)
        drawn = np.zeros((STAGES, 4, COLUMNS))
        rests = np.zeros_like(out)
        for left in range(0, out.shape[1], COLUMNS):
            right = min(left + COLUMNS, out.shape[1])
            for first in range(0, a.shape[1], DEPTH):
                for i in range(out.shape[0]):
                    sums, rest = out[i, left:right], rests[i, left:right]
                    for k in range(first, min(first + DEPTH, a.shape[1])):
                        if draws and k % 4 == 0:
                            for stage in range(STAGES):
                                fill_draws(drawn[stage], right - left, counter, i, left, k, stage, seed, grid, words)
                        x, row, w = a[i, k], b[k, left:right], drawn[:, k % 4]
                        for j in range(sums.size):
                            draw = w[0, j], w[1, j], w[2, j], w[3, j], w[4, j]
                            sums[j], rest[j] = step(sums[j], rest[j], x, row[j], grid, sign, pair, *draw)

    return loop


#: Loops by the kind of step; (a, b, out, numbers, sign, pair, place, seed), `place` being a Counter in an array.
loops = {name: kahan(kahan_step(kind.product, kind.add), kind.words, kind.thresholds) for name, kind in KINDS.items()}
