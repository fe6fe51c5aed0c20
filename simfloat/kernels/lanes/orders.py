"""Sums in other orders than one after the other, rounded at every step on lanes (`kernels/lanes/operations.py`).

`a` is (m, k), `b` (k, n) and `out` (m, n), of float32, and stacks of such matrices are taken (`kernels/sums/rows.py`);
the grid is float64's. Every order that is a step (`kernels/sums/orders.py`) has its loops, in tiles whose states stay
in registers for a panel of products; pairwise sums have a loop of their own, for a row and two vectors of columns at a
time.

Where a number may leave the format otherwise than to float32's infinity, what is too large becomes NaN, which no later
step makes a number again; the loop returns whether it met one, and nothing of its sums is of use then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.compile.jit import kernel, on_lanes, scalar_from_text, tuple_text
from simfloat.kernels.lanes.lanes import NAN, any_lane, choose, image, load, number, quiet, store, width
from simfloat.kernels.lanes.operations import LANE_OPERATIONS, WATCHED, LaneOperations
from simfloat.kernels.lanes.rounding import restore_mode, set_mode
from simfloat.kernels.lanes.tiles import DEPTH, TileSteps, row_adder, still_nothing, tile_loop, watch_nothing
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import one_nan
from simfloat.kernels.sums.orders import ORDERS, Order
from simfloat.kernels.sums.rows import make_nans_one, product_count, product_matrices

U32 = np.uint32

#: Products that are added before their sum waits for its neighbour; and how many are in a panel: all of them.
GROUP, ALL = 8, 1 << 40

#: Sums that may wait: one for every power of two up to the number of products.
WAITING = 42

#: Of the steps of `LANE_OPERATIONS`, those that have loops here: nearest even takes float32's own nearest numbers.
#: What overflows as float32 does is seldom too large, so only the usual mode has a loop that does not look.
STEPS, UNWATCHED = ("plain", "truncated", "away", "upward", "sticky"), ("plain",)


class OrderRule(NamedTuple):
    """What the steps of an order are told."""

    cut: Any
    other_numbers: Any  # the states' other numbers, of a column of tiles, from one panel to the next; or sums that wait
    doubts: Any  # whether a number was too large


def order_operations(operations: LaneOperations, watches: bool) -> tuple[Any, Any, Any]:
    """(multiply, add, subtract) as orders call them, with a draw that is not read, and the rule as options."""
    round_product, round_sum = operations.multiply, operations.add

    @on_lanes
    def nan_if_too_large(lanes, rule):
        # A NaN here, instead of a flag: the state of an order has several numbers, of which any may be too large, and a
        # NaN reaches the sum by itself. The caller makes all sums anew if one was met.
        result = image(lanes)
        return number(choose((result << U32(1)) > rule.cut.largest, NAN, result)) if watches else lanes

    @on_lanes
    def multiply(x, lanes, draw, rule):
        return nan_if_too_large(round_product(x, lanes, rule.cut), rule)

    @on_lanes
    def add(a, b, draw, rule):
        return nan_if_too_large(round_sum(a, b, rule.cut), rule)

    @on_lanes
    def subtract(a, b, draw, rule):
        return nan_if_too_large(round_sum(a, number(image(b) ^ U32(rule.cut.sign)), rule.cut), rule)

    return multiply, add, subtract


@on_lanes
def _note_too_large(lanes, rule):
    """See whether there is an image beyond the largest number's."""
    if any_lane((image(lanes) << U32(1)) > rule.cut.largest):
        rule.doubts[0] = True


def order_loop(add_panel: Any, depth: int, operations: LaneOperations, others: int) -> Any:
    """The loop of an order whose states have so many numbers beside the sum, made of these operations."""
    mode, cut_of = np.int32(operations.mode), operations.make_cut

    @on_lanes
    def add_in_mode(a, first, count, panel, out, left, rule):
        if first == 0:
            rule.other_numbers[:] = np.float32(0.0) * rule.cut.scale  # with its sign
        before = set_mode(mode)
        add_panel(a, first, count, panel, out, left, rule)
        restore_mode(before)

    add_products = tile_loop(add_in_mode, quiet, depth)

    @kernel
    def loop(a, b, out, grid_numbers, sign):
        cut, products = cut_of(unpack_grid(grid_numbers), sign), product_count(a, b)
        # `rests` serves both kinds of loops: a row for each row of the result where states have more numbers than the
        # sum, or a row for each sum that waits in a pairwise tree.
        rows = max(out.shape[0] // max(products, 1), WAITING)
        rests = np.zeros((others, rows, 2 * width(out)), np.float32)
        rule = OrderRule(cut, rests, np.zeros(1, np.bool_))
        scaled = np.empty(a.shape, np.float32)
        for i in range(a.shape[0]):
            for k in range(a.shape[1]):
                scaled[i, k] = one_nan(a[i, k]) * cut.scale
        for i in range(products if a.shape[1] > 0 else 0):
            factors, terms, sums = product_matrices(scaled, b, out, i)
            add_products(factors, terms, sums, rule)
        make_nans_one(out)
        return rule.doubts[0]

    return loop


@on_lanes
def _store_lanes(row, i, at, lanes):
    store(row, i, at, lanes)


def stepwise_loop(order: Order, operations: LaneOperations, watches: bool) -> Any:
    """The loop of an order that is a step without a comparison, and needs nothing done in the end."""
    order_step, others = order.step(*order_operations(operations, watches)), order.state - 1
    # Orders are written for random draws too, and index them by constants. A tuple of zeros, spelled out, disappears
    # when the step is inlined.
    no_draws = scalar_from_text("no_draws", "", tuple_text("0", order.stages))
    rests = tuple_text("load(rests[{}], i, at)", others)
    state_of = scalar_from_text("state_of", "total, rests, i, at", f"(total, {rests[1:]}", load=load)
    put_rests = tuple_text("put(rests[{}], i, at, state[1 + {}])", others)
    keep = scalar_from_text("keep_rests", "rests, i, at, state", put_rests, put=_store_lanes)

    @on_lanes
    def step(x, lanes, state, rule):
        return order_step(state, x, lanes, no_draws(), rule)

    @on_lanes
    def begin(out, i, left, at, rule):
        return state_of(quiet(load(out, i, left)) * rule.cut.scale, rule.other_numbers, i, at)

    @on_lanes
    def finish(out, i, left, right, one, two, watched, rule):
        keep(rule.other_numbers, i, 0, one)
        keep(rule.other_numbers, i, width(out), two)
        store(out, i, left, one[0] * rule.cut.unscale)
        store(out, i, right, two[0] * rule.cut.unscale)
        if watches:
            _note_too_large(one[0], rule)
            _note_too_large(two[0], rule)

    rows = row_adder(TileSteps(step, begin, watch_nothing, still_nothing, finish))
    return order_loop(rows, DEPTH, operations, others)


def pairwise_loop(operations: LaneOperations, watches: bool) -> Any:
    """The loop of pairwise sums, a tree of neighbours that is walked as in `kernels/sums/trees.py`."""
    multiply, add, _ = order_operations(operations, watches)

    @on_lanes
    def four(factors, k, panel, at, rule):
        w, x = load(panel, k, at), load(panel, k + 1, at)
        y, z = load(panel, k + 2, at), load(panel, k + 3, at)
        one = add(multiply(factors[k], w, 0, rule), multiply(factors[k + 1], x, 0, rule), 0, rule)
        two = add(multiply(factors[k + 2], y, 0, rule), multiply(factors[k + 3], z, 0, rule), 0, rule)
        return add(one, two, 0, rule)

    @on_lanes
    def eight(factors, k, panel, at, rule):
        return add(four(factors, k, panel, at, rule), four(factors, k + 4, panel, at, rule), 0, rule)

    @on_lanes
    def row(factors, panel, waiting, out, i, left, rule):
        right, terms, depth, k = left + width(out), factors.size, 0, 0
        # Eight products are added in registers before a sum is put on the stack: seven of its additions then need
        # neither load nor store.
        grouped = terms - terms % GROUP
        one = two = quiet(load(panel, 0, 0))
        while k < terms:
            if k < grouped:
                one, two = eight(factors, k, panel, 0, rule), eight(factors, k, panel, width(out), rule)
                complete, k = k // GROUP, k + GROUP
            else:
                one = multiply(factors[k], load(panel, k, 0), 0, rule)
                two = multiply(factors[k], load(panel, k, width(out)), 0, rule)
                complete, k = k - grouped, k + 1
            # `complete` has a 1 for every neighbour that waits to be added: all of them at the end.
            if k == terms:
                complete = (1 << depth) - 1
            while complete & 1:
                depth, complete = depth - 1, complete >> 1
                one = add(load(waiting, depth, 0), one, 0, rule)
                two = add(load(waiting, depth, width(out)), two, 0, rule)
            store(waiting, depth, 0, one)
            store(waiting, depth, width(out), two)
            depth += 1
        store(out, i, left, one * rule.cut.unscale)
        store(out, i, right, two * rule.cut.unscale)
        if watches:
            _note_too_large(one, rule)
            _note_too_large(two, rule)

    @on_lanes
    def rows(a, first, count, panel, out, left, rule):
        for i in range(out.shape[0]):
            row(a[i], panel, rule.other_numbers[0], out, i, left, rule)

    return order_loop(rows, ALL, operations, 1)


def _loops() -> dict[str, dict[str, Any]]:
    """The loops of every order and its steps, and of some without a look at what is too large."""
    makers: dict[str, Callable[[LaneOperations, bool], Any]] = {"pairwise": pairwise_loop}
    for name, order in ORDERS.items():
        if order.on_rows and order.finish is None:
            makers[name] = partial(stepwise_loop, order)
    return {
        name: {steps: make(LANE_OPERATIONS[steps], False) for steps in UNWATCHED}
        | {f"{steps}_watched": make(WATCHED[steps], True) for steps in STEPS}
        for name, make in makers.items()
    }


#: Loops by order and steps: (a, b, out, numbers, sign) -> whether a number was too large.
loops = _loops()
