"""Sums of rounded products in the order of a program, which `accumulate/nesting.py` describes.

For arrays see `pairwise_loops`, whose steps these are. A term beyond the last one is 0. The addition whose right
operand starts with product k draws the random word of step k, stage 0; product k that of stage 1.
"""

from __future__ import annotations

from typing import Any

from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.halves import with_one_nan
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.likely import NONE_UNSURE
from simfloat.kernels.machine import shift_left as left_by
from simfloat.kernels.pairwise_loops import COLUMNS, SPARE, tree_operations, tree_operations_unless_in_doubt
from simfloat.kernels.random import (
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
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.step_kinds import KINDS_OF_ONE_FORMAT, StepKind, StepOptions


@scalar
def most_waiting_sums(program):
    """The most sums that wait at once."""
    depth, most = 0, 1
    for t in range(program.size):
        depth += 1 if program[t] >= 0 else -1
        most = max(most, depth)
    return most


@scalar
def _words_with_draws_on_top(lifted, words, lift):
    """The words with their draws on top."""
    for j in range(words.size):
        lifted[j] = left_by(words[j], lift)


def program_order_loop(one, two, drawing):
    """The loop for steps that draw, or not, or (None) as the grid says."""

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
    """The loop of a kind of step."""
    four_of, _, one, two = tree_operations(kind.product, kind.add)
    if name == "likely":
        _, one, two = tree_operations_unless_in_doubt(four_of, one, kind.add)
    return program_order_loop(one, two, kind.draws)


#: Loops by the kind of step; (a, b, out, program, numbers, sign, pair, place, seed), `place` being a Counter.
tree_loops = {name: _tree_loop(name, kind) for name, kind in KINDS_OF_ONE_FORMAT.items()}
