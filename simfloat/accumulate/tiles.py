"""Products of matrices cut into tiles, which threads sum with an engine."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Engine, Place, Scales
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.stream import Draw
from simfloat.arithmetic.threads import get_threads, run_all

#: Nanoseconds of work below which a second thread costs more than it saves.
LEAST_WORK = 200_000

#: Columns below which the inner loop, which runs over columns, is too short to be quick.
NARROW = 64


def sums_of_matrices(
    shape: tuple[int, ...], scales: Scales | None, engine: Engine, a: NDArray, b: NDArray, draw: Draw | None
) -> NDArray:
    """The unrounded results as one vector in C order."""
    if b.ndim == 2 and a.ndim > 2:
        # One matrix on the right: the leading axes of the left one are rows.
        a, scales = _as_rows(a), scales and (_as_rows(scales[0]), scales[1])
        shape = (a.shape[0], b.shape[1])
    *batch, m, n = shape
    # The innermost loop runs over columns: few of them are computed as rows of the transposed product.
    swap = n < min(m, NARROW)
    rows, columns, row_step, column_step = (n, m, 1, n) if swap else (m, n, n, 1)
    left, right = (b, a) if swap else (a, b)
    sums = np.zeros((math.prod(batch), rows, columns), engine.carrier)
    with np.errstate(invalid="ignore"):  # converting a signalling NaN
        left, right = (_matrices(x, batch, engine.carrier, transpose=swap) for x in (left, right))
    blocks = scales and [_matrices(x, batch, np.float64, transpose=swap) for x in (scales[::-1] if swap else scales)]

    def work(tile: tuple[int, int, int]) -> None:
        i, start, stop = tile
        place = Place(i * m * n + start * row_step, row_step, column_step, draw, swap)
        if blocks:
            rows_of, columns_of = blocks[0][i % len(blocks[0])], blocks[1][i % len(blocks[1])]
            place = place._replace(scales=(rows_of[start:stop], columns_of))
        engine.run(left[i % len(left), start:stop], right[i % len(right)], sums[i, start:stop], place)

    run_all(work, _tiles(len(sums), rows, columns * a.shape[-1] * engine.cost))
    return (sums.transpose(0, 2, 1) if swap else sums).reshape(-1)


def _as_rows(x: NDArray) -> NDArray:
    """The leading axes of an array of matrices as rows of one matrix."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _matrices(x: NDArray, batch: list[int], carrier: FloatType, transpose: bool) -> NDArray:
    """The matrices of an operand, one for every product or a single one for all, in the carrier's type."""
    if transpose:
        x = np.swapaxes(x, -1, -2)
    if x.ndim > 2:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
    if x.dtype != carrier or not x.flags.carray:
        x = np.array(x, carrier, order="C")
    return x[np.newaxis] if x.ndim == 2 else x.reshape(math.prod(batch), *x.shape[-2:])


def _tiles(matrices: int, rows: int, work_of_row: float) -> list[tuple[int, int, int]]:
    """(matrix, first row, last row) of the pieces that threads take."""
    worthwhile = busy_threads(matrices * rows * work_of_row)
    if matrices == 1 and worthwhile < 2:
        return [(0, 0, rows)]
    pieces = min(-(-worthwhile // max(matrices, 1)), rows)
    step = -(-rows // pieces) if pieces > 1 else max(rows, 1)
    return [(i, start, min(start + step, rows)) for i in range(matrices) for start in range(0, rows, step)]


def busy_threads(work: float) -> int:
    """How many threads are worth waking for so many nanoseconds of work; 0 if not even one is kept busy."""
    return min(get_threads(), int(work / LEAST_WORK))
