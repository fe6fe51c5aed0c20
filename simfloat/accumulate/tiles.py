"""Products of matrices cut into tiles, which threads sum with an engine."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.contraction import Work
from simfloat.accumulate.engine import Region
from simfloat.arithmetic.arrays import FEW, begins_a_line, copy, zeros
from simfloat.arithmetic.machines import CPU, Machine, is_on_gpu, machine_of
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.threads import LEAST_WORK, busy_threads, run_all, scratch

#: Columns below which the inner loop, which runs over columns, is too short to be quick.
NARROW = 64

#: Elements up to which memory for sums is kept for the next ones.
KEPT = 1 << 20

#: From so many reads on it is worth copying an array to where a line of the cache begins.
OFTEN = 32


def sums_of_matrices(shape: tuple[int, ...], work: Work, turned: bool = False) -> NDArray:
    """The unrounded sums of matrices of `shape` as one vector in C order, that of transposed matrices if `turned`."""
    engine, a, b, draw, scales, start, quiet, _ = work
    if b.ndim == 2 and a.ndim > 2:
        # One matrix on the right: the leading axes of the left one are rows.
        a, scales = _as_rows(a), scales and scales._replace(a=_as_rows(scales.a))
        work = work._replace(a=a)
        shape = (a.shape[0], b.shape[1])
    machine = machine_of(a)
    if machine is CPU and len(shape) == 2 and not turned and start is None and scales is None:
        if shape[0] * shape[1] * a.shape[-1] * engine.cost < 2 * LEAST_WORK:
            return _sums_of_one_tile(work, *shape)
    *batch, m, n = shape
    count = math.prod(batch)
    # The innermost loop runs over columns: few of them are computed as rows of the transposed product.
    swap = machine is CPU and n < min(m, NARROW)
    rows, columns = (n, m) if swap else (m, n)
    flips = swap != turned  # the result's rows are columns here
    row_step, column_step = (1, rows) if flips else (columns, 1)
    left, right = (b, a) if swap else (a, b)
    sums = _zeros((count, rows, columns), engine.carrier, machine)
    if start is not None:
        addend = start.reshape(count, columns, rows) if flips else start.reshape(count, rows, columns)
        sums[:] = addend.transpose(0, 2, 1) if flips else addend
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

    if machine is CPU:
        run_all(compute, _tiles(count, rows, columns * a.shape[-1] * engine.cost))
    else:
        for i in range(count):
            compute((i, 0, rows))
    return (sums.transpose(0, 2, 1) if flips else sums).reshape(-1)


def _sums_of_one_tile(work: Work, m: int, n: int) -> NDArray:
    """The same for one product that one thread sums: a small one is sooner summed than cut into tiles."""
    engine, a, b, draw, _, _, quiet, _ = work
    carrier = engine.carrier
    swap = n < min(m, NARROW)
    if swap:
        a, b, m, n = b.T, a.T, n, m
    sums = np.zeros((m, n), carrier) if m * n < FEW else _zeros((m, n), carrier)
    region = Region(0, 1, m, draw, True) if swap else Region(0, n, 1, draw)
    engine.run(_in_carrier(a, carrier, quiet), _in_carrier(b, carrier, quiet, m), sums, region)
    return (sums.T if swap else sums).reshape(-1)


def _zeros(shape: tuple[int, ...], carrier: FloatType, machine: Machine = CPU) -> NDArray:
    """What sums start from, which lives until they are rounded: many share memory that is at hand."""
    size = math.prod(shape)
    if machine is not CPU or not FEW <= size <= KEPT:
        return zeros(shape, carrier, machine)
    sums = scratch("sums", size, carrier).reshape(shape)
    sums.fill(0)
    return sums


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
    x = _in_carrier(x, carrier, quiet, reads)
    return x[np.newaxis] if x.ndim == 2 else x.reshape(math.prod(batch), *x.shape[-2:])


def _in_carrier(x: NDArray, carrier: FloatType, quiet: bool, reads: int = 1) -> NDArray:
    """The numbers in the carrier's type and in C order; `quiet` if there is no signalling NaN among them for certain.

    If rows are read often, from a line of the cache on.
    """
    if is_on_gpu(x):
        return np.ascontiguousarray(x, carrier, like=x)
    if x.dtype == carrier:
        lies_well = x.flags.carray and (reads < OFTEN or x.size < FEW or begins_a_line(x))
        return x if lies_well else copy(x, carrier)
    if quiet:
        return copy(x, carrier)
    with np.errstate(invalid="ignore"):
        return copy(x, carrier)


def _tiles(matrices: int, rows: int, work_of_row: float) -> list[tuple[int, int, int]]:
    """(matrix, first row, last row) of the pieces that threads take."""
    worthwhile = busy_threads(matrices * rows * work_of_row)
    if matrices == 1 and worthwhile < 2:
        return [(0, 0, rows)]
    pieces = min(-(-worthwhile // max(matrices, 1)), rows)
    step = -(-rows // pieces) if pieces > 1 else max(rows, 1)
    return [(i, start, min(start + step, rows)) for i in range(matrices) for start in range(0, rows, step)]
