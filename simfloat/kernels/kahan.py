"""Kahan's compensated sums, every operation rounded (Kahan 1965; Higham 2002, section 4.3).

For every k: p = a * b, y = p - c, t = s + y, c = (t - s) - y, s = t. `a` is (m, k), `b` is (k, n), both of the
carrier's type; `out` (m, n) of that type holds what the sums start from, and in the end the sums, every NaN of which
becomes the one NaN. Stacks of matrices are taken, too (`stack`). t draws from stage 0, p from 1, y from 2, t - s from 3
and c from 4, each at step k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.kernels.grid import unpack
from simfloat.kernels.halves import negative
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.likely import (
    NO_DOUBT,
    cut_of,
    first_doubt,
    likely_differences,
    likely_products,
    likely_sums,
    next_doubt,
)
from simfloat.kernels.machine import left as lifted
from simfloat.kernels.random import (
    RANDOM_COLUMNS,
    ROWS,
    WORD,
    are_bytes,
    counter_of,
    fill_rows,
    lift_of,
    line_of,
    rows_like,
    steps_of_rows,
)
from simfloat.kernels.stack import finish, row_of_left, top_of_right
from simfloat.kernels.step_kinds import KINDS_OF_ONE_FORMAT, Kind

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


def stepping(step):
    """(one, all_steps): the step of column j, and of every column; `words` are those of the five stages."""

    @scalar
    def one(j, sums, rest, x, row, words, line, lift, grid, sign, pair):
        s, p, y = lifted(words[0, line, j], lift), lifted(words[1, line, j], lift), lifted(words[2, line, j], lift)
        d, c = lifted(words[3, line, j], lift), lifted(words[4, line, j], lift)
        return step(sums[j], rest[j], x, row[j], grid, sign, pair, s, p, y, d, c)

    @scalar
    def all_steps(sums, rest, spare, doubts, x, row, words, line, lift, grid, sign, pair):
        for j in range(sums.size):
            sums[j], rest[j] = one(j, sums, rest, x, row, words, line, lift, grid, sign, pair)

    return one, all_steps


def stepping_likely(one):
    """The same in float32 by what is likely; where that is not certain, a column's step is made again by `one`."""

    @scalar
    def all_steps(sums, rest, spare, doubts, x, row, words, line, lift, grid, sign, pair):
        cut, size = cut_of(grid), sums.size
        p, y, d, new, lost = spare[0, :size], spare[1, :size], spare[2, :size], spare[3, :size], spare[4, :size]
        likely_products(p, doubts, x, row, row, words[1, line], lift, cut)
        likely_differences(y, doubts, x, p, rest, words[2, line], lift, cut)
        likely_sums(new, doubts, x, sums, y, words[0, line], lift, cut)
        likely_differences(d, doubts, x, new, sums, words[3, line], lift, cut)
        likely_differences(lost, doubts, x, d, y, words[4, line], lift, cut)
        j = first_doubt(doubts)
        while j < size:
            new[j], lost[j] = one(j, sums, rest, x, row, words, line, lift, grid, sign, pair)
            j = next_doubt(doubts, j)
        for j in range(size):
            sums[j], rest[j] = new[j], lost[j]

    return all_steps


def kahan(all_steps, drawing):
    """The loop for steps that draw, or not, or (None) as the grid says."""

    @kernel
    def loop(a, b, out, numbers, sign, pair, place, seed):
        grid, counter = unpack(numbers), counter_of(place)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), are_bytes(grid)
        columns, depth, terms = COLUMNS, DEPTH, a.shape[1]
        if draws:
            columns, depth = RANDOM_COLUMNS, steps_of_rows(short)
        words = rows_like(WORD, STAGES * ROWS, columns).reshape(STAGES, ROWS, columns)
        rests, spare = np.zeros_like(out), rows_like(out, STAGES, RANDOM_COLUMNS)
        words[:], doubts = 0, rows_like(WORD, 1, RANDOM_COLUMNS)[0]
        doubts[:] = NO_DOUBT
        for left in range(0, out.shape[1], columns):
            right = min(left + columns, out.shape[1])
            for first in range(0, terms, depth):
                for i in range(out.shape[0]):
                    sums, rest, top = out[i, left:right], rests[i, left:right], top_of_right(a, b, out, i)
                    factors = a[row_of_left(a, i)]
                    if draws:
                        for stage in range(STAGES):
                            fill_rows(words[stage], sums.size, counter, i, left, first, stage, seed, short)
                    for k in range(first, min(first + depth, terms)):
                        line, lift, row = line_of(k, short), lift_of(k, short), b[top + k, left:right]
                        doubted = doubts[: right - left]
                        all_steps(sums, rest, spare, doubted, factors[k], row, words, line, lift, grid, sign, pair)
        finish(out)

    return loop


def _loop(name: str, kind: Kind) -> Any:
    """The loop of a kind of step."""
    one, all_steps = stepping(kahan_step(kind.product, kind.add))
    return kahan(stepping_likely(one) if name == "likely" else all_steps, kind.draws)


#: Loops by the kind of step; (a, b, out, numbers, sign, pair, place, seed), `place` being a Counter in an array.
loops = {name: _loop(name, kind) for name, kind in KINDS_OF_ONE_FORMAT.items()}
