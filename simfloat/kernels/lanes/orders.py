"""Sums in non-sequential orders, rounded at every step on lanes (`kernels/lanes/operations.py`).

`a` is (m, k), `b` (k, n) and `out` (m, n), all float32; stacks of such matrices are accepted
(`kernels/sums/stacks.py`). The grid is an array of float64. Every order that is written as a step
(`kernels/sums/orders.py`) has its loops, in tiles that keep their states in registers for a panel of products. Pairwise
sums have a separate loop, for a row and two vectors of columns at a time.

If a result can leave the format in other ways than to the infinity of float32, every result beyond the largest number
is replaced by NaN, which no later step turns into a number again. The loop returns True if this happened; all of its
sums are then invalid.
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
from simfloat.kernels.sums.stacks import make_nans_one, product_count, product_matrices

U32 = np.uint32

#: Products that are added before their sum is stored for its neighbour; and the products of a panel: all of them.
GROUP, ALL = 8, 1 << 40

#: Maximum number of waiting sums: one for every power of two up to the number of products.
WAITING = 42

#: The steps of `LANE_OPERATIONS` that have loops here; nearest even uses the nearest float32 numbers ("plain"). Formats
#: with the overflow of float32 seldom have results beyond their range, so only the usual mode has a loop without this
#: check.
STEPS, UNWATCHED = ("plain", "truncated", "away", "upward", "sticky"), ("plain",)


class OrderRule(NamedTuple):
    """Arguments for the steps of an order."""

    cut: Any
    other_numbers: Any  # the other values of states per column of tiles, kept between panels; or waiting sums
    doubts: Any  # True if a result was too large


def order_operations(operations: LaneOperations, watches: bool) -> tuple[Any, Any, Any]:
    """Return (multiply, add, subtract) in the form that orders call: with a draw, which is ignored, and a rule."""
    round_product, round_sum = operations.multiply, operations.add

    @on_lanes
    def nan_if_too_large(lanes, rule):
        # A NaN, not a flag: the state of an order has several values, each of which may be too large, and a NaN spreads
        # to the sum without further checks. The caller computes all sums again if there was one.
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
    """Set the doubt if a bit pattern is beyond the largest number."""
    if any_lane((image(lanes) << U32(1)) > rule.cut.largest):
        rule.doubts[0] = True


def order_loop(add_panel: Any, depth: int, operations: LaneOperations, others: int) -> Any:
    """Return the loop of an order with these operations; `others` is the number of state values besides the sum."""
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
        # `rests` serves both kinds of loops. It has a row for each row of the result, if states have more values than
        # the sum, or a row for each sum that waits in a pairwise tree.
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
    """Return the loop of an order that is a step without comparisons and without a final step."""
    order_step, others = order.step(*order_operations(operations, watches)), order.state - 1
    # Orders also support random draws, and index them by constants. A tuple of zeros, written out, disappears when the
    # step is inlined.
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
    """Return the loop of pairwise sums; it walks the tree of neighbours as in `kernels/sums/trees.py`."""
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
        # Eight products are added in registers before their sum is put on the stack: seven of the additions then need
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
            # `complete` has a 1 for every neighbour that waits to be added; at the end all bits are 1.
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
    """Return the loops by order and steps; some exist without the check for results that are too large."""
    makers: dict[str, Callable[[LaneOperations, bool], Any]] = {"pairwise": pairwise_loop}
    for name, order in ORDERS.items():
        # Sequential sums have loops with fewer registers (`tiles.py`).
        if order.state > 1 and order.on_rows and order.finish is None:
            makers[name] = partial(stepwise_loop, order)
    return {
        name: {steps: make(LANE_OPERATIONS[steps], False) for steps in UNWATCHED}
        | {f"{steps}_watched": make(WATCHED[steps], True) for steps in STEPS}
        for name, make in makers.items()
    }


#: Loops by order and steps: (a, b, out, numbers, sign) -> True if a result was too large.
loops = _loops()
