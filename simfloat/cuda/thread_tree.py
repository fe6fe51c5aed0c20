"""Sums in the order of a program, a thread for every element of the result: see `kernels/tree_loops.py`."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.cut_steps import GPU_KINDS
from simfloat.cuda.thread_loops import row_and_column, threads_over
from simfloat.cuda.thread_memory import thread_stack
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import shift_left
from simfloat.kernels.random import draw_shift, draws_are_bytes, element_at, unpack_counter, word_index, words_of_sum
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.step_kinds import KINDS_OF_ONE_FORMAT, StepOptions


@scalar
def word_at(counter, element, step, stage, seed, short):
    """The word of a step, with its draw on top."""
    first = step - step % (16 if short else 4)
    words = words_of_sum(counter, element, word_index(counter.step + first, short), stage, seed)
    return shift_left(np.uint32(words[step % 16 // 4 if short else step % 4]), draw_shift(step, short))


def program_order_loop(product, add, drawing):
    """The loop for steps that draw, or not, or (None) as the grid says."""

    @threads_over("out")
    def loop(t, a, b, out, program, grid_numbers, sign, pair, place, seed):
        grid, counter, terms = unpack_grid(grid_numbers), unpack_counter(place), a.shape[1]
        options = StepOptions(grid, grid, sign, pair != 0)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        i, j = row_and_column(t, out.shape)
        row, top = row_of_left(a, i), top_of_right(a, b, out, i)
        element, word = element_at(counter, i, j), np.uint32(0)
        stack, depth = thread_stack(out[i, j]), 0
        for n in range(program.size):
            k = program[n]
            if draws and k < terms:
                word = word_at(counter, element, k if k >= 0 else -1 - k, 1 if k >= 0 else 0, seed, short)
            if k >= terms:
                stack[depth] = 0
                depth += 1
            elif k >= 0:
                stack[depth] = product(a[row, k], b[top + k, j], word, options)
                depth += 1
            else:
                depth -= 1
                stack[depth - 1] = add(stack[depth - 1], stack[depth], word, options)
        out[i, j] = stack[0]

    return loop


tree_loops = {
    name: program_order_loop(kind.product, kind.add, kind.draws)
    for name, kind in (KINDS_OF_ONE_FORMAT | GPU_KINDS).items()
}
