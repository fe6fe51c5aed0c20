"""Sequential sums, rounded at every step on lanes, in tiles that keep their sums in registers.

A tile has TALL rows and two vectors of columns. These are eight independent sums, enough to keep two multipliers busy
during the four cycles of a multiplication. All rows read the columns of `b`, so these are copied to consecutive memory:
rows of 512 numbers, 2048 bytes apart, share a few sets of the first-level cache. The loop over tiles serves all steps
on lanes (`kernels/lanes/operations.py`).

`a` is (m, k), `b` (k, n) and `out` (m, n), all float32; stacks of such matrices are accepted
(`kernels/sums/stacks.py`). The grids are arrays of float64. If a sum can leave the format in other ways than to the
infinity of float32, the loop tracks the largest bit pattern. Rows of a tile with a bit pattern that is too large, or
NaN, are summed again in float64. That method also needs no properties of the operands: float64 represents their
products, and rounds a sum to odd."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.compile.intrinsics import fma
from simfloat.kernels.compile.jit import kernel, on_lanes, out_of_line, scalar
from simfloat.kernels.elementwise.half import fma_halves
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
from simfloat.kernels.sums.stacks import make_nans_one, product_count, product_matrices

TALL, DEPTH = 4, 256


def tile_loop(add_panel: Any, copied: Any, depth: int = DEPTH) -> Any:
    """Return the function that adds a (m, k) times b (k, n) to out (m, n), in panels of at most `depth` products.

    `add_panel(a, first, count, panel, out, left, rule)` processes `count` columns of `a`, beginning at `first`, and
    `count` rows of the panel, which is two vectors wide. It adds their products to the columns of `out` that begin at
    `left`. A panel contains the lanes after `copied`.
    """

    @on_lanes
    def add(a, b, out, rule):
        # Four rows by two vectors: eight independent sums keep two multipliers busy. The sums, two vectors of the panel
        # and a factor fit into 16 registers. In FP64 such tiles reach 35e9 multiply-adds a second; sums that are loaded
        # and stored at every step reach 20e9.
        columns = 2 * width(out)
        rest = out.shape[1] % columns
        whole = out.shape[1] - rest
        # If the last columns do not fill a tile, they are summed in a separate array, padded with zeros.
        panel = np.zeros((min(depth, a.shape[1]), columns), b.dtype)
        edge = np.zeros((out.shape[0] if rest > 0 else 0, columns), out.dtype)
        copy_columns(out, whole, edge, 0, rest)
        for left in range(0, out.shape[1], columns):
            for first in range(0, a.shape[1], depth):
                # Both vectors of a panel's row are copied next to each other, so every row of `a` reads consecutive
                # memory. The preparation of a step (`copied`, such as one NaN for all) is then done once instead of
                # once for each row.
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
    """Copy `count` columns of all rows of x, starting with `left`, to the columns of `out` that start with `at`."""
    for i in range(x.shape[0]):
        for j in range(count):
            out[i, at + j] = x[i, left + j]


class TileSteps(NamedTuple):
    """The functions of a tile; all receive `rule`, the argument of the loop."""

    step: Any  # (x, lanes, sums, rule) -> new sums; x is a scalar
    begin: Any  # (out, i, left, at, rule) -> sums from `out`; `at` is their position within both vectors
    start_watch: Any  # (sums) -> initial value of the quantity that is tracked during summation ...
    watch: Any  # (watched, sums, rule) -> ... and its new value after each step
    finish: Any  # (out, i, left, right, one, two, watched, rule): stores the sums of a row


def row_adder(tile: TileSteps) -> Any:
    """Return the function that adds the products of factors and panel to all rows of `out`, four rows at a time."""
    step, begin, start_watch, watch, finish = tile

    @on_lanes
    def four(a, i, first, count, panel, out, left, rule):
        right = left + width(out)
        w, x = a[i, first : first + count], a[i + 1, first : first + count]
        y, z = a[i + 2, first : first + count], a[i + 3, first : first + count]
        # The sums are separate variables, written out by hand: LLVM keeps an array of them on the stack, even if its
        # length is constant.
        p0, q0 = begin(out, i, left, 0, rule), begin(out, i, right, width(out), rule)
        p1, q1 = begin(out, i + 1, left, 0, rule), begin(out, i + 1, right, width(out), rule)
        p2, q2 = begin(out, i + 2, left, 0, rule), begin(out, i + 2, right, width(out), rule)
        p3, q3 = begin(out, i + 3, left, 0, rule), begin(out, i + 3, right, width(out), rule)
        # One watch serves both vectors of a row: the tracked value is tested once per row, after the panel.
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
    """Return an unused value: nothing is tracked."""
    return sums


@on_lanes
def still_nothing(watched, sums, rule):
    """Return the value unchanged: nothing is tracked."""
    return watched


@on_lanes
def _fma(x, lanes, sums, rule):
    return fma_lanes(x, lanes, sums)


@on_lanes
def _store_sums(out, i, left, right, one, two, watched, rule):
    # A separate pass that replaces NaN took a quarter of the time of a product 256 x 64 x 784.
    store(out, i, left, quiet(one))
    store(out, i, right, quiet(two))


_add_products = tile_loop(
    row_adder(TileSteps(_fma, _load_sums, watch_nothing, still_nothing, _store_sums)), _unchanged_factors
)


@on_lanes
def add_in_tiles(a, b, out):
    """Add a (m, k) times b (k, n) to out (m, n) by the hardware's fused multiply-add, with one NaN; return True if that
    was done.

    Nothing is done if there are fewer rows than a tile has, or no products.
    """
    is_tall = out.shape[0] >= TALL and a.shape[1] > 0
    if is_tall:
        _add_products(a, b, out, 0)
    return is_tall


@on_lanes
def no_tiles(a, b, out):
    """Return False, for steps without tiles."""
    return False


#: A block of columns and of products, if there are fewer rows than a tile has.
CHAIN_COLUMNS, CHAIN_DEPTH = 512, 16


def chain(add_to_row, add_in_tiles):
    """Return the loop of steps that are the hardware's fused multiply-add.

    It uses tiles that stay in registers. Fewer rows than a tile has are summed one by one. Two rows at a time were 1.1
    to 1.25 times as fast for two or three rows of sums, and took a fifth of the compile time.
    """

    @kernel
    def loop(a, b, out, grid_numbers, product_numbers, sign):
        for product in range(product_count(a, b)):
            factors, terms, totals = product_matrices(a, b, out, product)
            if add_in_tiles(factors, terms, totals):
                continue
            for left in range(0, totals.shape[1], CHAIN_COLUMNS):
                right = min(left + CHAIN_COLUMNS, totals.shape[1])
                for first in range(0, factors.shape[1], CHAIN_DEPTH):
                    last = min(first + CHAIN_DEPTH, factors.shape[1])
                    rows = terms[first:last]  # all columns, as a slice would hide from Numba that they are contiguous
                    for i in range(totals.shape[0]):
                        add_to_row(totals[i, left:right], factors[i, first:last], rows, left)
            make_nans_one(totals)

    return loop


def adding_to_row(fma):
    """Return the function that adds the products of factors with the columns of `rows` from `left` to a row of sums.

    It takes four steps at a time, so that a sum is loaded and stored once for four steps.
    """

    @scalar
    def add(sums, x, rows, left):
        fours, right = x.size // 4 * 4, left + sums.size
        for k in range(0, fours, 4):
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            row0, row1 = rows[k, left:right], rows[k + 1, left:right]
            row2, row3 = rows[k + 2, left:right], rows[k + 3, left:right]
            for j in range(sums.size):
                # In the order of k, which is the order that is emulated.
                sums[j] = fma(x3, row3[j], fma(x2, row2[j], fma(x1, row1[j], fma(x0, row0[j], sums[j]))))
        for k in range(fours, x.size):
            x0, row = x[k], rows[k, left:right]
            for j in range(sums.size):
                sums[j] = fma(x0, row[j], sums[j])

    return add


#: Loops of the hardware's own steps; (a, b, out, grid_numbers, product_numbers, sign). Only the arrays are read.
chains: dict[str, Any] = {
    "native": chain(adding_to_row(fma), add_in_tiles),
    "halves": chain(adding_to_row(fma_halves), no_tiles),
}


U32 = np.uint32

#: The kind of float64 steps for each kind of lane steps.
CAREFUL = {"nearest": "odd", "plain": "odd", "sticky": "sticky"}

#: The steps that have a loop without a check of the largest bit pattern; the steps that have a loop for rounded
#: products, if no other loop is about as fast; and the steps that have both.
UNWATCHED = ("truncated", "away", "upward", "nearest", "plain")
UNFUSED = ("truncated", "away", "upward", "sticky", "plain")
UNFUSED_UNWATCHED = ("plain",)


class Rule(NamedTuple):
    """Arguments for the steps of a tile."""

    cut: Any  # of sums
    products: Any  # of products, if they are rounded
    doubts: Any  # the rows in which a bit pattern was too large


def fused_step(operations: LaneOperations) -> Any:
    """Return the step that adds an exact product and rounds once."""
    fma = operations.fma

    @on_lanes
    def step(x, lanes, sums, rule):
        return fma(x, lanes, sums, rule.cut)

    return step


def unfused_step(operations: LaneOperations) -> Any:
    """Return the step that rounds a product, then rounds the sum."""
    multiply, add = operations.multiply, operations.add

    @on_lanes
    def step(x, lanes, sums, rule):
        return add(sums, multiply(x, lanes, rule.products), rule.cut)

    return step


def watched_unfused_step(operations: LaneOperations) -> Any:
    """Return the step that rounds a product, then the sum; a product beyond its format makes the sum NaN."""
    multiply, add = operations.multiply, operations.add

    @on_lanes
    def step(x, lanes, sums, rule):
        # A later sum could bring a product beyond its format back into range, and the largest sum would not show it. A
        # NaN stays in the sum, and its bit pattern is larger than the one of any number.
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
    """Return the largest bit pattern so far, without its sign."""
    # A shift left by one drops the sign, and bit patterns compare as magnitudes do, with NaN above all. This is one
    # shift and one maximum per step; a comparison and a branch would wait for the sum.
    return larger(largest, image(sums) << U32(1))


@on_lanes
def _store_if_inside(out, i, left, right, one, two, largest, rule):
    # The old sums of the row are still in `out`, so the float64 row starts from them. Nothing is written if one lane is
    # too large: overflow is rare, and a test for every lane would slow down each step of all the others.
    if any_lane(largest > rule.cut.largest):
        rule.doubts[i] = True
    else:
        _store_unscaled_sums(out, i, left, right, one, two, largest, rule)


def careful_row(product: Any, add: Any) -> Any:
    """Return the function that adds the products of scaled factors and the panel to a row of `out`, in float64."""

    @out_of_line
    def add_row_in_float64(factors, unscale, panel, sums, grid_numbers, product_numbers, sign):
        options = StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), sign, False)
        for k in range(factors.size):
            # The exponents of any format fit into float64, so neither sums nor factors are scaled here. This is slow,
            # and it is the definition of the step: it decides whatever lanes cannot decide.
            x, row = np.float64(factors[k] * unscale), panel[k]
            for j in range(sums.size):
                term = product(x, np.float64(row[j]), 0.0, options)
                sums[j] = np.float32(add(np.float64(sums[j]), term, 0.0, options))

    return add_row_in_float64


def rounded_tile_loop(operations: LaneOperations, step: Any, again: Any, watches: bool) -> Any:
    """Return the loop of a step; `watches` if sums can leave the format in other ways than by overflow of float32."""
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
                # The scale is a power of two, so the product is exact. It makes the smallest normal number of the
                # format equal to the one of float32, so float32 handles underflow without an extra instruction. The
                # copy costs little: FP32 toward zero reached 0.73 to 0.77 of BLAS with it, and 0.73 to 0.80 without.
                scaled[i, k] = one_nan(a[i, k]) * cut.scale
        for i in range(product_count(a, b)):
            factors, terms, totals = product_matrices(scaled, b, out, i)
            add_products(factors, terms, totals, (rule, grid_numbers, product_numbers, sign))
        make_nans_one(out)

    return loop


def _loops() -> dict[str, Any]:
    """Return the loops of all steps, with exact products and with rounded ones."""
    loops = {}
    for name, operations in LANE_OPERATIONS.items():
        kind: StepKind = KINDS[CAREFUL.get(name, "directed")]
        exact, rounded = careful_row(native_product, kind.add), careful_row(kind.product, kind.add)
        watched = WATCHED[name]
        loops[f"fused_{name}_watched"] = rounded_tile_loop(watched, fused_step(watched), exact, True)
        anchored = ANCHORED.get(name, watched)
        if anchored is not watched:  # a separate loop for small sums
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
