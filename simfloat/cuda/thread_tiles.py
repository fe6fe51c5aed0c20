"""Products in tiles: a thread sums several elements of the result, which share what it reads of the operands.

A thread that sums a single element reads two numbers for every multiply-add. With `rows` times `columns` elements it
reads rows + columns of them for so many, and keeps them and all sums in registers. The columns of a tile lie a warp's
width apart, so the threads of a warp read neighbours in `b` and the same number of `a`; the tiles of a block lie one
below the other, so its warps find in the cache what one of them has read of `b`. An element's steps and their order do
not depend on the tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from simfloat.cuda.thread_loops import ThreadLoop
from simfloat.cuda.thread_memory import registers, run_of
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import scalar
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.step_kinds import StepOptions

#: Threads that read side by side.
WARP = 32

#: Elements of a result from which on tiles are quicker: 2^10 threads of the largest ones, each of whose steps takes a
#: twentieth of the instructions that a thread with one element needs; those, 2^15, would just keep a GPU busy.
LEAST = 1 << 15

#: The same of large tiles: 2^16 threads, which is about what a GPU of 132 multiprocessors holds of them.
LEAST_OF_LARGE = 1 << 22


class Tile(NamedTuple):
    """What a thread computes of a product; constants of the code that is made for it."""

    rows: int
    columns: int
    steps: int = 1  # of a sum that are written one after the other, for one computation of addresses
    across: int = 0  # columns from one of the tile's to the next, a thread for each; 0: as many as the result has

    def fits(self, rows: int, columns: int) -> bool:
        """Whether a result of this shape holds such tiles."""
        return rows >= self.rows and columns >= self.columns * self.across

    def threads(self, rows: int, columns: int) -> int:
        """How many threads sum a result of this shape."""
        return -(-rows // self.rows) * -(-columns // (self.across * self.columns)) * self.across


#: For steps of many instructions, beside which reading two numbers is little.
ELEMENT = Tile(1, 1)

#: For steps of one or two: 12 numbers are read for 32 multiply-adds.
QUICK = Tile(8, 4, steps=4)

#: For those on float32: 16 numbers for 64. On an H200, sums of 4096^3 products take 8.9 ms with it, with QUICK 12.6.
LARGE = Tile(8, 8)


class TileLoop:
    """A loop over `out` (m, n), the product of `a` (m, k) and `b` (k, n) or a stack of them (`kernels/stack.py`).

    It is called as the CPU's loop of that name is. `body_of` gives for a tile what a thread does; the first of `tiles`
    that suits a result is taken, or single elements. Large tiles are for sums of four bytes: a thread has no registers
    for 64 larger ones.
    """

    def __init__(self, body_of: Callable[[Tile], Callable], *tiles: Tile) -> None:
        self.body_of, self.tiles = body_of, tiles
        self.loops: dict[Tile, ThreadLoop] = {}

    def __call__(self, a: Any, b: Any, out: Any, *numbers: Any) -> None:
        """Start as many threads as the result has tiles, or elements if these are few."""
        depth = a.shape[1]
        products = b.shape[0] // depth if depth else 1
        m, n = out.shape[0] // max(products, 1), out.shape[1]
        tile = self.tile_for(m, n, out.dtype.itemsize)
        if tile == ELEMENT:
            self.of(ELEMENT).start(out.size, a, b, out, *numbers)
            return
        for i in range(products):
            rows = slice(i * m, (i + 1) * m)
            left, right = a if a.shape[0] == m else a[rows], b[i * depth : (i + 1) * depth]
            self.of(tile).start(tile.threads(m, n), left, right, out[rows], *numbers)

    def tile_for(self, rows: int, columns: int, itemsize: int) -> Tile:
        """What a thread sums of a result of this shape and of so many bytes a number."""
        for tile in self.tiles:
            if tile == LARGE and itemsize > 4:
                continue
            wide, least = tile._replace(across=WARP), LEAST_OF_LARGE if tile == LARGE else LEAST
            if rows * columns >= least and wide.fits(rows, columns):
                return wide
        return ELEMENT

    def of(self, tile: Tile) -> ThreadLoop:
        """The loop with such tiles."""
        if tile not in self.loops:
            self.loops[tile] = ThreadLoop(self.body_of(tile), "out")
        return self.loops[tile]


class PairedLoop(TileLoop):
    """A loop over images of 16 bits, which goes over pairs of columns where there are enough: the words of `b` and
    `out` as they lie there, and every image of `a` twice.
    """

    def __init__(self, body_of: Callable[[Tile], Callable], tile: Tile, pairs: TileLoop) -> None:
        super().__init__(body_of, tile)
        self.pairs = pairs

    def __call__(self, a: Any, b: Any, out: Any, *numbers: Any) -> None:
        """Start as many threads as the result has tiles, of pairs if it can be, or elements."""
        m, n = out.shape[0] * a.shape[1] // max(b.shape[0], 1), out.shape[1]
        if n % 2 == 0 and self.pairs.tile_for(m, n // 2, 4) != ELEMENT:
            twice = a.astype(np.uint32) * np.uint32(0x10001)
            self.pairs(twice, b.view(np.uint32), out.view(np.uint32), *numbers)
        else:
            super().__call__(a, b, out, *numbers)


def sums_of(step: Callable) -> Callable[[Tile], Callable]:
    """What a thread does of sums in ascending order of k, total = step(total, x, y, options)."""

    def body_of(tile: Tile) -> Callable:
        rows, columns, steps, across = tile
        of_tile, of_rows, of_columns = registers(rows * columns), registers(rows), registers(columns)
        corner = corner_of(tile)

        @scalar
        def advance(totals, x, y, left, right, k, depth, width, options):
            for r in range(rows):
                x[r] = left[r * depth + k]
            for c in range(columns):
                y[c] = right[k * width + c * across]
            for r in range(rows):
                for c in range(columns):
                    e = r * columns + c
                    totals[e] = step(totals[e], x[r], y[c], options)

        def loop(t, a, b, out, grid_numbers, product_numbers, sign):
            options, zero = StepOptions(unpack(grid_numbers), unpack(product_numbers), sign, False), out.dtype.type(0)
            depth, width = a.shape[1], out.shape[1]
            top, first, own_top, own_first = corner(t, out.shape[0], width)
            totals, x, y = of_tile(zero), of_rows(zero), of_columns(zero)
            sums, left = run_of(out, top * width + first), run_of(a, row_of_left(a, top) * depth)
            right = run_of(b, top_of_right(a, b, out, top) * width + first)
            for r in range(rows):
                for c in range(columns):
                    totals[r * columns + c] = sums[r * width + c * across]
            k = 0  # not range's, which costs several instructions a step where there are few
            while k + steps <= depth:
                for s in range(steps):
                    advance(totals, x, y, left, right, k + s, depth, width, options)
                k += steps
            while k < depth:
                advance(totals, x, y, left, right, k, depth, width, options)
                k += 1
            for r in range(rows):
                for c in range(columns):
                    if top + r >= own_top and first + c * across >= own_first:
                        sums[r * width + c * across] = totals[r * columns + c]

        return loop

    return body_of


def corner_of(tile: Tile) -> Any:
    """(top, first, own_top, own_first) of a thread's tile in a result (m, n).

    The last tiles are moved back into the result, where they sum elements of others once more; their own, which they
    write, are those from (own_top, own_first) on.
    """
    rows, columns, _, across = tile

    @scalar
    def corner(t, m, n):
        width = across if across > 0 else n
        down = (m + rows - 1) // rows
        own_top, own_first = t // width % down * rows, t // width // down * width * columns
        return min(own_top, m - rows), min(own_first, n - width * columns) + t % width, own_top, own_first

    return corner
