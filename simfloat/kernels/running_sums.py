"""The loop that keeps every running sum of an order that is written as a step (`order_steps`).

Such a sum cannot go on from a running sum alone, for its state holds more. `a` is (1, k), `b` is (k, 1), and `out`
(k, 1), all of float64; the first number of `out` is what the sum starts from, and in the end number i is the sum of the
products up to number i, as `stepwise` makes it: the same draws belong to the same steps. Operations are those of the
kind `wide`, which takes any operands, grid and mode, so one loop serves them all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import elements, kernel, spelled_out
from simfloat.kernels.machine import left as lifted
from simfloat.kernels.order_steps import ORDERS
from simfloat.kernels.random import ROWS, are_bytes, counter_of, fill_rows, lift_of, line_of, steps_of_rows
from simfloat.kernels.stack import make_nans_one
from simfloat.kernels.step_kinds import KINDS, StepOptions
from simfloat.kernels.stepwise import finish_of, step_of


def running_loop(step: Any, finish: Any, state: int, stages: int) -> Any:
    """The loop for a step whose state has so many numbers, and which draws from so many stages if the grid says so."""
    first_state = spelled_out("first_of_running", "number", f"(number, {elements('0.0', state - 1)[1:]}")
    draws_at = spelled_out(
        "draws_of_running", "words, line, lift", elements("lifted(words[{}, line, 0], lift)", stages), lifted=lifted
    )

    @kernel
    def loop(a, b, out, numbers, sign, pair, place, seed):
        grid, counter = unpack(numbers), counter_of(place)
        options = StepOptions(grid, grid, sign, pair)
        draws, short = grid.random_step != 0.0, are_bytes(grid)
        words, depth, last = np.zeros((stages, ROWS, 1), np.uint32), steps_of_rows(short), np.uint32(0)
        numbers_of_state = first_state(out[0, 0] if out.size > 0 else 0.0)
        for k in range(out.shape[0]):
            # The words of so many steps are made at once, as in sums of matrices. The draw with which a state is
            # finished is that of the first step for every running sum: each is the sum of a vector that ends there.
            if draws and k % depth == 0:
                for stage in range(stages):
                    fill_rows(words[stage], 1, counter, 0, 0, k, stage, seed, short)
                if k == 0:
                    last = lifted(words[stages - 1, 0, 0], lift_of(0, short))
            step_draws = draws_at(words, line_of(k, short), lift_of(k, short))
            numbers_of_state = step(numbers_of_state, a[0, k], b[k, 0], step_draws, options)
            out[k, 0] = finish(numbers_of_state, last, options)
        make_nans_one(out)

    return loop


#: Loops by the order; (a, b, out, numbers, sign, pair, place, seed), `place` holding a Counter.
loops = {
    name: running_loop(step_of(order, KINDS["wide"]), finish_of(order, KINDS["wide"]), order.state, order.stages)
    for name, order in ORDERS.items()
}
