"""Sums by the steps of an order, a thread for every element of the result: see `kernels/stepwise.py`."""

from __future__ import annotations

from typing import Any

from simfloat.cuda.cut_steps import GPU_KINDS
from simfloat.cuda.thread_loops import row_and_column, threads_over
from simfloat.cuda.thread_memory import first_factors, next_factors, numbers_from
from simfloat.cuda.thread_random import NO_WORDS, next_four_words, step_word
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.jit import scalar_from_text, tuple_text
from simfloat.kernels.order_steps import Order, running_sum
from simfloat.kernels.random import draws_are_bytes, element_at, unpack_counter
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.step_kinds import StepKind, StepOptions
from simfloat.kernels.stepwise import finish_in_kind, make_loops, step_in_kind


def loop(step: Any, finish: Any, state: int, stages: int, drawing: bool | None) -> Any:
    """The loop for steps that draw, or not, or (None) as the grid says."""
    first_state = scalar_from_text("first_state", "number, zero", f"(number, {tuple_text('zero', state - 1)[1:]}")
    state_in_type = scalar_from_text("kept_state", "state, kind", tuple_text("kind(state[{}])", state))
    no_words, finishes = (NO_WORDS,) * stages, finish is not running_sum
    draws_of = scalar_from_text(
        "draws_of", "words, k, short", tuple_text("word_of(words[{}], k, short)", stages), word_of=step_word
    )
    next_words = scalar_from_text(
        "next_words",
        "words, counter, element, k, seed, short",
        tuple_text("words_from(words[{}], counter, element, k, {}, seed, short)", stages),
        words_from=next_four_words,
    )

    @threads_over("out")
    def loop(t, a, b, out, grid_numbers, sign, pair, place, seed):
        grid, counter, kind = unpack_grid(grid_numbers), unpack_counter(place), out.dtype.type
        options = StepOptions(grid, grid, sign, pair != 0)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        i, j = row_and_column(t, out.shape)
        depth, width, element = a.shape[1], out.shape[1], element_at(counter, i, j)
        row, column = (
            numbers_from(a, row_of_left(a, i) * depth),
            numbers_from(b, top_of_right(a, b, out, i) * width + j),
        )
        numbers_of_state, words = first_state(out[i, j], kind(0)), no_words
        x, y = first_factors(a, b, row, column)
        for k in range(depth):
            if draws and k % 4 == 0:
                words = next_words(words, counter, element, k, seed, short)
            next_x, next_y = next_factors(row, column, k, depth, width)
            new = step(numbers_of_state, x, y, draws_of(words, k, short), options)
            numbers_of_state, x, y = state_in_type(new, kind), next_x, next_y
        if draws and finishes:
            words = next_words(words, counter, element, 0, seed, short)
        out[i, j] = kind(finish(numbers_of_state, draws_of(words, 0, short)[stages - 1], options))

    return loop


def _loop(order: Order, name: str, kind: StepKind) -> Any:
    """The loop of an order in a kind of operations."""
    return loop(step_in_kind(order, kind), finish_in_kind(order, kind), order.state, order.stages, kind.draws)


stepwise_loops = make_loops(_loop, GPU_KINDS)
