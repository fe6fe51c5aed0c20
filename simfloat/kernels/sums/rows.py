"""Loops over rows of sums for orders that are written as a step (`orders.py`), and access to stacks of matrices.

**Stacks of matrices** are several products in one call of a loop. `a` is (m, k), `b` (k, n) and `out` (m, n). In a
stack, the matrices of `b` and of `out` are below one another, and so are the matrices of `a`, unless one matrix serves
all products. The number of products follows from the shapes.

**`stepwise_loops`** has a loop for every order and every kind of operations. `a` and `b` have the type of the carrier,
and may be stacks. `out` has the same type and contains the start values, then the sums; every NaN becomes the positive
quiet NaN. A stage of a step takes the draw of the step's k; the final step takes the draw of the last stage at the
first step.

**`running_loops`** has a loop for every order that keeps all partial sums. A sum cannot continue from a partial sum,
because its state has more values. `a` is (1, k), `b` is (k, 1), and `out` (k, 1), all of float64. The first element of
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
from simfloat.kernels.compile.jit import kernel, scalar, scalar_from_text, tuple_text
from simfloat.kernels.elementwise.half import negative, with_one_nan
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
    add_unless_in_doubt,
    dropped_bits,
    first_unsure_column,
    multiply_unless_in_doubt,
    next_unsure_column,
    subtract_unless_in_doubt,
)
from simfloat.kernels.sums.orders import KINDS, KINDS_OF_ONE_FORMAT, ORDERS, Order, StepKind, StepOptions, running_sum


@scalar
def product_count(a, b):
    """Return the number of products in a stack."""
    return b.shape[0] // a.shape[1] if a.shape[1] > 0 else 1


@scalar
def product_matrices(a, b, out, i):
    """Return the matrices of product number i."""
    rows, depth = out.shape[0] // product_count(a, b), a.shape[1]
    top = 0 if a.shape[0] == rows else i * rows
    return a[top : top + rows], b[i * depth : (i + 1) * depth], out[i * rows : (i + 1) * rows]


@scalar
def row_of_left(a, i):
    """Return the row of `a` for row i of `out`."""
    return i if i < a.shape[0] else i % a.shape[0]


@scalar
def top_of_right(a, b, out, i):
    """Return the first row of the matrix of `b` for row i of `out`."""
    products = product_count(a, b)
    return i // (out.shape[0] // products) * a.shape[1] if products > 1 else 0


@scalar
def make_nans_one(out):
    """Replace every NaN among the sums by the positive quiet NaN, so that no later pass has to."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = with_one_nan(out[i, j])


COLUMNS, DEPTH = 512, 16


def subtracting(add: Any) -> Any:
    """Return the subtraction of a kind of operations."""

    @scalar
    def subtract(a, b, draw, options):
        return add(a, negative(b), draw, options)

    return subtract


def step_in_kind(order: Order, kind: StepKind) -> Any:
    """Return the step of an order with a kind of operations."""
    return order.step(kind.product, kind.add, subtracting(kind.add))


def finish_in_kind(order: Order, kind: StepKind) -> Any:
    """Return the function that computes the sum from a state."""
    return running_sum if order.finish is None else order.finish(kind.add)


@scalar
def _put_into_row(row, j, number):
    row[j] = number


@scalar
def _copy(row, new):
    for j in range(row.size):
        row[j] = new[j]


def column_steps(step: Any, state: int, stages: int) -> tuple[Any, Any]:
    """Return (one, all_columns): the step of column j, which returns its new state, and the step of a whole row."""
    state_at = scalar_from_text("state_at", "rows, j", tuple_text("rows[{}][j]", state))
    put = scalar_from_text(
        "put_state", "rows, j, state", tuple_text("put(rows[{}], j, state[{}])", state), put=_put_into_row
    )
    draws_at = scalar_from_text(
        "draws_at", "words, line, j, lift", tuple_text("lifted(words[{}, line, j], lift)", stages), lifted=lifted
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
def _multiply_unless_in_doubt(x, row, draw, options):
    words, out = draw
    doubts, lift, cut = options
    multiply_unless_in_doubt(out, doubts, x, row, row, words, lift, cut)
    return out


@scalar
def _add_unless_in_doubt(a, b, draw, options):
    words, out = draw
    doubts, lift, cut = options
    add_unless_in_doubt(out, doubts, a[0], a, b, words, lift, cut)
    return out


@scalar
def _subtract_unless_in_doubt(a, b, draw, options):
    words, out = draw
    doubts, lift, cut = options
    subtract_unless_in_doubt(out, doubts, a[0], a, b, words, lift, cut)
    return out


def row_steps(order: Order, one: Any) -> Any:
    """Return the step of every column in float32 by likely roundings; if one is uncertain, `one` computes the column
    again.

    Each operation is a separate loop over a row (`likely.py`).
    """
    step = order.step(_multiply_unless_in_doubt, _add_unless_in_doubt, _subtract_unless_in_doubt)
    draws_of = scalar_from_text(
        "draws_of", "words, spare, line, size", tuple_text("(words[{}, line], spare[{}, :size])", order.stages)
    )
    put = scalar_from_text(
        "put_state", "rows, j, state", tuple_text("put(rows[{}], j, state[{}])", order.state), put=_put_into_row
    )
    copy = scalar_from_text("copy_rows", "rows, new", tuple_text("copy(rows[{}], new[{}])", order.state), copy=_copy)

    @scalar
    def all_columns(rows, spare, doubts, x, row, words, line, lift, options):
        likely_options = doubts, lift, dropped_bits(options.grid)
        new = step(rows, x, row, draws_of(words, spare, line, row.size), likely_options)
        j = first_unsure_column(doubts)
        while j < row.size:
            put(new, j, one(j, rows, x, row, words, line, lift, options))
            j = next_unsure_column(doubts, j)
        copy(rows, new)

    return all_columns


def loop(all_columns: Any, finish: Any, state: int, stages: int, drawing: bool | None) -> Any:
    """Return the loop for steps; `drawing` is True for stochastic steps, and None if the grid decides."""
    others = tuple_text("rests[{}, i, left:right]", state - 1), tuple_text("rests[{}, i, j]", state - 1)
    rows_of = scalar_from_text("rows_of", "out, rests, i, left, right", f"(out[i, left:right], {others[0][1:]}")
    state_of = scalar_from_text("state_of", "out, rests, i, j", f"(out[i, j], {others[1][1:]}")
    finishes = finish is not running_sum

    @kernel
    def loop(a, b, out, grid_numbers, sign, pair, place, seed):
        grid, counter = unpack_grid(grid_numbers), unpack_counter(place)
        options = StepOptions(grid, grid, sign, pair)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        columns, depth, terms = COLUMNS, DEPTH, a.shape[1]
        if draws:
            # Stochastic steps take fewer columns, so that 16 rows of words for each stage stay in the first-level
            # cache. Their depth is the number of steps that these words serve.
            columns, depth = RANDOM_COLUMNS, steps_in_rows(short)
        words = empty_rows(WORD, stages * ROWS, columns).reshape(stages, ROWS, columns)
        # `out` contains the partial sums; the other values of states are in `rests`. A step finds all of them in rows,
        # which are vectorised.
        rests, spare = np.zeros((state - 1, *out.shape), out.dtype), empty_rows(out, stages, RANDOM_COLUMNS)
        words[:], doubts = 0, empty_rows(WORD, 1, RANDOM_COLUMNS)[0]
        doubts[:] = NONE_UNSURE
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
                        line, lift, row = word_row(k, short), draw_shift(k, short), b[top + k, left:right]
                        doubted = doubts[: right - left]
                        all_columns(rows, spare, doubted, factors[k], row, words, line, lift, options)
            if finishes:
                for i in range(out.shape[0]):
                    if draws:
                        fill_rows(words[stages - 1], right - left, counter, i, left, 0, stages - 1, seed, short)
                    for j in range(left, right):
                        word = lifted(words[stages - 1, 0, j - left], draw_shift(0, short))
                        out[i, j] = finish(state_of(out, rests, i, j), word, options)
        make_nans_one(out)

    return loop


def make_loops(
    make: Callable[[Order, str, StepKind], Any], more: Mapping[str, StepKind] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """Return the results of `make` by name for every order, every kind of operations, and the kinds in `more`."""
    kinds = {**KINDS_OF_ONE_FORMAT, **more}
    return {order: {kind: make(ORDERS[order], kind, kinds[kind]) for kind in kinds} for order in ORDERS}


def _loop(order: Order, name: str, kind: StepKind) -> Any:
    """Return the loop of an order with a kind of operations."""
    one, all_columns = column_steps(step_in_kind(order, kind), order.state, order.stages)
    if name == "likely" and order.on_rows:
        all_columns = row_steps(order, one)
    return loop(all_columns, finish_in_kind(order, kind), order.state, order.stages, kind.draws)


#: Loops by the order and the kind of operations; (a, b, out, numbers, sign, pair, place, seed). `place` contains a
#: Counter.
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
}
