"""Sums by the steps of an order, a thread for every element of the result: see `kernels/stepwise.py`."""

from __future__ import annotations

from typing import Any

from simfloat.cuda.cut_steps import KINDS
from simfloat.cuda.thread_loops import place_in, threads_over
from simfloat.cuda.thread_memory import first_of, next_of, run_of
from simfloat.cuda.thread_random import NO_WORDS, word_of, words_from
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import elements, spelled_out
from simfloat.kernels.order_steps import Order, running_sum
from simfloat.kernels.random import are_bytes, counter_of, element_at
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.step_kinds import StepKind, StepOptions
from simfloat.kernels.stepwise import finish_of, loops_of, step_of


def loop(step: Any, finish: Any, state: int, stages: int, drawing: bool | None) -> Any:
    """The loop for steps that draw, or not, or (None) as the grid says."""
    first_state = spelled_out("first_state", "number, zero", f"(number, {elements('zero', state - 1)[1:]}")
    state_in_type = spelled_out("kept_state", "state, kind", elements("kind(state[{}])", state))
    no_words, finishes = (NO_WORDS,) * stages, finish is not running_sum
    draws_of = spelled_out(
        "draws_of", "words, k, short", elements("word_of(words[{}], k, short)", stages), word_of=word_of
    )
    next_words = spelled_out(
        "next_words",
        "words, counter, element, k, seed, short",
        elements("words_from(words[{}], counter, element, k, {}, seed, short)", stages),
        words_from=words_from,
    )

    @threads_over("out")
    def loop(t, a, b, out, numbers, sign, pair, place, seed):
        grid, counter, kind = unpack(numbers), counter_of(place), out.dtype.type
        options = StepOptions(grid, grid, sign, pair != 0)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), are_bytes(grid)
        i, j = place_in(t, out.shape)
        depth, width, element = a.shape[1], out.shape[1], element_at(counter, i, j)
        row, column = run_of(a, row_of_left(a, i) * depth), run_of(b, top_of_right(a, b, out, i) * width + j)
        numbers_of_state, words = first_state(out[i, j], kind(0)), no_words
        x, y = first_of(a, b, row, column)
        for k in range(depth):
            if draws and k % 4 == 0:
                words = next_words(words, counter, element, k, seed, short)
            next_x, next_y = next_of(row, column, k, depth, width)
            new = step(numbers_of_state, x, y, draws_of(words, k, short), options)
            numbers_of_state, x, y = state_in_type(new, kind), next_x, next_y
        if draws and finishes:
            words = next_words(words, counter, element, 0, seed, short)
        out[i, j] = kind(finish(numbers_of_state, draws_of(words, 0, short)[stages - 1], options))

    return loop


def _loop(order: Order, name: str, kind: StepKind) -> Any:
    """The loop of an order in a kind of operations."""
    return loop(step_of(order, kind), finish_of(order, kind), order.state, order.stages, kind.draws)


loops = loops_of(_loop, KINDS)
