"""Sums in the order of a program, a thread for every element of the result: see `kernels/tree_loops.py`."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.cut_steps import KINDS
from simfloat.cuda.thread_loops import place_in, threads_over
from simfloat.cuda.thread_memory import stack_of
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import left
from simfloat.kernels.random import are_bytes, counter_of, element_at, lift_of, row_of, words_of_sum
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.step_kinds import KINDS_OF_ONE_FORMAT, StepOptions


@scalar
def word_at(counter, element, step, stage, seed, short):
    """The word of a step, with its draw on top."""
    first = step - step % (16 if short else 4)
    words = words_of_sum(counter, element, row_of(counter.step + first, short), stage, seed)
    return left(np.uint32(words[step % 16 // 4 if short else step % 4]), lift_of(step, short))


def in_order(product, add, drawing):
    """The loop for steps that draw, or not, or (None) as the grid says."""

    @threads_over("out")
    def loop(t, a, b, out, program, numbers, sign, pair, place, seed):
        grid, counter, terms = unpack(numbers), counter_of(place), a.shape[1]
        options = StepOptions(grid, grid, sign, pair != 0)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), are_bytes(grid)
        i, j = place_in(t, out.shape)
        row, top = row_of_left(a, i), top_of_right(a, b, out, i)
        element, word = element_at(counter, i, j), np.uint32(0)
        stack, depth = stack_of(out[i, j]), 0
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


loops = {name: in_order(kind.product, kind.add, kind.draws) for name, kind in (KINDS_OF_ONE_FORMAT | KINDS).items()}
