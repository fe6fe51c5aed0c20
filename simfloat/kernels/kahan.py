"""Kahan's compensated sums, every operation rounded (Kahan 1965; Higham 2002, section 4.3).

For every k: p = a * b, y = p - c, t = s + y, c = (t - s) - y, s = t. `a` is (m, k), `b` is (k, n), both of the
carrier's type; `out` (m, n) of that type holds what the sums start from, and in the end the sums. t draws from stage 0,
p from 1, y from 2, t - s from 3 and c from 4, each at step k.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import specialize
from simfloat.kernels.steps import KINDS, fill_draws

COLUMNS, DEPTH = 512, 16
STAGES = 5


def _kahan(a, b, out, numbers, sign, pair, place, seed):
    grid = unpack(numbers)
    draws = thresholds or (words and grid.random_step != 0.0)  # noqa: F821
    drawn = np.zeros((STAGES, 4, COLUMNS))
    rests = np.zeros_like(out)
    for left in range(0, out.shape[1], COLUMNS):
        right = min(left + COLUMNS, out.shape[1])
        for first in range(0, a.shape[1], DEPTH):
            for i in range(out.shape[0]):
                sums, rest = out[i, left:right], rests[i, left:right]
                for k in range(first, min(first + DEPTH, a.shape[1])):
                    if draws and k % 4 == 0:
                        fill_draws(drawn[0], right - left, place, i, left, k, 0, seed, grid, words)  # noqa: F821
                        fill_draws(drawn[1], right - left, place, i, left, k, 1, seed, grid, words)  # noqa: F821
                        fill_draws(drawn[2], right - left, place, i, left, k, 2, seed, grid, words)  # noqa: F821
                        fill_draws(drawn[3], right - left, place, i, left, k, 3, seed, grid, words)  # noqa: F821
                        fill_draws(drawn[4], right - left, place, i, left, k, 4, seed, grid, words)  # noqa: F821
                    x, row, w = a[i, k], b[k, left:right], drawn[:, k % 4]
                    for j in range(sums.size):
                        s = sums[j]
                        p = product(x, row[j], grid, sign, pair, w[1, j])  # noqa: F821
                        y = add(p, -rest[j], grid, sign, pair, w[2, j])  # noqa: F821
                        t = add(s, y, grid, sign, pair, w[0, j])  # noqa: F821
                        d = add(t, -s, grid, sign, pair, w[3, j])  # noqa: F821
                        rest[j] = add(d, -y, grid, sign, pair, w[4, j])  # noqa: F821
                        sums[j] = t


#: Loops by the kind of step; (a, b, out, numbers, sign, pair, place, seed).
loops = {kind: specialize(_kahan, f"kahan_{kind}", **names) for kind, names in KINDS.items()}
