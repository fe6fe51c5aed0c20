"""Products in tiles: a thread sums several elements of the result, which share the operands that it reads.

A thread that sums a single element reads two numbers for every multiply-add. With `rows` times `columns` elements it
reads rows + columns numbers for rows * columns multiply-adds, and keeps them and all sums in registers. The columns of
a tile are a warp's width apart, so the threads of a warp read neighbours in `b` and the same number of `a`. The tiles
of a block are below one another, so if one of its warps has read a part of `b`, the others find it in the cache. The
steps of an element and their order do not depend on the tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.gpu.threads import WARP, ThreadLoop, load_four, numbers_from, registers, row_and_column
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.sums.orders import StepOptions
from simfloat.kernels.sums.stacks import row_of_left, top_of_right

#: Minimum number of threads for tiles. With fewer threads, one thread per element is faster, because fewer wait for
#: each other.
LEAST = 1 << 14


class Tile(NamedTuple):
    """The part of a product that a thread computes; compile-time constants of its code."""

    rows: int
    columns: int
    steps: int = 1  # of a sum that are unrolled, with one computation of addresses
    side_by_side: int = 1  # neighbouring columns, and rows, that are read at once
    warp: int = 0  # neighbouring threads

    def fits(self, rows: int, columns: int) -> bool:
        """Return True if a result of this shape contains such tiles, with rows aligned for reads of `side_by_side`."""
        whole = rows % self.side_by_side == 0 and columns % self.side_by_side == 0
        return whole and rows >= self.rows and columns >= self.columns * self.warp

    def threads(self, rows: int, columns: int) -> int:
        """Return the number of threads that sum a result of this shape."""
        return -(-rows // self.rows) * -(-columns // (self.warp * self.columns)) * self.warp


#: For steps of many instructions, which take much longer than reading two numbers.
ELEMENT = Tile(1, 1)

#: For steps of one or two instructions and few results: the operands of 16 steps are read while 16 others are computed.
FEW = Tile(1, 1, steps=16)

#: For such steps and many results: 12 numbers are read for 32 multiply-adds.
QUICK = Tile(8, 4, steps=4)

#: The same for float32, if rows begin at multiples of four numbers: three instructions read the 12 numbers. On an H100,
#: sums of 4096^3 products take 6.0 ms with it, and 12.0 with QUICK.
SIDE_BY_SIDE = Tile(4, 8, steps=2, side_by_side=4)


class TileLoop:
    """A loop over `out` (m, n), the product of `a` (m, k) and `b` (k, n) or a stack of them (`kernels/sums/stacks.py`).

    It is called like the CPU's loop of the same name. `body_of` returns the body of a thread for a tile. The first of
    `tiles` that suits a result is used, otherwise `element`. Tiles are for steps of few instructions.
    """

    def __init__(self, body_of: Callable[[Tile], Callable], *tiles: Tile, element: Tile = ELEMENT) -> None:
        self.body_of, self.tiles, self.element = body_of, tiles, element
        self.loops: dict[Tile, ThreadLoop] = {}

    def __call__(self, a: Any, b: Any, out: Any, *numbers: Any) -> None:
        """Start as many threads as the result has tiles, or elements if tiles are few."""
        depth = a.shape[1]
        products = b.shape[0] // depth if depth else 1
        m, n = out.shape[0] // max(products, 1), out.shape[1]
        tile = self.tile_for(m, n, out.dtype.itemsize)
        if tile == self.element:
            self.with_tile(tile).start(out.size, a, b, out, *numbers)
            return
        for i in range(products):
            rows = slice(i * m, (i + 1) * m)
            left, right = a if a.shape[0] == m else a[rows], b[i * depth : (i + 1) * depth]
            if tile.side_by_side > 1:
                # With the columns of the left operand in contiguous memory, three instructions read 12 numbers for 32
                # multiply-adds. Such reads need addresses at multiples of 16 bytes, which a view may not have.
                left, right = left.T.copy(), right if right.data.ptr % 16 == 0 else right.copy()
            self.with_tile(tile).start(tile.threads(m, n), left, right, out[rows], *numbers)

    def tile_for(self, rows: int, columns: int, itemsize: int) -> Tile:
        """Return the tile of a thread for a result of this shape and `itemsize` bytes per number."""
        for tile in self.tiles:
            wide = tile._replace(warp=WARP)
            many = wide.fits(rows, columns) and wide.threads(rows, columns) >= LEAST
            if many and itemsize * wide.side_by_side <= 16:
                return wide
        return self.element

    def with_tile(self, tile: Tile) -> ThreadLoop:
        """Return the loop with such tiles."""
        if tile not in self.loops:
            self.loops[tile] = ThreadLoop(self.body_of(tile), "out")
        return self.loops[tile]


class PairedLoop(TileLoop):
    """A loop over 16-bit patterns, in pairs of columns if there are enough.

    For pairs, `b` and `out` are viewed as words, and every bit pattern of `a` is repeated in a word.
    """

    def __init__(self, body_of: Callable[[Tile], Callable], tile: Tile, element: Tile, pairs: TileLoop) -> None:
        super().__init__(body_of, tile, element=element)
        self.pairs = pairs

    def __call__(self, a: Any, b: Any, out: Any, *numbers: Any) -> None:
        """Start as many threads as the result has tiles, of pairs if possible, or elements."""
        m, n = out.shape[0] * a.shape[1] // max(b.shape[0], 1), out.shape[1]
        if n % 2 == 0 and self.pairs.tile_for(m, n // 2, 4) != self.pairs.element:
            twice = a.astype(np.uint32) * np.uint32(0x10001)
            self.pairs(twice, b.view(np.uint32), out.view(np.uint32), *numbers)
        else:
            super().__call__(a, b, out, *numbers)


def sum_body(step: Callable) -> Callable[[Tile], Callable]:
    """Return the body of a thread for sums in ascending order of k, total = step(total, x, y, options)."""
    return lambda tile: tile_sums(step, tile) if tile.warp else element_sums(step, tile.steps)


def element_sums(step: Callable, steps: int) -> Callable:
    """Return the body of a thread for one element: the next operands are read before the current ones are used.

    Otherwise the assembler would place the reads of a step just before it, and every step would wait for the memory.
    """
    of_steps = registers(steps)

    @scalar
    def read(x, y, row, column, k, width):
        for s in range(steps):
            x[s], y[s] = row[k + s], column[(k + s) * width]

    def loop(t, a, b, out, grid_numbers, product_numbers, sign):
        options, kind = (
            StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), sign, False),
            out.dtype.type,
        )
        (i, j), depth, width, zero = row_and_column(t, out.shape), a.shape[1], out.shape[1], kind(0)
        row, column = (
            numbers_from(a, row_of_left(a, i) * depth),
            numbers_from(b, top_of_right(a, b, out, i) * width + j),
        )
        x, y, next_x, next_y = of_steps(zero), of_steps(zero), of_steps(zero), of_steps(zero)
        total, whole, k = out[i, j], depth - depth % steps, 0
        if whole > 0:
            read(x, y, row, column, 0, width)
        while k < whole:
            # 16 steps are read while 16 others are computed: 1 x 4096 x 256 takes 0.08 ms instead of 0.68 on an H100.
            # The last group is read twice, which is cheaper than a branch.
            read(next_x, next_y, row, column, min(k + steps, whole - steps), width)
            for s in range(steps):
                total = kind(step(total, x[s], y[s], options))
                x[s], y[s] = next_x[s], next_y[s]
            k += steps
        while k < depth:
            total = kind(step(total, row[k], column[k * width], options))
            k += 1
        out[i, j] = total

    return loop


def tile_sums(step: Callable, tile: Tile) -> Callable:
    """Return the body of a thread for a tile of elements."""
    rows, columns, steps, beside, warp = tile
    of_tile, of_rows, of_columns = registers(rows * columns), registers(rows), registers(columns)
    corner, apart = tile_corner(tile), warp * beside

    @scalar
    def read_one_by_one(x, y, left, right, k, depth, width):
        for r in range(rows):
            x[r] = left[r * depth + k]
        for c in range(columns):
            y[c] = right[k * width + c * warp]

    @scalar
    def read_by_fours(x, y, left, right, k, height, width):
        for r in range(0, rows, 4):
            x[r], x[r + 1], x[r + 2], x[r + 3] = load_four(left, k * height + r)
        for c in range(0, columns, 4):
            y[c], y[c + 1], y[c + 2], y[c + 3] = load_four(right, k * width + c // 4 * apart)

    read = read_by_fours if beside == 4 else read_one_by_one

    @scalar
    def advance(totals, x, y, left, right, k, depth, width, options):
        read(x, y, left, right, k, depth, width)
        for r in range(rows):
            for c in range(columns):
                e = r * columns + c
                totals[e] = step(totals[e], x[r], y[c], options)

    def loop(t, a, b, out, grid_numbers, product_numbers, sign):
        options, zero = (
            StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), sign, False),
            out.dtype.type(0),
        )
        height, width = out.shape
        top, first, own_top, own_first = corner(t, height, width)
        totals, x, y, sums = of_tile(zero), of_rows(zero), of_columns(zero), numbers_from(out, top * width + first)
        if beside > 1:  # `a` is (k, m)
            depth, pitch = a.shape[0], height
            left, right = numbers_from(a, top), numbers_from(b, first)
        else:
            depth = pitch = a.shape[1]
            # Written for a stack, although no stack arrives here: with less code around it, the assembler puts reads
            # between the additions of FP16 pairs, which then take twice as long.
            left = numbers_from(a, row_of_left(a, top) * depth)
            right = numbers_from(b, top_of_right(a, b, out, top) * width + first)
        for r in range(rows):
            for c in range(columns):
                totals[r * columns + c] = sums[r * width + c // beside * apart + c % beside]
        k = 0  # not a range, which costs several instructions per step
        while k + steps <= depth:
            for s in range(steps):
                advance(totals, x, y, left, right, k + s, pitch, width, options)
            k += steps
        while k < depth:
            advance(totals, x, y, left, right, k, pitch, width, options)
            k += 1
        for r in range(rows):
            for c in range(columns):
                column = c // beside * apart + c % beside
                if top + r >= own_top and first + column >= own_first:
                    sums[r * width + column] = totals[r * columns + c]

    return loop


def tile_corner(tile: Tile) -> Any:
    """Return a function for (top, first, own_top, own_first) of a thread's tile in a result (m, n).

    The last tiles are moved back into the result, where they sum elements of other tiles again. They write only the
    elements from (own_top, own_first).
    """
    rows, columns, _, beside, warp = tile
    side = min(beside, columns)

    @scalar
    def corner(t, m, n):
        if warp == 0:
            i, j = row_and_column(t, (m, n))
            return i, j, i, j
        down = (m + rows - 1) // rows
        own_top, own_first = t // warp % down * rows, t // warp // down * warp * columns
        # No tile is truncated: a test for each element, or code for smaller tiles, would slow down all others. If two
        # threads sum an element, one of them writes it.
        return min(own_top, m - rows), min(own_first, n - warp * columns) + t % warp * side, own_top, own_first

    return corner
