"""Sequential sums by the fused multiply-add of the hardware: chains of instructions.

`a` is (m, k) and `b` is (k, n), or stacks of such matrices (`stacks.py`). `out` contains the start values, then the
sums; every NaN becomes the positive quiet NaN. The grids and the sign are not read.
"""

from __future__ import annotations

from typing import Any

from simfloat.kernels.compile.intrinsics import fma
from simfloat.kernels.compile.jit import kernel, scalar
from simfloat.kernels.elementwise.half import fma_halves
from simfloat.kernels.lanes.tiles import add_in_tiles, no_tiles
from simfloat.kernels.sums.stacks import make_nans_one, product_count, product_matrices

COLUMNS, DEPTH = 512, 16


def chain(add_to_row, add_in_tiles):
    """Return the loop of steps that are the hardware's fused multiply-add.

    It uses tiles that stay in registers. Fewer rows than a tile has are summed one by one. Two rows at a time were 1.1
    to 1.25 times as fast for two or three rows of sums, and took a fifth of the compile time.
    """

    @kernel
    def loop(a, b, out, grid_numbers, product_numbers, sign):
        for number in range(product_count(a, b)):
            factors, terms, totals = product_matrices(a, b, out, number)
            columns = 0 if add_in_tiles(factors, terms, totals) else totals.shape[1]
            for left in range(0, columns, COLUMNS):
                right = min(left + COLUMNS, columns)
                for first in range(0, factors.shape[1], DEPTH):
                    last = min(first + DEPTH, factors.shape[1])
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


#: Loops by the kind of steps; (a, b, out, grid_numbers, product_numbers, sign).
chains: dict[str, Any] = {
    "native": chain(adding_to_row(fma), add_in_tiles),
    "halves": chain(adding_to_row(fma_halves), no_tiles),
}
