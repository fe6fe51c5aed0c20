"""Sums of long vectors in the orders of libraries, on the CPU: chains of lanes, and NumPy's tree.

`chains` adds the products of two vectors to `sums` (runs, lanes), an array of float32. At step s, lane l of run r takes
product `first` + (r * steps + s) * stride + l. Products beyond the ends of the vectors are products of zeros. In every
group of `turned` steps, the last step comes first.

`numpys` adds the elements of a vector in the order of NumPy's C function `pairwise_sum`: fewer than eight one after
another; up to `largest` in eight sums that take every eighth element; longer vectors in two halves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.kernels.compile.intrinsics import fma
from simfloat.kernels.compile.jit import copy_into, kernel, out_of_line, scalar
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import one_nan
from simfloat.kernels.sums.orders import KINDS, StepOptions

U64 = np.uint64

#: Concurrent sums in NumPy's order.
LANES = 8

#: Leaves of NumPy's order that are summed side by side.
TOGETHER = 16

#: Maximum number of halvings in NumPy's order, for any vector that fits into memory.
HALVINGS = 64


@scalar
def _add_product_fused(x, y, total):
    return fma(x, y, total)


@scalar
def _add_product_unfused(x, y, total):
    return total + x * y


@scalar
def _add_number(x, y, total):
    return total + x


def chain_loop(step: Any) -> Any:
    """Return the loop of a step."""

    @kernel
    def loop(x, y, sums, first, steps, stride, turned):
        runs, lanes = sums.shape
        for run in range(runs):
            row = sums[run]
            if lanes == 4 and first + ((run + 1) * steps - 1) * stride + lanes <= x.size:  # they stay in a register
                # Four chains in variables: a row of an array would be loaded and stored at every step, and each step
                # would wait for the store before it.
                p, q, r, s = row[0], row[1], row[2], row[3]
                for begin in range(run * steps, (run + 1) * steps, turned):
                    for back in range(turned):
                        # Unsigned, since Numba tests every signed index for negative values, which count from the end.
                        # The `turned` steps of a group are taken backward, as in libraries that unroll in this way.
                        k = U64(first + (begin + turned - 1 - back) * stride)
                        p, q = step(x[k], y[k], p), step(x[k + U64(1)], y[k + U64(1)], q)
                        r = step(x[k + U64(2)], y[k + U64(2)], r)
                        s = step(x[k + U64(3)], y[k + U64(3)], s)
                row[0], row[1], row[2], row[3] = p, q, r, s
                continue
            for s in range(steps):
                here = s - s % turned + turned - 1 - s % turned
                k = first + (run * steps + here) * stride
                if k + lanes <= x.size:
                    a, b = x[k : k + lanes], y[k : k + lanes]
                    for lane in range(lanes):
                        row[lane] = step(a[lane], b[lane], row[lane])
                else:
                    for lane in range(lanes):
                        inside = k + lane < x.size
                        row[lane] = step(
                            x[k + lane] if inside else np.float32(0.0),
                            y[k + lane] if inside else np.float32(0.0),
                            row[lane],
                        )

    return loop


#: Loops by the kind of product; (x, y, sums, first, steps, stride, turned). "ones" does not read the right factors.
chains = {
    "fused": chain_loop(_add_product_fused),
    "unfused": chain_loop(_add_product_unfused),
    "ones": chain_loop(_add_number),
}


@out_of_line
def find_leaves(count, largest, firsts, counts):
    """Write the starts and lengths of the leaves, the parts that NumPy does not halve; return their number."""
    begins, sizes = np.empty(HALVINGS, np.int64), np.empty(HALVINGS, np.int64)
    begins[0], sizes[0] = 0, count
    depth, leaves = 1, 0
    while depth:
        depth -= 1
        first, size = begins[depth], sizes[depth]
        if size <= largest:
            firsts[leaves], counts[leaves] = first, size
            leaves += 1
        else:
            # NumPy halves so that the length of the left part is a multiple of eight. The right part is pushed first,
            # so that parts are visited from left to right, as the tree of sums requires.
            left = size // 2 - size // 2 % LANES
            begins[depth], sizes[depth] = first + left, size - left
            begins[depth + 1], sizes[depth + 1] = first, left
            depth += 2
    return leaves


@scalar
def _eight_numbers(x, k):
    """Return the elements k to k + 7; an unsigned index does not count from the end."""
    low = x[k], x[k + U64(1)], x[k + U64(2)], x[k + U64(3)]
    return low + (x[k + U64(4)], x[k + U64(5)], x[k + U64(6)], x[k + U64(7)])


def leaf_sums_one_by_one() -> Any:
    """Return the function that sums groups of eight in leaves by additions of the carrier."""

    @out_of_line
    def sum_leaves(x, firsts, counts, sums, options):
        for leaf in range(firsts.size):
            eights = counts[leaf] // LANES
            if eights:
                # Eight variables, not an array: LLVM would not keep an array in a register.
                k = np.uint64(firsts[leaf])
                a, b, c, d, e, f, g, h = _eight_numbers(x, k)
                for _ in range(1, eights):
                    k += np.uint64(LANES)
                    p, q, r, s, t, u, v, w = _eight_numbers(x, k)
                    a, b, c, d = a + p, b + q, c + r, d + s
                    e, f, g, h = e + t, f + u, g + v, h + w
                sums[leaf] = ((a + b) + (c + d)) + ((e + f) + (g + h))

    return sum_leaves


def leaf_sums_side_by_side(add: Any) -> Any:
    """Return the function that sums groups of eight in leaves by longer additions; leaves of a group are independent.

    While the additions of one leaf wait for each other, the additions of other leaves run.
    """

    @out_of_line
    def sum_leaves(x, firsts, counts, sums, options):
        space = np.empty((2, TOGETHER * LANES), x.dtype)
        for begin in range(0, firsts.size, TOGETHER):
            leaves = min(TOGETHER, firsts.size - begin)
            lanes, row = space[0, : leaves * LANES], space[1, : leaves * LANES]
            # Leaves of a group have nearly the same length. The steps that all leaves have are done side by side; the
            # few remaining ones are added leaf by leaf below.
            least = counts[begin]
            for leaf in range(1, leaves):
                least = min(least, counts[begin + leaf])
            steps = least // LANES
            for s in range(steps):
                for leaf in range(leaves):
                    k = firsts[begin + leaf] + s * LANES
                    here, there = x[k : k + LANES], row[leaf * LANES : (leaf + 1) * LANES]
                    for lane in range(LANES):
                        there[lane] = here[lane]
                if s == 0:
                    copy_into(lanes, row)
                else:
                    for j in range(lanes.size):
                        lanes[j] = add(lanes[j], row[j], 0.0, options)
            for leaf in range(leaves):
                first, count = firsts[begin + leaf], counts[begin + leaf]
                for k in range(steps * LANES, count - count % LANES):
                    lane = leaf * LANES + k % LANES
                    lanes[lane] = add(lanes[lane], x[first + k], 0.0, options)
            width = lanes.size if steps else 0
            while width > leaves:
                width //= 2
                for j in range(width):
                    row[j], row[width + j] = lanes[2 * j], lanes[2 * j + 1]
                left, right, totals = row[:width], row[width : 2 * width], lanes[:width]
                for j in range(width):
                    totals[j] = add(left[j], right[j], 0.0, options)
            if steps:
                copy_into(sums[begin : begin + leaves], lanes[:leaves])

    return sum_leaves


def numpy_order_loop(add: Any, sum_leaves: Any) -> Any:
    """Return the loop of a rounded addition."""

    @out_of_line
    def in_a_row(x, total, options):
        """Add the elements to `total`, one after another."""
        for k in range(x.size):
            total[0] = add(total[0], x[k], 0.0, options)

    @out_of_line
    def of_leaves(size, largest, leaves, options):
        """Return the sum of the leaves of `size` elements; a complete half waits for the other one."""
        sizes, halves = np.empty(HALVINGS, np.int64), np.zeros(HALVINGS, np.int64)
        waiting = np.empty(HALVINGS, leaves.dtype)
        sizes[0], depth, count, leaf = size, 1, 0, 0
        while depth:
            size = sizes[depth - 1]
            if size <= largest:
                waiting[count] = leaves[leaf]
                count, leaf, depth = count + 1, leaf + 1, depth - 1
            elif halves[depth - 1] < 2:
                left = size // 2 - size // 2 % LANES
                # The recursion of NumPy's C function `pairwise_sum`, walked by a stack of sizes: `halves` counts the
                # halves that have been started, and sums of complete parts wait in `waiting`.
                sizes[depth], halves[depth] = size - left if halves[depth - 1] else left, 0
                halves[depth - 1] += 1
                depth += 1
            else:
                waiting[count - 2] = add(waiting[count - 2], waiting[count - 1], 0.0, options)
                count, depth = count - 1, depth - 1
        return waiting[0]

    @kernel
    def loop(x, out, largest, grid_numbers, sign):
        grid = unpack_grid(grid_numbers)
        options = StepOptions(grid, grid, sign, False)
        most = x.size // (largest // 2) + 1
        firsts, counts, sums = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, x.dtype)
        leaves = find_leaves(x.size, largest, firsts, counts)
        sum_leaves(x, firsts[:leaves], counts[:leaves], sums[:leaves], options)
        # All leaves except the last one have a multiple of eight elements.
        rest = counts[leaves - 1] % LANES
        if counts[leaves - 1] < LANES:
            sums[leaves - 1], rest = x[firsts[leaves - 1]], rest - 1
        in_a_row(x[x.size - rest :], sums[leaves - 1 : leaves], options)
        # NumPy adds the total to 0, and so does this loop.
        total = np.zeros(1, x.dtype)
        sums[0] = of_leaves(x.size, largest, sums, options)
        in_a_row(sums[:1], total, options)
        out[0, 0] = one_nan(total[0])

    return loop


#: Loops by the kind of step; (x, out, largest, numbers, sign).
numpys = {"native": numpy_order_loop(KINDS["native"].add, leaf_sums_one_by_one())}
for _kind in ("plain", "odd", "directed", "sticky", "converted"):
    numpys[_kind] = numpy_order_loop(KINDS[_kind].add, leaf_sums_side_by_side(KINDS[_kind].add))
