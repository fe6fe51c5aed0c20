"""Products of matrices cut into tiles, which threads sum with an engine."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.contraction import Work
from simfloat.accumulate.engine import Region, is_direct
from simfloat.accumulate.hardware import InImages
from simfloat.accumulate.one_tile import NARROW, begin_from, in_carrier, sums_of_one_tile, zeros_for
from simfloat.arithmetic.machines import CPU, machine_of
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.threads import LEAST_WORK, busy_threads, run_all

#: Elements of the sums that a loop makes at a time of a stack of matrices, lest they leave the cache.
STACKED = 1 << 16


def sums_of_matrices(shape: tuple[int, ...], work: Work, turned: bool = False) -> NDArray:
    """The unrounded sums of matrices of `shape` as one vector in C order, that of transposed matrices if `turned`."""
    engine, a, b, draw, scales, start, quiet, _, is_final = work
    if b.ndim == 2 and a.ndim > 2:
        # One matrix on the right: the leading axes of the left one are rows.
        a, scales = _as_rows(a), scales and scales._replace(a=_as_rows(scales.a))
        work = work._replace(a=a)
        shape = (a.shape[0], b.shape[1])
    machine = machine_of(a)
    if machine is CPU and len(shape) == 2 and not turned and start is None and scales is None:
        if shape[0] * shape[1] * a.shape[-1] * engine.cost < 2 * LEAST_WORK:
            return sums_of_one_tile(engine, a, b, draw, quiet, is_final).reshape(-1)
    *batch, m, n = shape
    count = math.prod(batch)
    # The innermost loop runs over columns: few of them are computed as rows of the transposed product.
    swap = machine is CPU and n < min(m, NARROW)
    rows, columns = (n, m) if swap else (m, n)
    flips = swap != turned  # the result's rows are columns here
    row_step, column_step = (1, rows) if flips else (columns, 1)
    left, right = (b, a) if swap else (a, b)
    sums = zeros_for((count, rows, columns), engine.carrier, is_final, machine)
    if start is not None:
        addend = start.reshape(count, columns, rows) if flips else start.reshape(count, rows, columns)
        begin_from(addend.transpose(0, 2, 1) if flips else addend, sums)
    left = _matrices(left, batch, engine.carrier, swap, quiet)
    right = _matrices(right, batch, engine.carrier, swap, quiet, reads=rows)
    pair = scales and ((scales.b, scales.a) if swap else (scales.a, scales.b))
    blocks = pair and [_matrices(x, batch, np.float64, swap, False) for x in pair]

    def compute(tile: tuple[int, int, int]) -> None:
        i, first, last = tile
        factors = None
        if blocks:
            factors = blocks[0][i % len(blocks[0])][first:last], blocks[1][i % len(blocks[1])]
        region = Region(i * m * n + first * row_step, row_step, column_step, draw, swap, scales=factors)
        engine.run(left[i % len(left), first:last], right[i % len(right)], sums[i, first:last], region)

    def compute_stack(part: slice) -> None:
        one, other = (x if len(x) == 1 else x[part] for x in (left, right))
        engine.run(_stacked(one), _stacked(other), _stacked(sums[part]), Region(0, 0, 0, None, swap))

    work_of_row = columns * a.shape[-1] * engine.cost
    if machine is CPU and is_direct(engine) and draw is None and count > busy_threads(count * rows * work_of_row):
        run_all(compute_stack, _stacks(count, rows * columns, rows * work_of_row))
    elif machine is CPU:
        run_all(compute, _tiles(count, rows, work_of_row))
    elif draw is None and count > 1 and (is_direct(engine) or isinstance(engine, InImages)):
        compute_stack(slice(None))
    else:
        for i in range(count):
            compute((i, 0, rows))
    return (sums.transpose(0, 2, 1) if flips else sums).reshape(-1)


def _stacked(x: NDArray) -> NDArray:
    """Matrices below one another."""
    return x.reshape(x.shape[0] * x.shape[1], x.shape[2])


def _as_rows(x: NDArray) -> NDArray:
    """The leading axes of an array of matrices as rows of one matrix."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _matrices(
    x: NDArray, batch: list[int], carrier: FloatType, transpose: bool, quiet: bool, reads: int = 1
) -> NDArray:
    """The matrices of an operand, one for every product or a single one for all, in the carrier's type."""
    if transpose:
        x = np.swapaxes(x, -1, -2)
    if x.ndim > 2:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
    x = in_carrier(x, carrier, quiet, reads)
    return x[np.newaxis] if x.ndim == 2 else x.reshape(math.prod(batch), *x.shape[-2:])


def _tiles(matrices: int, rows: int, work_of_row: float) -> list[tuple[int, int, int]]:
    """(matrix, first row, last row) of the pieces that threads take."""
    worthwhile = busy_threads(matrices * rows * work_of_row)
    if matrices == 1 and worthwhile < 2:
        return [(0, 0, rows)]
    pieces = min(-(-worthwhile // max(matrices, 1)), rows)
    step = -(-rows // pieces) if pieces > 1 else max(rows, 1)
    return [(i, start, min(start + step, rows)) for i in range(matrices) for start in range(0, rows, step)]


def _stacks(matrices: int, size: int, work_of_matrix: float) -> list[slice]:
    """The matrices that threads take at a time, whose sums have so many elements each."""
    pieces = max(busy_threads(matrices * work_of_matrix), -(-matrices * size // STACKED), 1)
    step = -(-matrices // pieces)
    return [slice(first, first + step) for first in range(0, matrices, step)]
