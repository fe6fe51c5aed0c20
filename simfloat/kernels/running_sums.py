"""The loop that keeps every running sum of an order that is written as a step (`order_steps`).

Such a sum cannot go on from a running sum alone, for its state holds more. `a` is (1, k), `b` is (k, 1), and `out`
(k, 1), all of float64; the first number of `out` is what the sum starts from, and in the end number i is the sum of the
products up to number i, as `stepwise` makes it: the same draws belong to the same steps. Operations are those of the
kind `wide`, which takes any operands, grid and mode, so one loop serves them all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.jit import kernel, scalar_from_text, tuple_text
from simfloat.kernels.machine import shift_left as lifted
from simfloat.kernels.order_steps import ORDERS
from simfloat.kernels.random import (
    ROWS,
    draw_shift,
    draws_are_bytes,
    fill_rows,
    steps_in_rows,
    unpack_counter,
    word_row,
)
from simfloat.kernels.stack import make_nans_one
from simfloat.kernels.step_kinds import KINDS, StepOptions
from simfloat.kernels.stepwise import finish_in_kind, step_in_kind


def running_loop(step: Any, finish: Any, state: int, stages: int) -> Any:
    """The loop for a step whose state has so many numbers, and which draws from so many stages if the grid says so."""
    first_state = scalar_from_text("first_of_running", "number", f"(number, {tuple_text('0.0', state - 1)[1:]}")
    draws_at = scalar_from_text(
        "draws_of_running", "words, line, lift", tuple_text("lifted(words[{}, line, 0], lift)", stages), lifted=lifted
    )

    @kernel
    def loop(a, b, out, grid_numbers, sign, pair, place, seed):
        grid, counter = unpack_grid(grid_numbers), unpack_counter(place)
        options = StepOptions(grid, grid, sign, pair)
        draws, short = grid.random_step != 0.0, draws_are_bytes(grid)
        words, depth, last = np.zeros((stages, ROWS, 1), np.uint32), steps_in_rows(short), np.uint32(0)
        numbers_of_state = first_state(out[0, 0] if out.size > 0 else 0.0)
        for k in range(out.shape[0]):
            # The words of so many steps are made at once, as in sums of matrices. The draw with which a state is
            # finished is that of the first step for every running sum: each is the sum of a vector that ends there.
            if draws and k % depth == 0:
                for stage in range(stages):
                    fill_rows(words[stage], 1, counter, 0, 0, k, stage, seed, short)
                if k == 0:
                    last = lifted(words[stages - 1, 0, 0], draw_shift(0, short))
            step_draws = draws_at(words, word_row(k, short), draw_shift(k, short))
            numbers_of_state = step(numbers_of_state, a[0, k], b[k, 0], step_draws, options)
            out[k, 0] = finish(numbers_of_state, last, options)
        make_nans_one(out)

    return loop


#: Loops by the order; (a, b, out, numbers, sign, pair, place, seed), `place` holding a Counter.
running_loops = {
    name: running_loop(
        step_in_kind(order, KINDS["wide"]), finish_in_kind(order, KINDS["wide"]), order.state, order.stages
    )
    for name, order in ORDERS.items()
}
