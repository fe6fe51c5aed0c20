"""Loops over rows of sums for orders that are written as a step (`orders.py`).

**`stepwise_loops`** has a loop for every order and every kind of operations. `a` and `b` have the type of the carrier,
and may be stacks. `out` has the same type and contains the start values, then the sums; every NaN becomes the positive
quiet NaN. The innermost loop runs over columns, which have independent sums, so LLVM vectorises it. A stage of a step
takes the draw of the step's k; the final step takes the draw of the last stage at the first step. A fused sequential
sum in hardware arithmetic has a loop of its own (`kernels/lanes/tiles.py`).

**`running_loops`** has a loop for every order that keeps all partial sums, if a sum cannot continue from a partial sum.
`out` is the start value; at the end element i is the sum of the products 0 to i, as `stepwise_loops` compute it, with
the same draws at the same steps. The operations are of the kind `wide`, which accepts any operands, grid and mode, so
one loop serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from simfloat.kernels.compile.intrinsics import shift_left as lifted
from simfloat.kernels.compile.jit import copy_into, kernel, scalar, scalar_from_text, tuple_text
from simfloat.kernels.elementwise.half import negative, with_one_nan
from simfloat.kernels.lanes.tiles import chains
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.random import (
    RANDOM_COLUMNS,
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
from simfloat.kernels.sums.likely import (
    NONE_UNSURE,
    SURE_FROM,
    add_unless_in_doubt,
    dropped_bits,
    first_unsure_column,
    fuse_unless_in_doubt,
    fused_row_and_least_doubt,
    multiply_unless_in_doubt,
    next_unsure_column,
    subtract_unless_in_doubt,
)
from simfloat.kernels.sums.orders import KINDS, ORDERS, Order, StepKind, StepOptions, kinds_of, running_sum
from simfloat.kernels.sums.stacks import make_nans_one, product_count, product_matrices, row_of_left, top_of_right

COLUMNS, DEPTH = 512, 16


def subtracting(add: Any) -> Any:
    """Return the subtraction of a kind of operations."""

    @scalar
    def subtract(a, b, draw, options):
        return add(a, negative(b), draw, options)

    return subtract


def adding_product(add: Any) -> Any:
    """Return the fused multiply-add of a kind of operations for products that the carrier represents exactly."""

    @scalar
    def fuse(total, x, y, draw, options):
        return add(total, x * y, draw, options)

    return fuse


def step_in_kind(order: Order, kind: StepKind) -> Any:
    """Return the step of an order with a kind of operations."""
    if order.fuses:
        return order.step(kind.fuse or adding_product(kind.add))
    return order.step(kind.product, kind.add, subtracting(kind.add))


def finish_in_kind(order: Order, kind: StepKind) -> Any:
    """Return the function that computes the sum from a state."""
    return running_sum if order.finish is None else order.finish(kind.add)


@scalar
def _put_into_row(row, j, number):
    row[j] = number


def putting(state: int) -> Any:
    """Return the function that writes the state of column j to rows."""
    return scalar_from_text(
        "put_state", "rows, j, state", tuple_text("put(rows[{}], j, state[{}])", state), put=_put_into_row
    )


def deterministic_loop(step: Any, finish: Any, state: int, stages: int) -> Any:
    """Return the loop for deterministic steps. Steps of a sum wait for each other, so COLUMNS sums take turns."""
    at_column, columns = tuple_text("rows[{}][j]", state), tuple_text("rests[{}, i, left:right]", state - 1)
    one = scalar_from_text(
        f"one(step={step.__name__})",
        "j, rows, x, y, options",
        f"step({at_column}, x, y, {tuple_text('0.0', stages)}, options)",
        step=step,
    )
    # `totals` contains the partial sums; the other values of states are in `rests`.
    rows_of = scalar_from_text("rows_of", "totals, rests, i, left, right", f"(totals[i, left:right], {columns[1:]}")
    rests_of = scalar_from_text("rests_of", "x", "zeros(x)" if state > 1 else "x", zeros=zeros_of(state - 1))
    put, finishes = putting(state), finish is not running_sum
    state_at = scalar_from_text("state_at", "rows, j", at_column)

    @kernel
    def loop(a, b, out, grid_numbers, product_numbers, sign):
        options = StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), sign, False)
        for number in range(product_count(a, b)):
            factors, terms, totals = product_matrices(a, b, out, number)
            rests = rests_of(totals)
            for left in range(0, totals.shape[1], COLUMNS):
                right = min(left + COLUMNS, totals.shape[1])
                # Steps of one sum wait for each other, so COLUMNS sums are computed in turn, from several rows if rows
                # are short. DEPTH steps of a row then read its sums from the first-level cache, and a block of `b` is
                # used for every row while it stays in the cache. Taking two steps or two rows at a time was slower.
                height = COLUMNS // (right - left)
                for first in range(0, factors.shape[1], DEPTH):
                    for top in range(0, totals.shape[0], height):
                        for k in range(first, min(first + DEPTH, factors.shape[1])):
                            for i in range(top, min(top + height, totals.shape[0])):
                                x, row, rows = (
                                    factors[i, k],
                                    terms[k, left:right],
                                    rows_of(totals, rests, i, left, right),
                                )
                                for j in range(row.size):
                                    put(rows, j, one(j, rows, x, row[j], options))
                if finishes:
                    for i in range(totals.shape[0]):
                        rows = rows_of(totals, rests, i, left, right)
                        for j in range(right - left):
                            totals[i, left + j] = finish(state_at(rows, j), 0.0, options)
            make_nans_one(totals)

    return loop


def zeros_of(count: int) -> Any:
    """Return the function that returns `count` matrices of zeros like a matrix."""

    @scalar
    def zeros(x):
        return np.zeros((count, *x.shape), x.dtype)

    return zeros


def column_steps(step: Any, state: int, stages: int) -> tuple[Any, Any]:
    """Return (one, all_columns): the step of column j, which returns its new state, and the step of a whole row.

    The step of a row returns the new rows, in the first rows of `space`.
    """
    draws = tuple_text("lifted(words[{}, line, j], lift)", stages)
    one = scalar_from_text(
        f"one(step={step.__name__})",
        "j, rows, x, row, words, line, lift, options",
        f"step({tuple_text('rows[{}][j]', state)}, x, row[j], {draws}, options)",
        step=step,
        lifted=lifted,
    )
    put, rows_in = putting(state), rows_in_space(state)

    @scalar
    def all_columns(rows, space, doubts, x, row, words, line, lift, options):
        new = rows_in(space, row.size)
        for j in range(row.size):
            put(new, j, one(j, rows, x, row, words, line, lift, options))
        return new

    return one, all_columns


def rows_in_space(state: int) -> Any:
    """Return the function that returns the first rows of a matrix, of a length, as the rows of a state."""
    return scalar_from_text("rows_in", "space, size", tuple_text("space[{}, :size]", state))


@scalar
def _multiply_unless_in_doubt(x, row, draw, options):
    words, out = draw
    doubts, lift, _, cut = options
    multiply_unless_in_doubt(out, doubts, x, row, row, words, lift, cut)
    return out


@scalar
def _add_unless_in_doubt(a, b, draw, options):
    words, out = draw
    doubts, lift, cut, _ = options
    add_unless_in_doubt(out, doubts, a[0], a, b, words, lift, cut)
    return out


@scalar
def _subtract_unless_in_doubt(a, b, draw, options):
    words, out = draw
    doubts, lift, cut, _ = options
    subtract_unless_in_doubt(out, doubts, a[0], a, b, words, lift, cut)
    return out


def row_steps(order: Order, one: Any) -> Any:
    """Return the step of every column in float32 by likely roundings; if one is uncertain, `one` computes the column
    again.

    Each operation is a separate loop over a row (`likely.py`), and writes to a separate row of `space`.
    """
    step = order.step(_multiply_unless_in_doubt, _add_unless_in_doubt, _subtract_unless_in_doubt)
    draws_of = scalar_from_text(
        "draws_of", "words, space, line, size", tuple_text("(words[{}, line], space[{}, :size])", order.stages)
    )
    put = putting(order.state)

    @scalar
    def all_columns(rows, space, doubts, x, row, words, line, lift, options):
        likely_options = doubts, lift, dropped_bits(options.grid), dropped_bits(options.products)
        new = step(rows, x, row, draws_of(words, space, line, row.size), likely_options)
        j = first_unsure_column(doubts)
        while j < row.size:
            put(new, j, one(j, rows, x, row, words, line, lift, options))
            j = next_unsure_column(doubts, j)
        return new

    return all_columns


def fused_row_steps(one: Any) -> Any:
    """Return this step for a fused multiply-add. Its first attempt does not write a doubt for each column."""
    put, rows_in = putting(1), rows_in_space(1)

    @scalar
    def all_columns(rows, space, doubts, x, row, words, line, lift, options):
        cut, new = dropped_bits(options.grid), rows_in(space, row.size)
        # One or two roundings of 2^12 are in doubt in FP16, and of 2^15 in BF16, so most rows of 128 columns have none.
        # If a row has one, it is computed again with its doubts.
        if fused_row_and_least_doubt(new[0], x, row, rows[0], words[0, line], lift, cut) < SURE_FROM:
            fuse_unless_in_doubt(new[0], doubts, x, row, rows[0], words[0, line], lift, cut)
            j = first_unsure_column(doubts)
            while j < row.size:
                put(new, j, one(j, rows, x, row, words, line, lift, options))
                j = next_unsure_column(doubts, j)
        return new

    return all_columns


def stochastic_loop(all_columns: Any, finish: Any, state: int, stages: int, drawing: bool | None) -> Any:
    """Return the loop for steps that may be stochastic; `drawing` is None if the grid decides.

    All steps of a row take place in two matrices of rows, by turns.
    """
    spare, finishes, rows_in = max(state, stages), finish is not running_sum, rows_in_space(state)
    state_at = scalar_from_text("state_at", "rows, j", tuple_text("rows[{}][j]", state))

    @kernel
    def loop(a, b, out, grid_numbers, product_numbers, sign, pair, place, seed):
        options = StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), sign, pair)
        counter, short, terms = unpack_counter(place), draws_are_bytes(options.grid), a.shape[1]
        draws = drawing or options.grid.random_step != 0.0
        words = empty_rows(WORD, stages * ROWS, RANDOM_COLUMNS).reshape(stages, ROWS, RANDOM_COLUMNS)
        here, there = empty_rows(out, spare, RANDOM_COLUMNS), empty_rows(out, spare, RANDOM_COLUMNS)
        words[:], doubts = 0, empty_rows(WORD, 1, RANDOM_COLUMNS)[0]
        doubts[:] = NONE_UNSURE
        for left in range(0, out.shape[1], RANDOM_COLUMNS):
            columns = min(RANDOM_COLUMNS, out.shape[1] - left)
            right = left + columns
            for i in range(out.shape[0]):
                factors, top, rows = a[row_of_left(a, i)], top_of_right(a, b, out, i), rows_in(here, columns)
                here[:state] = 0
                copy_into(here[0], out[i, left:right])
                for first in range(0, terms, steps_in_rows(short)):
                    if draws:
                        for stage in range(stages):
                            fill_rows(words[stage], columns, counter, i, left, first, stage, seed, short)
                    for k in range(first, min(first + steps_in_rows(short), terms)):
                        line, lift, row = word_row(k, short), draw_shift(k, short), b[top + k, left:right]
                        doubted, x = doubts[:columns], factors[k]
                        rows = all_columns(rows, there, doubted, x, row, words, line, lift, options)
                        here, there = there, here
                if finishes and draws:
                    fill_rows(words[stages - 1], columns, counter, i, left, 0, stages - 1, seed, short)
                for j in range(columns):
                    word = lifted(words[stages - 1, 0, j], draw_shift(0, short))
                    out[i, left + j] = with_one_nan(finish(state_at(rows, j), word, options))

    return loop


def make_loops(
    make: Callable[[Order, str, StepKind], Any], more: Mapping[str, StepKind] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """Return the results of `make` by name for every order, every kind of operations, and the kinds in `more`."""
    return {
        name: {kind: make(order, kind, functions) for kind, functions in {**kinds_of(order), **more}.items()}
        for name, order in ORDERS.items()
    }


def _loop(order: Order, name: str, kind: StepKind) -> Any:
    """Return the loop of an order with a kind of operations."""
    if name in chains and order.fuses:
        return chains[name]
    step, finish = step_in_kind(order, kind), finish_in_kind(order, kind)
    if kind.draws is False:
        return deterministic_loop(step, finish, order.state, order.stages)
    one, all_columns = column_steps(step, order.state, order.stages)
    if name == "likely" and order.on_rows:
        all_columns = fused_row_steps(one) if order.fuses else row_steps(order, one)
    return stochastic_loop(all_columns, finish, order.state, order.stages, kind.draws)


#: Loops by the order and the kind of operations; (a, b, out, numbers, product_numbers, sign) for deterministic kinds,
#: also (..., pair, place, seed) for the others. `place` contains a Counter.
stepwise_loops = make_loops(_loop)


def running_loop(step: Any, finish: Any, state: int, stages: int) -> Any:
    """Return the loop for a step with `state` values in its state, and with `stages` stages in stochastic modes."""
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
            # Words for `depth` steps are computed at once, as in sums of matrices. The final step takes the draw of the
            # first step for every partial sum, because each partial sum is the sum of a vector that ends there.
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


#: Loops by the order; (a, b, out, numbers, sign, pair, place, seed). `place` contains a Counter.
running_loops = {
    name: running_loop(
        step_in_kind(order, KINDS["wide"]), finish_in_kind(order, KINDS["wide"]), order.state, order.stages
    )
    for name, order in ORDERS.items()
    if order.state > 1
}
