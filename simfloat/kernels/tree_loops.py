"""Sums of rounded products in the order of a program, which `accumulate/nesting.py` describes.

For arrays see `pairwise_loops`, whose steps these are. A term beyond the last one is 0. The addition whose right
operand starts with product k draws the random word of step k, stage 0; product k that of stage 1.
"""

from __future__ import annotations

from typing import Any

from simfloat.kernels.grid import unpack
from simfloat.kernels.halves import one_nan_of
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.likely import NO_DOUBT
from simfloat.kernels.machine import left as left_by
from simfloat.kernels.pairwise_loops import COLUMNS, SPARE, adding, adding_likely
from simfloat.kernels.random import (
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
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.step_kinds import KINDS_OF_ONE_FORMAT, StepKind, StepOptions


@scalar
def places_of(program):
    """The most sums that wait at once."""
    depth, most = 0, 1
    for t in range(program.size):
        depth += 1 if program[t] >= 0 else -1
        most = max(most, depth)
    return most


@scalar
def _lift(lifted, words, lift):
    """The words with their draws on top."""
    for j in range(words.size):
        lifted[j] = left_by(words[j], lift)


def in_order(one, two, drawing):
    """The loop for steps that draw, or not, or (None) as the grid says."""

    @kernel
    def loop(a, b, out, program, numbers, sign, pair, place, seed):
        grid, counter = unpack(numbers), counter_of(place)
        options = StepOptions(grid, grid, sign, pair)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), are_bytes(grid)
        stack, spare = rows_like(out, places_of(program), COLUMNS), rows_like(out, SPARE, COLUMNS)
        s, p, no_doubts = rows_like(WORD, ROWS, COLUMNS), rows_like(WORD, ROWS, COLUMNS), rows_like(WORD, 1, COLUMNS)
        words = rows_like(WORD, 1, COLUMNS)[0]
        s[:], p[:], words[:], no_doubts[:] = 0, 0, 0, NO_DOUBT
        terms, together = a.shape[1], steps_of_rows(short)
        for left in range(0, out.shape[1], COLUMNS):
            columns = min(COLUMNS, out.shape[1] - left)
            doubts = no_doubts[0, :columns]
            for i in range(out.shape[0]):
                x, top, depth = row_of_left(a, i), top_of_right(a, b, out, i), 0
                # The steps whose words are at hand, of sums and of products.
                of_sums, of_products = -1, -1
                for t in range(program.size):
                    k = program[t]
                    if k >= terms:
                        stack[depth, :columns] = 0
                        depth += 1
                    elif k >= 0:
                        # Programs visit products in any order. Words are made for `together` steps at once, and made
                        # anew only if the next step lies outside of them; for the usual programs, which ascend, that is
                        # once.
                        if draws and k // together != of_products:
                            of_products = k // together
                            fill_rows(p, columns, counter, i, left, of_products * together, 1, seed, short)
                        row = b[top + k, left : left + columns]
                        one(stack[depth, :columns], a[x, k], row, p[line_of(k, short)], lift_of(k, short), options)
                        depth += 1
                    else:
                        k = -1 - k
                        if draws and k // together != of_sums:
                            of_sums = k // together
                            fill_rows(s, columns, counter, i, left, of_sums * together, 0, seed, short)
                        depth -= 1
                        lower, upper = stack[depth - 1, :columns], stack[depth, :columns]
                        if draws:
                            _lift(words, s[line_of(k, short)], lift_of(k, short))
                        two(lower, upper, spare, doubts, words[:columns], options)
                for j in range(columns):
                    out[i, left + j] = one_nan_of(stack[0, j])

    return loop


def _loop(name: str, kind: StepKind) -> Any:
    """The loop of a kind of step."""
    four_of, _, one, two = adding(kind.product, kind.add)
    if name == "likely":
        _, one, two = adding_likely(four_of, one, kind.add)
    return in_order(one, two, kind.draws)


#: Loops by the kind of step; (a, b, out, program, numbers, sign, pair, place, seed), `place` being a Counter.
loops = {name: _loop(name, kind) for name, kind in KINDS_OF_ONE_FORMAT.items()}
