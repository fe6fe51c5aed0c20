"""Sums rounded at every step on lanes (`lane_steps`), in tiles that stay in registers (`register_tiles`).

`a` is (m, k), `b` (k, n) and `out` (m, n), of float32, and stacks of such matrices are taken (`stack`); the grids are
float64's. Where a sum may leave the format otherwise than to float32's infinity, the largest image is followed, and
rows of a tile in which one was too large, or none of a number, are summed again in float64, which needs to know
nothing of the operands either: float64 holds their products, and rounds a sum to odd.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.jit import kernel, on_lanes, out_of_line
from simfloat.kernels.lane_images import NAN, any_lane, choose, image, larger, number, quiet
from simfloat.kernels.lane_rounding import restore_mode, set_mode
from simfloat.kernels.lane_steps import ANCHORED, LANE_OPERATIONS, WATCHED, WHOLE_OPERATIONS, LaneOperations
from simfloat.kernels.lanes import load, store
from simfloat.kernels.plain import one_nan
from simfloat.kernels.register_tiles import TileSteps, row_adder, still_nothing, tile_loop, watch_nothing
from simfloat.kernels.stack import make_nans_one, product_count, product_matrices
from simfloat.kernels.step_kinds import KINDS, StepKind, StepOptions, native_product

U32 = np.uint32

#: The kind of float64's steps by the steps of the lanes.
CAREFUL = {"nearest": "odd", "plain": "odd", "sticky": "sticky"}

#: The steps that have a loop without a look at the largest image; that have one for rounded products, which others are
#: as quick for, or nearly; and that have both.
UNWATCHED = ("truncated", "away", "upward", "nearest", "plain")
UNFUSED = ("truncated", "away", "upward", "sticky", "plain")
UNFUSED_UNWATCHED = ("plain",)


class Rule(NamedTuple):
    """What the steps of a tile are told."""

    cut: Any  # of sums
    products: Any  # of products, where they are rounded
    doubts: Any  # the rows in which an image was too large


def fused_step(operations: LaneOperations) -> Any:
    """A sum and an exact product, rounded once."""
    fma = operations.fma

    @on_lanes
    def step(x, lanes, sums, rule):
        return fma(x, lanes, sums, rule.cut)

    return step


def unfused_step(operations: LaneOperations) -> Any:
    """A product that is rounded, and a sum that is."""
    multiply, add = operations.multiply, operations.add

    @on_lanes
    def step(x, lanes, sums, rule):
        return add(sums, multiply(x, lanes, rule.products), rule.cut)

    return step


def watched_unfused_step(operations: LaneOperations) -> Any:
    """A product that is rounded, and a sum that is; a product beyond its format makes the sum NaN, which is noticed."""
    multiply, add = operations.multiply, operations.add

    @on_lanes
    def step(x, lanes, sums, rule):
        # A product beyond its format could come back inside by a later sum, and the largest sum would not show it. As a
        # NaN it stays in the sum, whose image is then larger than any number's.
        term = image(multiply(x, lanes, rule.products))
        checked = choose((term << U32(1)) > rule.products.largest, NAN, term)
        return add(sums, number(checked), rule.cut)

    return step


@on_lanes
def _load_scaled_sums(out, i, left, at, rule):
    return quiet(load(out, i, left)) * rule.cut.scale


@on_lanes
def _store_unscaled_sums(out, i, left, right, one, two, largest, rule):
    store(out, i, left, one * rule.cut.unscale)
    store(out, i, right, two * rule.cut.unscale)


@on_lanes
def _no_image(sums):
    return image(sums) & U32(0)


@on_lanes
def _larger_image(largest, sums, rule):
    """The largest image so far, without its sign."""
    # Shifted left by one the sign is gone, and images compare as magnitudes do, NaN above all: one shift and one
    # maximum a step, where a comparison and a branch would wait for the sum.
    return larger(largest, image(sums) << U32(1))


@on_lanes
def _store_if_inside(out, i, left, right, one, two, largest, rule):
    # The row's old sums are still in `out`, so the careful row starts from them. Nothing is written where one lane is
    # too large: overflow is rare, and a test for every lane would cost each step of all others.
    if any_lane(largest > rule.cut.largest):
        rule.doubts[i] = True
    else:
        _store_unscaled_sums(out, i, left, right, one, two, largest, rule)


def careful_row(product: Any, add: Any) -> Any:
    """What adds to a row of `out` the products of factors, which are scaled, with the panel, in float64."""

    @out_of_line
    def add_row_in_float64(factors, unscale, panel, sums, grid_numbers, product_numbers, sign):
        options = StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), sign, False)
        for k in range(factors.size):
            # In float64 any format's exponents have room, so here neither sums nor factors are scaled. This is slow,
            # and is the definition of the step: what the lanes cannot decide is decided here.
            x, row = np.float64(factors[k] * unscale), panel[k]
            for j in range(sums.size):
                term = product(x, np.float64(row[j]), 0.0, options)
                sums[j] = np.float32(add(np.float64(sums[j]), term, 0.0, options))

    return add_row_in_float64


def rounded_tile_loop(operations: LaneOperations, step: Any, again: Any, watches: bool) -> Any:
    """The loop of a step; `watches` if sums may leave the format otherwise than by float32's own overflow."""
    watching = (
        (_no_image, _larger_image, _store_if_inside)
        if watches
        else (watch_nothing, still_nothing, _store_unscaled_sums)
    )
    rows, mode = row_adder(TileSteps(step, _load_scaled_sums, *watching)), np.int32(operations.mode)
    cut_of = operations.make_cut

    @on_lanes
    def add_panel(a, first, count, panel, out, left, rule_and_numbers):
        rule, grid_numbers, product_numbers, sign = rule_and_numbers
        before = set_mode(mode)
        rows(a, first, count, panel, out, left, rule)
        restore_mode(before)
        if watches:
            for i in range(out.shape[0]):
                if rule.doubts[i]:
                    rule.doubts[i] = False
                    factors, sums = a[i, first : first + count], out[i, left : left + panel.shape[1]]
                    again(factors, rule.cut.unscale, panel, sums, grid_numbers, product_numbers, sign)

    add_products = tile_loop(add_panel, quiet)

    @kernel
    def loop(a, b, out, grid_numbers, product_numbers, sign):
        cut = cut_of(unpack_grid(grid_numbers), sign)
        rule = Rule(cut, cut_of(unpack_grid(product_numbers), sign), np.zeros(out.shape[0], np.bool_))
        scaled = np.empty(a.shape, np.float32)
        for i in range(a.shape[0]):
            for k in range(a.shape[1]):
                # By a power of two, so exact, and with it the format's smallest normal number becomes float32's:
                # underflow is then float32's own, without an instruction. The copy costs little: in FP32 toward zero
                # made 0.73 to 0.77 of BLAS with it, and 0.73 to 0.80 without it.
                scaled[i, k] = one_nan(a[i, k]) * cut.scale
        for i in range(product_count(a, b)):
            factors, terms, totals = product_matrices(scaled, b, out, i)
            add_products(factors, terms, totals, (rule, grid_numbers, product_numbers, sign))
        make_nans_one(out)

    return loop


def _loops() -> dict[str, Any]:
    """The loops of all steps, with exact products and with rounded ones."""
    loops = {}
    for name, operations in LANE_OPERATIONS.items():
        kind: StepKind = KINDS[CAREFUL.get(name, "directed")]
        exact, rounded = careful_row(native_product, kind.add), careful_row(kind.product, kind.add)
        watched = WATCHED[name]
        loops[f"fused_{name}_watched"] = rounded_tile_loop(watched, fused_step(watched), exact, True)
        anchored = ANCHORED.get(name, watched)
        if anchored is not watched:  # a loop of its own for small sums
            loops[f"fused_{name}_small"] = rounded_tile_loop(anchored, fused_step(anchored), exact, True)
        if name in UNWATCHED:
            loops[f"fused_{name}"] = rounded_tile_loop(operations, fused_step(operations), exact, False)
        if name in UNFUSED:
            loops[f"unfused_{name}_watched"] = rounded_tile_loop(watched, watched_unfused_step(watched), rounded, True)
        if name in UNFUSED_UNWATCHED:
            loops[f"unfused_{name}"] = rounded_tile_loop(operations, unfused_step(operations), rounded, False)
    exact = careful_row(native_product, KINDS["directed"].add)
    for name, operations in WHOLE_OPERATIONS.items():
        loops[f"fused_{name}"] = rounded_tile_loop(operations, fused_step(operations), exact, False)
    return loops


#: Loops by the name of their steps; (a, b, out, grid_numbers, product_numbers, sign).
steps = _loops()
