"""Matrix products: small ones in one call of an engine, others divided into tiles for several threads."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.machines import CPU, Device, is_on_gpu
from simfloat.arithmetic.operands import LEAST_ALIGNED, FloatType, copy, is_cache_aligned, zeros
from simfloat.arithmetic.threads import LEAST_WORK, busy_threads, run_all, scratch
from simfloat.sums.accumulator import Engine, Region, takes_stacks
from simfloat.sums.plan import PreparedSum
from simfloat.sums.scales import Scales

#: The number of elements of sums that a loop computes at a time for a stack of matrices, so that they stay in the
#: cache.
STACKED = 1 << 16

#: The number of elements that elementwise operations compute at a time, so that their arrays stay in the cache.
BATCH = 1 << 16

#: With fewer columns, the inner loop, which runs over columns, is too short to be fast.
FEW_COLUMNS = 64

#: A transposed right operand is copied, unless its engine has at most this cost and the product has at least this many
#: rows.
MOST_TURNED_COST, LEAST_TURNED_ROWS = 0.1, 32

#: The largest number of elements for which the memory for sums is reused.
MOST_REUSED = 1 << 20

#: Nanoseconds of work above which several threads share it.
LEAST_SHARED = 2 * LEAST_WORK

#: The number of reads above which copying an array to a cache-line boundary pays off.
LEAST_ALIGNED_READS = 32

#: The regions for sums without stochastic steps: for products, and for transposed products.
UPRIGHT, TURNED = Region(0, 0, 0, None), Region(0, 0, 0, None, True)


def sums_of_matrices(
    shape: tuple[int, ...], a: NDArray, b: NDArray, work: PreparedSum, is_transposed: bool = False
) -> NDArray:
    """Return the unrounded sums of matrices of `shape` in C order, or in C order of the transposed matrices."""
    machine, engine, quiet, is_final, draw, scales, initial, _ = work
    if len(shape) > 2 and b.ndim == 2:
        # One matrix on the right: the leading axes of the left one are rows.
        a, scales = _as_rows(a), scales and scales._replace(a=_as_rows(scales.a))
        shape = (a.shape[0], b.shape[1])
    by_operations = getattr(engine, "takes_batches", False)
    if by_operations or machine is not CPU or len(shape) > 2 or is_transposed or not initial is scales is None:
        return _sums_of_tiles(shape, a, b, scales, work, is_transposed)
    m, n = shape
    # Work that one thread finishes before it could wake another takes the short path below, without tiles and tasks.
    if m * n * a.shape[1] * engine.cost >= LEAST_SHARED:
        return _sums_of_tiles(shape, a, b, scales, work, is_transposed)
    # One tile, which one thread sums at once.
    carrier, region, may_turn = engine.carrier, UPRIGHT, m >= LEAST_TURNED_ROWS and b.strides[0] == b.itemsize
    # As in `_is_faster_turned`, which decides for a transposed right operand.
    swap = n < FEW_COLUMNS if n < m else may_turn and _is_faster_turned(m, n, b, engine.cost)
    if swap:
        a, b, m, n, region = b.T, a.T, n, m, TURNED
    if draw is not None:
        region = Region(0, 1, m, draw, True) if swap else Region(0, n, 1, draw)
    sums = np.zeros((m, n), carrier) if m * n < LEAST_ALIGNED else new_sums((m, n), carrier, is_final)
    if getattr(engine, "takes_ones", False):
        engine.run(
            _as_engine_reads(a, carrier, quiet, 1, True), _as_engine_reads(b, carrier, quiet, m, True), sums, region
        )
    else:
        # Small operands that need no copy, for which `as_carrier` would do nothing.
        # Contiguity first, as in `flat`.
        flags = a.flags
        left = a if a.dtype == carrier and flags.c_contiguous and flags.carray else as_carrier(a, carrier, quiet)
        flags = b.flags
        is_ready = b.dtype == carrier and b.size < LEAST_ALIGNED and flags.c_contiguous and flags.carray
        engine.run(left, b if is_ready else as_carrier(b, carrier, quiet, m), sums, region)
    return np.ascontiguousarray(sums.T) if swap else sums


def _is_faster_turned(m: int, n: int, b: NDArray, cost: float) -> bool:
    """Return True if the transposed product is faster: it has the same sums, because products commute."""
    # The inner loop runs over columns, and a short one costs as much as a longer one. So a few columns are computed as
    # rows of the transposed product.
    if n < m:
        return n < FEW_COLUMNS
    # The weights of a layer are a transposed right operand, for which loops need a copy. The transposed product needs
    # copies of the other operand and of the result instead. In a step of an MLP with a batch of 64 these are smaller.
    if m < LEAST_TURNED_ROWS or b.ndim != 2 or cost > MOST_TURNED_COST or b.strides[0] != b.itemsize:
        return False
    return len(b) * n > m * (len(b) + n)


def _sums_of_tiles(
    shape: tuple[int, ...], a: NDArray, b: NDArray, scales: Scales | None, work: PreparedSum, is_transposed: bool
) -> NDArray:
    """Sum as many tiles as keep the threads busy, of operands with these scales."""
    machine, engine, quiet, is_final, draw, _, initial, _ = work
    *batch, m, n = shape
    count = math.prod(batch)
    # The positions of draws must be swapped.
    swap = machine is CPU and _is_faster_turned(m, n, b, engine.cost)
    rows, columns = (n, m) if swap else (m, n)
    flips = swap != is_transposed  # the rows of the result are columns in these matrices
    row_step, column_step = (1, rows) if flips else (columns, 1)
    left, right = (b, a) if swap else (a, b)
    sums = new_sums((count, rows, columns), engine.carrier, is_final, machine)
    if initial is not None:
        addend = initial.reshape(count, columns, rows) if flips else initial.reshape(count, rows, columns)
        start_sums(addend.transpose(0, 2, 1) if flips else addend, sums)
    ones = getattr(engine, "takes_ones", False)
    left = _matrices(left, batch, engine.carrier, swap, quiet, ones=ones)
    right = _matrices(right, batch, engine.carrier, swap, quiet, rows, ones)
    pair = scales and ((scales.b, scales.a) if swap else (scales.a, scales.b))
    blocks = pair and [_matrices(x, batch, np.float64, swap, False) for x in pair]
    _MatrixTask(machine, engine, left, right, sums, draw, blocks, swap, row_step, column_step).compute_all()
    return (sums.transpose(0, 2, 1) if flips else sums).reshape(-1)


def new_sums(shape: tuple[int, ...], carrier: FloatType, lasting: bool, device: Device = CPU) -> NDArray:
    """Return zeros for sums; scratch memory is reused for large arrays that are needed only until they are rounded."""
    size = math.prod(shape)
    if lasting or device is not CPU or not LEAST_ALIGNED <= size <= MOST_REUSED:
        return zeros(shape, carrier, device)
    # Fresh memory costs page faults: a step of an MLP (784-256-128-10, bf16-standard) had 376 of them. Without them,
    # and without casts of parameters that change nothing, it took 0.74 of the time.
    sums = scratch("sums", size, carrier).reshape(shape)
    sums.fill(0)
    return sums


def start_sums(initial: NDArray, sums: NDArray) -> None:
    """Copy initial values to sums; a signalling NaN in them gives no warning."""
    with np.errstate(invalid="ignore"):
        sums[:] = initial


def as_carrier(x: NDArray, carrier: FloatType, has_no_signalling_nan: bool, reads: int = 1) -> NDArray:
    """Return the values in the dtype of the engine and in C order.

    Without signalling NaN, warnings need not be suppressed. If rows are read often, the array is aligned to the cache.
    """
    if type(x) is not np.ndarray and is_on_gpu(x):
        return x if x.dtype == carrier and x.flags.c_contiguous else copy(x, carrier)
    if x.dtype == carrier:
        # A vector that crosses a cache line needs two loads: products of aligned operands and sums took 0.6 to 0.8 of
        # the time. A copy pays off if rows are read often.
        lies_well = reads < LEAST_ALIGNED_READS or x.size < LEAST_ALIGNED or is_cache_aligned(x)
        return x if lies_well and (flags := x.flags).c_contiguous and flags.carray else copy(x, carrier)
    if has_no_signalling_nan:
        return copy(x, carrier)
    with np.errstate(invalid="ignore"):
        return copy(x, carrier)


def _as_engine_reads(x: NDArray, carrier: FloatType, has_no_signalling_nan: bool, reads: int, ones: bool) -> NDArray:
    """Return an operand in the dtype and layout of an engine. `ones`: a repeated value may keep its strides of 0."""
    if ones and x.size and not any(x.strides):
        return np.broadcast_to(x[(slice(1),) * x.ndim].astype(carrier), x.shape)
    return as_carrier(x, carrier, has_no_signalling_nan, reads)


class _MatrixTask(NamedTuple):
    """The common data of the tiles of products, in the layout of the engine; one factor may serve all products."""

    machine: Device
    engine: Engine
    left: NDArray  # (products or 1, rows, k)
    right: NDArray  # (products or 1, k, columns)
    sums: NDArray  # (products, rows, columns)
    draw: Draw | None
    blocks: list[NDArray] | None  # the scales of blocks of left and right
    swap: bool  # True if the products are transposed: left is the right operand of the user
    row_step: int
    column_step: int

    def compute_all(self) -> None:
        """Sum the products: in threads on a CPU, or in as few launches as possible on a GPU."""
        count, rows, columns = self.sums.shape
        work_of_row = columns * self.left.shape[-1] * self.engine.cost
        in_pieces, draws = self.machine.in_pieces, self.draw is not None
        if getattr(self.engine, "takes_batches", False):
            everything = [(slice(0, count), slice(0, rows))]  # a GPU's operations take all elements at once
            run_all(self._compute_batch, _batches(count, rows, columns) if in_pieces else everything)
        elif in_pieces and takes_stacks(self.engine) and not draws and count > busy_threads(count * rows * work_of_row):
            # There are enough matrices for all threads: each thread sums a stack of them in one call of the loop, since
            # entering a loop takes half a microsecond. The positions of draws are given for one matrix at a time.
            run_all(self._compute_stack, _stacks(count, rows * columns, rows * work_of_row))
        elif in_pieces:
            tiles = _tiles(count, rows, work_of_row)
            run_all(self._compute_each, _groups(tiles, count * rows * work_of_row))
        # On a GPU a stack is one launch.
        elif not draws and count > 1 and takes_stacks(self.engine):
            self._compute_stack(slice(None))
        else:
            for i in range(count):
                self._compute((i, 0, rows))

    def _compute_each(self, tiles: list[tuple[int, int, int]]) -> None:
        for tile in tiles:
            self._compute(tile)

    def _compute(self, tile: tuple[int, int, int]) -> None:
        i, first, last = tile
        scales = None
        if self.blocks:
            left_scales, right_scales = self.blocks
            scales = left_scales[i % len(left_scales)][first:last], right_scales[i % len(right_scales)]
        rows, columns = self.sums.shape[1:]
        start = i * rows * columns + first * self.row_step
        region = Region(
            start, self.row_step, self.column_step, self.draw, self.swap, scales=scales, machine=self.machine
        )
        left, right = self.left[i % len(self.left), first:last], self.right[i % len(self.right)]
        self.engine.run(left, right, self.sums[i, first:last], region)

    def _compute_stack(self, part: slice) -> None:
        left, right = (x if len(x) == 1 else x[part] for x in (self.left, self.right))
        region = (TURNED if self.swap else UPRIGHT)._replace(machine=self.machine)
        self.engine.run(stack_matrices(left), stack_matrices(right), stack_matrices(self.sums[part]), region)

    def _compute_batch(self, part: tuple[slice, slice]) -> None:
        matrices, rows = part
        left, right, *scales = (
            x if len(x) == 1 else x[matrices] for x in (self.left, self.right, *(self.blocks or ()))
        )
        size = self.sums.shape[1] * self.sums.shape[2]
        region = Region(
            matrices.start * size + rows.start * self.row_step,
            self.row_step,
            self.column_step,
            self.draw,
            self.swap,
            scales=(scales[0][:, rows], scales[1]) if scales else None,
            machine=self.machine,
            matrix_step=size,
        )
        self.engine.run(left[:, rows], right, self.sums[matrices, rows], region)


def stack_matrices(x: NDArray) -> NDArray:
    """Stack matrices below one another; a single matrix stays as it is."""
    return x.reshape(x.shape[0] * x.shape[1], x.shape[2]) if x.ndim == 3 else x


def _as_rows(x: NDArray) -> NDArray:
    """Return the leading axes of an array of matrices as rows of one matrix."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _matrices(
    x: NDArray,
    batch: list[int],
    carrier: FloatType,
    transpose: bool,
    has_no_signalling_nan: bool,
    reads: int = 1,
    ones: bool = False,
) -> NDArray:
    """Return the matrices of an operand in the dtype of the engine: one for every product, or one for all."""
    if transpose:
        x = np.swapaxes(x, -1, -2)
    if x.ndim > 2:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
    x = _as_engine_reads(x, carrier, has_no_signalling_nan, reads, ones)
    return x[np.newaxis] if x.ndim == 2 else x.reshape(math.prod(batch), *x.shape[-2:])


def _tiles(matrices: int, rows: int, work_of_row: float) -> list[tuple[int, int, int]]:
    """Return (matrix, first row, last row) of the tiles."""
    worthwhile = busy_threads(matrices * rows * work_of_row)
    if matrices == 1 and worthwhile < 2:
        return [(0, 0, rows)]
    pieces = min(-(-worthwhile // max(matrices, 1)), rows)
    step = -(-rows // pieces) if pieces > 1 else max(rows, 1)
    return [(i, start, min(start + step, rows)) for i in range(matrices) for start in range(0, rows, step)]


def _groups(tiles: list[tuple[int, int, int]], work: float) -> list[list[tuple[int, int, int]]]:
    """Group the tiles that a thread takes at a time: handing out a small tile costs more than computing it."""
    step = -(-len(tiles) // max(int(work / LEAST_WORK), 1)) or 1
    return [tiles[first : first + step] for first in range(0, len(tiles), step)]


def _batches(matrices: int, rows: int, columns: int) -> list[tuple[slice, slice]]:
    """Return slices of matrices and of their rows: rows of a single matrix, or all rows of several."""
    most_rows = min(max(BATCH // max(columns, 1), 1), rows)
    most = max(BATCH // max(rows * columns, 1), 1)
    return [
        (slice(i, i + most), slice(first, first + most_rows))
        for i in range(0, matrices, most)
        for first in range(0, rows, max(most_rows, 1))
    ]


def _stacks(matrices: int, size: int, work_of_matrix: float) -> list[slice]:
    """Return slices of the matrices that a thread takes at a time; each matrix has `size` sums."""
    pieces = max(busy_threads(matrices * work_of_matrix), -(-matrices * size // STACKED), 1)
    step = -(-matrices // pieces)
    return [slice(first, first + step) for first in range(0, matrices, step)]
