"""The loop of every order of summation that is written as a step (`order_steps`), for every kind of operations.

`a` is (m, k), `b` is (k, n), both of the carrier's type; `out` (m, n) of that type holds what the sums start from, and
in the end the sums, every NaN of which becomes the one NaN. Stacks of matrices are taken, too (`stack`). A stage of a
step draws at the step's k; what finishes a sum draws from the last stage, at the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from simfloat.kernels.grid import unpack
from simfloat.kernels.halves import negative
from simfloat.kernels.jit import elements, kernel, scalar, spelled_out
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
from simfloat.kernels.order_steps import ORDERS, Order, running_sum
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
from simfloat.kernels.stack import make_nans_one, row_of_left, top_of_right
from simfloat.kernels.step_kinds import KINDS_OF_ONE_FORMAT, StepKind, StepOptions

COLUMNS, DEPTH = 512, 16


def subtracting(add: Any) -> Any:
    """The difference of a kind of operations."""

    @scalar
    def subtract(a, b, draw, options):
        return add(a, negative(b), draw, options)

    return subtract


def step_of(order: Order, kind: StepKind) -> Any:
    """The step of an order in a kind of operations."""
    return order.step(kind.product, kind.add, subtracting(kind.add))


def finish_of(order: Order, kind: StepKind) -> Any:
    """What makes a sum of a state."""
    return running_sum if order.finish is None else order.finish(kind.add)


@scalar
def _put(row, j, number):
    row[j] = number


@scalar
def _copy(row, new):
    for j in range(row.size):
        row[j] = new[j]


def on_numbers(step: Any, state: int, stages: int) -> tuple[Any, Any]:
    """(one, all_columns): the step of column j, which returns its new state, and of every column of a row of sums."""
    state_at = spelled_out("state_at", "rows, j", elements("rows[{}][j]", state))
    put = spelled_out("put_state", "rows, j, state", elements("put(rows[{}], j, state[{}])", state), put=_put)
    draws_at = spelled_out(
        "draws_at", "words, line, j, lift", elements("lifted(words[{}, line, j], lift)", stages), lifted=lifted
    )

    @scalar
    def one(j, rows, x, row, words, line, lift, options):
        return step(state_at(rows, j), x, row[j], draws_at(words, line, j, lift), options)

    @scalar
    def all_columns(rows, spare, doubts, x, row, words, line, lift, options):
        for j in range(row.size):
            put(rows, j, one(j, rows, x, row, words, line, lift, options))

    return one, all_columns


@scalar
def _likely_product(x, row, draw, options):
    words, out = draw
    doubts, lift, cut = options
    likely_products(out, doubts, x, row, row, words, lift, cut)
    return out


@scalar
def _likely_sum(a, b, draw, options):
    words, out = draw
    doubts, lift, cut = options
    likely_sums(out, doubts, a[0], a, b, words, lift, cut)
    return out


@scalar
def _likely_difference(a, b, draw, options):
    words, out = draw
    doubts, lift, cut = options
    likely_differences(out, doubts, a[0], a, b, words, lift, cut)
    return out


def on_rows(order: Order, one: Any) -> Any:
    """The step of every column in float32 by what is likely; where that is not certain, it is made again by `one`.

    Each operation is a loop over a row of its own (`likely`).
    """
    step = order.step(_likely_product, _likely_sum, _likely_difference)
    draws_of = spelled_out(
        "draws_of", "words, spare, line, size", elements("(words[{}, line], spare[{}, :size])", order.stages)
    )
    put = spelled_out("put_state", "rows, j, state", elements("put(rows[{}], j, state[{}])", order.state), put=_put)
    copy = spelled_out("copy_rows", "rows, new", elements("copy(rows[{}], new[{}])", order.state), copy=_copy)

    @scalar
    def all_columns(rows, spare, doubts, x, row, words, line, lift, options):
        likely_options = doubts, lift, cut_of(options.grid)
        new = step(rows, x, row, draws_of(words, spare, line, row.size), likely_options)
        j = first_doubt(doubts)
        while j < row.size:
            put(new, j, one(j, rows, x, row, words, line, lift, options))
            j = next_doubt(doubts, j)
        copy(rows, new)

    return all_columns


def loop(all_columns: Any, finish: Any, state: int, stages: int, drawing: bool | None) -> Any:
    """The loop for steps that draw, or not, or (None) as the grid says."""
    others = elements("rests[{}, i, left:right]", state - 1), elements("rests[{}, i, j]", state - 1)
    rows_of = spelled_out("rows_of", "out, rests, i, left, right", f"(out[i, left:right], {others[0][1:]}")
    state_of = spelled_out("state_of", "out, rests, i, j", f"(out[i, j], {others[1][1:]}")
    finishes = finish is not running_sum

    @kernel
    def loop(a, b, out, numbers, sign, pair, place, seed):
        grid, counter = unpack(numbers), counter_of(place)
        options = StepOptions(grid, grid, sign, pair)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), are_bytes(grid)
        columns, depth, terms = COLUMNS, DEPTH, a.shape[1]
        if draws:
            # Fewer columns where steps draw, so that 16 rows of words for each stage stay in the first-level cache; and
            # as many steps as those words serve.
            columns, depth = RANDOM_COLUMNS, steps_of_rows(short)
        words = rows_like(WORD, stages * ROWS, columns).reshape(stages, ROWS, columns)
        # The sum itself stands in `out`, the state's other numbers here: a step finds all of them in rows, which
        # vectorise.
        rests, spare = np.zeros((state - 1, *out.shape), out.dtype), rows_like(out, stages, RANDOM_COLUMNS)
        words[:], doubts = 0, rows_like(WORD, 1, RANDOM_COLUMNS)[0]
        doubts[:] = NO_DOUBT
        for left in range(0, out.shape[1], columns):
            right = min(left + columns, out.shape[1])
            for first in range(0, terms, depth):
                for i in range(out.shape[0]):
                    rows, top = rows_of(out, rests, i, left, right), top_of_right(a, b, out, i)
                    factors = a[row_of_left(a, i)]
                    if draws:
                        for stage in range(stages):
                            fill_rows(words[stage], right - left, counter, i, left, first, stage, seed, short)
                    for k in range(first, min(first + depth, terms)):
                        line, lift, row = line_of(k, short), lift_of(k, short), b[top + k, left:right]
                        doubted = doubts[: right - left]
                        all_columns(rows, spare, doubted, factors[k], row, words, line, lift, options)
            if finishes:
                for i in range(out.shape[0]):
                    if draws:
                        fill_rows(words[stages - 1], right - left, counter, i, left, 0, stages - 1, seed, short)
                    for j in range(left, right):
                        word = lifted(words[stages - 1, 0, j - left], lift_of(0, short))
                        out[i, j] = finish(state_of(out, rests, i, j), word, options)
        make_nans_one(out)

    return loop


def loops_of(
    make: Callable[[Order, str, StepKind], Any], more: Mapping[str, StepKind] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """What `make` gives for every order and every kind of operations, and some more, by their names."""
    kinds = {**KINDS_OF_ONE_FORMAT, **more}
    return {order: {kind: make(ORDERS[order], kind, kinds[kind]) for kind in kinds} for order in ORDERS}


def _loop(order: Order, name: str, kind: StepKind) -> Any:
    """The loop of an order in a kind of operations."""
    one, all_columns = on_numbers(step_of(order, kind), order.state, order.stages)
    if name == "likely" and order.on_rows:
        all_columns = on_rows(order, one)
    return loop(all_columns, finish_of(order, kind), order.state, order.stages, kind.draws)


#: Loops by the order and the kind of operations; (a, b, out, numbers, sign, pair, place, seed), `place` holding a
#: Counter.
loops = loops_of(_loop)
