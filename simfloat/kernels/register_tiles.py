"""Tiles of a product whose sums stay in registers: chains of the hardware's fused multiply-adds.

A tile has TALL rows and two vectors of columns: eight sums that do not wait for each other, enough to keep two
multipliers busy for the four cycles that one takes. Its columns of `b` are read for all rows, so they are copied
to where they lie side by side: rows of 512 numbers, 2048 bytes apart, share a few sets of the first cache.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import scalar
from simfloat.kernels.lanes import fma_lanes, load, store, width

TALL, DEPTH = 4, 256

#: Products that are sooner made than tiles are set up.
FEW = 1 << 12


@scalar
def add_in_tiles(a, b, out):
    """Add a (m, k) times b (k, n) to out (m, n), unless it has too few rows for tiles: whether that was done."""
    columns = 2 * width(out)
    rest = out.shape[1] % columns
    whole = out.shape[1] - rest
    if out.shape[0] < TALL or out.size * a.shape[1] <= FEW:
        return False
    # The last columns, if they are not enough for a tile, are summed elsewhere, with zeros beside them.
    panel = np.zeros((min(DEPTH, a.shape[1]), columns), b.dtype)
    edge = np.zeros((out.shape[0] if rest > 0 else 0, columns), out.dtype)
    _copy_columns(out, whole, edge, 0, rest)
    for left in range(0, out.shape[1], columns):
        for first in range(0, a.shape[1], DEPTH):
            rows = b[first : first + DEPTH]
            if left < whole:
                for k in range(rows.shape[0]):
                    store(panel, k, 0, load(rows, k, left))
                    store(panel, k, width(out), load(rows, k, left + width(out)))
                sums, at = out, left
            else:
                _copy_columns(rows, whole, panel, 0, rest)
                sums, at = edge, 0
            within = slice(first, first + rows.shape[0])
            for i in range(0, out.shape[0] - TALL + 1, TALL):
                _add_four(a[i, within], a[i + 1, within], a[i + 2, within], a[i + 3, within], panel, sums, i, at)
            for i in range(out.shape[0] // TALL * TALL, out.shape[0]):
                _add_one(a[i, within], panel, sums, i, at)
    _copy_columns(edge, 0, out, whole, rest)
    return True


@scalar
def no_tiles(a, b, out):
    """For steps that have none."""
    return False


@scalar
def _copy_columns(x, left, out, at, count):
    """Copy `count` columns of all rows of x, from the column `left` on, to those of `out` from `at` on."""
    for i in range(x.shape[0]):
        for j in range(count):
            out[i, at + j] = x[i, left + j]


@scalar
def _add_four(w, x, y, z, panel, out, i, left):
    """To four rows of `out`, row i and those below it, the products of these factors with the panel."""
    right = left + width(out)
    p0, p1, p2, p3 = load(out, i, left), load(out, i + 1, left), load(out, i + 2, left), load(out, i + 3, left)
    q0, q1, q2, q3 = load(out, i, right), load(out, i + 1, right), load(out, i + 2, right), load(out, i + 3, right)
    for k in range(w.size):
        p, q = load(panel, k, 0), load(panel, k, width(out))
        p0, q0 = fma_lanes(w[k], p, p0), fma_lanes(w[k], q, q0)
        p1, q1 = fma_lanes(x[k], p, p1), fma_lanes(x[k], q, q1)
        p2, q2 = fma_lanes(y[k], p, p2), fma_lanes(y[k], q, q2)
        p3, q3 = fma_lanes(z[k], p, p3), fma_lanes(z[k], q, q3)
    for row, one, two in ((i, p0, q0), (i + 1, p1, q1), (i + 2, p2, q2), (i + 3, p3, q3)):
        store(out, row, left, one)
        store(out, row, right, two)


@scalar
def _add_one(x, panel, out, i, left):
    """The same for one row."""
    right = left + width(out)
    p0, q0 = load(out, i, left), load(out, i, right)
    for k in range(x.size):
        p0, q0 = fma_lanes(x[k], load(panel, k, 0), p0), fma_lanes(x[k], load(panel, k, width(out)), q0)
    store(out, i, left, p0)
    store(out, i, right, q0)
