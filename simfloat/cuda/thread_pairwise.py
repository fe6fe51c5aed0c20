"""Pairwise sums, a thread for every element of the result: see `kernels/pairwise_loops.py`.

The tree is walked as there, product by product: sums that wait for their right neighbours lie on the thread's stack,
each with the word of the product that it begins with.
"""

from __future__ import annotations

from simfloat.cuda.cut_steps import GPU_KINDS
from simfloat.cuda.thread_loops import row_and_column, threads_over
from simfloat.cuda.thread_memory import first_factors, next_factors, numbers_from, thread_stack
from simfloat.cuda.thread_random import NO_WORDS, next_four_words, step_word
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.random import draws_are_bytes, element_at, unpack_counter
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.step_kinds import KINDS_OF_ONE_FORMAT, StepOptions


def pairwise(product, add, drawing):
    """The loop for steps that draw, or not, or (None) as the grid says."""

    @threads_over("out")
    def loop(t, a, b, out, grid_numbers, sign, pair, place, seed):
        grid, counter, terms = unpack_grid(grid_numbers), unpack_counter(place), a.shape[1]
        options = StepOptions(grid, grid, sign, pair != 0)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        i, j = row_and_column(t, out.shape)
        width = out.shape[1]
        row, column = (
            numbers_from(a, row_of_left(a, i) * terms),
            numbers_from(b, top_of_right(a, b, out, i) * width + j),
        )
        x, y = first_factors(a, b, row, column)
        element, words, product_words = element_at(counter, i, j), NO_WORDS, NO_WORDS
        stack, waiting, depth = thread_stack(out[i, j]), thread_stack(step_word(words, 0, short)), 0
        for k in range(terms):
            if draws and k % 4 == 0:
                words = next_four_words(words, counter, element, k, 0, seed, short)
                product_words = next_four_words(product_words, counter, element, k, 1, seed, short)
            next_x, next_y = next_factors(row, column, k, terms, width)
            stack[depth] = product(x, y, step_word(product_words, k, short), options)
            x, y = next_x, next_y
            waiting[depth] = step_word(words, k, short)
            # `complete` has a 1 for every neighbour that waits to be added: all of them at the end.
            depth, complete = depth + 1, k if k + 1 < terms else -1
            while depth > 1 and complete & 1:
                depth, complete = depth - 1, complete >> 1
                stack[depth - 1] = add(stack[depth - 1], stack[depth], waiting[depth], options)
        if terms > 0:
            out[i, j] = stack[0]

    return loop


pairwise_loops = {
    name: pairwise(kind.product, kind.add, kind.draws) for name, kind in (KINDS_OF_ONE_FORMAT | GPU_KINDS).items()
}
