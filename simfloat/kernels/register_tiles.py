"""Tiles of a product whose sums stay in registers, and the loop over them: for steps that are made on lanes.

A tile has TALL rows and two vectors of columns: eight sums that do not wait for each other, enough to keep two
multipliers busy for the four cycles that one takes. Its columns of `b` are read for all rows, so they are copied
to where they lie side by side: rows of 512 numbers, 2048 bytes apart, share a few sets of the first cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.jit import on_lanes, scalar
from simfloat.kernels.lanes import fma_lanes, load, store, width

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
