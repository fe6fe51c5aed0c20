"""Sums in ascending order of k, rounded at every step on lanes, in tiles whose sums stay in registers.

A tile has TALL rows and two vectors of columns: eight sums that do not wait for each other, enough to keep two
multipliers busy for the four cycles that one takes. Its columns of `b` are read for all rows, so they are copied
to where they lie side by side: rows of 512 numbers, 2048 bytes apart, share a few sets of the first cache. The loop
over tiles serves all steps that are made on lanes (`kernels/lanes/operations.py`).

`a` is (m, k), `b` (k, n) and `out` (m, n), of float32, and stacks of such matrices are taken (`kernels/sums/rows.py`);
the grids are float64's. Where a sum may leave the format otherwise than to float32's infinity, the largest image is
followed, and rows of a tile in which one was too large, or none of a number, are summed again in float64, which needs
to know nothing of the operands either: float64 holds their products, and rounds a sum to odd.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.compile.jit import kernel, on_lanes, out_of_line, scalar
from simfloat.kernels.lanes.lanes import (
    NAN,
    any_lane,
    choose,
    fma_lanes,
    image,
    larger,
    load,
    number,
    quiet,
    store,
    width,
)
from simfloat.kernels.lanes.operations import ANCHORED, LANE_OPERATIONS, WATCHED, WHOLE_OPERATIONS, LaneOperations
from simfloat.kernels.lanes.rounding import restore_mode, set_mode
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import one_nan
from simfloat.kernels.sums.orders import KINDS, StepKind, StepOptions, native_product
from simfloat.kernels.sums.rows import make_nans_one, product_count, product_matrices

TALL, DEPTH = 4, 256

#: Products that are sooner made than tiles of the hardware's own steps are set up.
FEW = 1 << 12


def tile_loop(add_panel: Any, copied: Any, depth: int = DEPTH) -> Any:
    """What adds a (m, k) times b (k, n) to out (m, n), in panels of at most so many products.

    `add_panel(a, first, count, panel, out, left, rule)` adds the products of the columns of `a` from `first` on with so
    many rows of the panel, two vectors wide, to those columns of `out`; a panel holds what `copied` makes of lanes.
    """

    @on_lanes
    def add(a, b, out, rule):
        # Four rows by two vectors: eight sums that do not wait for one another keep two multipliers busy, and they, two
        # vectors of the panel and a factor stay in 16 registers. In FP64 such tiles reach 35e9 multiply-adds a second,
        # where sums that are loaded and stored at every step reach 20e9.
        columns = 2 * width(out)
        rest = out.shape[1] % columns
        whole = out.shape[1] - rest
        # The last columns, if they are not enough for a tile, are summed elsewhere, with zeros beside them.
        panel = np.zeros((min(depth, a.shape[1]), columns), b.dtype)
        edge = np.zeros((out.shape[0] if rest > 0 else 0, columns), out.dtype)
        copy_columns(out, whole, edge, 0, rest)
        for left in range(0, out.shape[1], columns):
            for first in range(0, a.shape[1], depth):
                # Both vectors of a panel's row are copied side by side, so every row of `a` reads consecutive memory,
                # and a step's preparation (`copied`, such as one NaN for all) is made once instead of once for each
                # row.
                rows = b[first : first + depth]
                if left < whole:
                    for k in range(rows.shape[0]):
                        store(panel, k, 0, copied(load(rows, k, left)))
                        store(panel, k, width(out), copied(load(rows, k, left + width(out))))
                    sums, at = out, left
                else:
                    copy_columns(rows, whole, panel, 0, rest)
                    for k in range(rows.shape[0]):
                        store(panel, k, 0, copied(load(panel, k, 0)))
                        store(panel, k, width(out), copied(load(panel, k, width(out))))
                    sums, at = edge, 0
                add_panel(a, first, rows.shape[0], panel, sums, at, rule)
        copy_columns(edge, 0, out, whole, rest)

    return add


@scalar
def copy_columns(x, left, out, at, count):
    """Copy `count` columns of all rows of x, from the column `left` on, to those of `out` from `at` on."""
    for i in range(x.shape[0]):
        for j in range(count):
            out[i, at + j] = x[i, left + j]


class TileSteps(NamedTuple):
    """What is done on lanes in a tile; `rule` is what the loop tells all of them."""

    step: Any  # (x, lanes, sums, rule) -> new sums, x being a number
    begin: Any  # (out, i, left, at, rule) -> sums, of what is in `out`; `at` is where they stand among both vectors
    start_watch: Any  # (sums) -> what follows sums on the way, at first ...
    watch: Any  # (watched, sums, rule) -> ... and after each step
    finish: Any  # (out, i, left, right, one, two, watched, rule): puts the sums of a row back


def row_adder(tile: TileSteps) -> Any:
    """What adds to all rows of `out`, four at a time, the products of the factors with the panel."""
    step, begin, start_watch, watch, finish = tile

    @on_lanes
    def four(a, i, first, count, panel, out, left, rule):
        right = left + width(out)
        w, x = a[i, first : first + count], a[i + 1, first : first + count]
        y, z = a[i + 2, first : first + count], a[i + 3, first : first + count]
        # Sums stand in variables of their own, written out by hand: LLVM keeps an array of them, even one of constant
        # length, on the stack.
        p0, q0 = begin(out, i, left, 0, rule), begin(out, i, right, width(out), rule)
        p1, q1 = begin(out, i + 1, left, 0, rule), begin(out, i + 1, right, width(out), rule)
        p2, q2 = begin(out, i + 2, left, 0, rule), begin(out, i + 2, right, width(out), rule)
        p3, q3 = begin(out, i + 3, left, 0, rule), begin(out, i + 3, right, width(out), rule)
        # One watch serves both vectors of a row: what it follows is looked at once, after the panel, and only by row.
        m0, m1, m2, m3 = start_watch(p0), start_watch(p1), start_watch(p2), start_watch(p3)
        for k in range(count):
            p, q = load(panel, k, 0), load(panel, k, width(out))
            p0, q0 = step(w[k], p, p0, rule), step(w[k], q, q0, rule)
            p1, q1 = step(x[k], p, p1, rule), step(x[k], q, q1, rule)
            p2, q2 = step(y[k], p, p2, rule), step(y[k], q, q2, rule)
            p3, q3 = step(z[k], p, p3, rule), step(z[k], q, q3, rule)
            m0, m1 = watch(watch(m0, p0, rule), q0, rule), watch(watch(m1, p1, rule), q1, rule)
            m2, m3 = watch(watch(m2, p2, rule), q2, rule), watch(watch(m3, p3, rule), q3, rule)
        finish(out, i, left, right, p0, q0, m0, rule)
        finish(out, i + 1, left, right, p1, q1, m1, rule)
        finish(out, i + 2, left, right, p2, q2, m2, rule)
        finish(out, i + 3, left, right, p3, q3, m3, rule)

    @on_lanes
    def one(a, i, first, count, panel, out, left, rule):
        right = left + width(out)
        x = a[i, first : first + count]
        p0, q0 = begin(out, i, left, 0, rule), begin(out, i, right, width(out), rule)
        most = start_watch(p0)
        for k in range(count):
            p0, q0 = step(x[k], load(panel, k, 0), p0, rule), step(x[k], load(panel, k, width(out)), q0, rule)
            most = watch(watch(most, p0, rule), q0, rule)
        finish(out, i, left, right, p0, q0, most, rule)

    @on_lanes
    def rows(a, first, count, panel, out, left, rule):
        for i in range(0, out.shape[0] - TALL + 1, TALL):
            four(a, i, first, count, panel, out, left, rule)
        for i in range(out.shape[0] // TALL * TALL, out.shape[0]):
            one(a, i, first, count, panel, out, left, rule)

    return rows


@on_lanes
def _unchanged_factors(lanes):
    return lanes


@on_lanes
def _load_sums(out, i, left, at, rule):
    return load(out, i, left)


@on_lanes
def watch_nothing(sums):
    """Nothing is followed."""
    return sums


@on_lanes
def still_nothing(watched, sums, rule):
    """Nothing is followed."""
    return watched


@on_lanes
def _fma(x, lanes, sums, rule):
    return fma_lanes(x, lanes, sums)


@on_lanes
def _store_sums(out, i, left, right, one, two, watched, rule):
    store(out, i, left, one)
    store(out, i, right, two)


_add_products = tile_loop(
    row_adder(TileSteps(_fma, _load_sums, watch_nothing, still_nothing, _store_sums)), _unchanged_factors
)


@on_lanes
def add_in_tiles(a, b, out):
    """Add a (m, k) times b (k, n) to out (m, n) by the hardware's fused multiply-add, unless it has too few rows for
    tiles or there are too few products: whether that was done.
    """
    worthwhile = out.shape[0] >= TALL and out.size * a.shape[1] > FEW
    if worthwhile:
        _add_products(a, b, out, 0)
    return worthwhile


@on_lanes
def no_tiles(a, b, out):
    """For steps that have none."""
    return False


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
