"""Sums of products of arrays: rounding the operands, cutting the result into tiles, rounding the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.accumulate.accumulator import (
    Accumulator,
    Engine,
    Operand,
    Operands,
    Place,
    Scales,
    as_accumulator,
)
from simfloat.accumulate.facts import facts_of
from simfloat.accumulate.scales import as_scales, scaled
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import FloatType, as_operand, check_rounding, result_dtype
from simfloat.arithmetic.plan import Draw, plan_for, round_all, take_draw
from simfloat.arithmetic.round import round_array
from simfloat.arithmetic.sources import Elements
from simfloat.arithmetic.stream import BitStream
from simfloat.arithmetic.threads import get_threads, run_all
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even

#: Nanoseconds of work below which a second thread costs more than it saves.
LEAST_WORK = 200_000

#: Elements below which an operand is rounded without a look at its numbers.
SMALL = 1 << 12

#: Columns below which the inner loop, which runs over columns, is too short to be quick.
NARROW = 64

Inputs = Format | str | tuple[Format | str, Format | str] | None


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    inputs: Inputs = None,
    accumulate: Accumulator | Format | str,
    output: Format | str | None = None,
    rounding: Rounding = nearest_even,
    scales: tuple[ArrayLike, ArrayLike] | None = None,
    stream: BitStream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The matrix product of `a` and `b` as hardware with this accumulator would compute it.

    Shapes and the broadcasting of leading axes are numpy.matmul's. Operands are first rounded to `inputs` (a format,
    a pair for a and b, or None to take them as they are), to nearest even. Each sum runs over ascending k in the
    order and with the roundings of `accumulate`: an accumulator, or a format for `sequential`. The result is rounded
    to `output`, by default the accumulator's format, in the mode `rounding`, which concerns nothing else. Stochastic
    modes, here or in the accumulator, take their bits from `stream`; `observer` receives the events of the results.

    `scales`, a pair of arrays (..., m, k / block) and (..., k / block, n), are those of blocks of the operands along
    k, as :func:`simfloat.block_quantize` gives them. A tensor core with scales uses them as hardware does; any other
    accumulator sums the products of the scaled operands, which must be float64 numbers.

    float32 out if both operands are float32 and the output format fits, else float64.

    Raises ValueError if the inner sizes differ, if operands are too wide for a step to be exact, for
    ``accumulate=exact`` without an output, and for scales that are not finite numbers of the accumulator's format.
    """
    a, b = as_operand(a, "a"), as_operand(b, "b")
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {a.shape} and {b.shape}.")
    left = a if a.ndim > 1 else a[np.newaxis]
    right = b if b.ndim > 1 else b[:, np.newaxis]
    out = _checked_product(left, right, inputs, accumulate, output, rounding, scales, stream, observer, "matmul")
    shape = out.shape[:-2] + (out.shape[-2:-1] if a.ndim > 1 else ()) + (out.shape[-1:] if b.ndim > 1 else ())
    return out.reshape(shape)


def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    inputs: Inputs = None,
    accumulate: Accumulator | Format | str,
    output: Format | str | None = None,
    rounding: Rounding = nearest_even,
    stream: BitStream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The sum of the products of two vectors of equal length; options as in :func:`simfloat.matmul`."""
    a, b = as_operand(a, "a"), as_operand(b, "b")
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"dot takes two vectors of equal length, got shapes {a.shape} and {b.shape}.")
    row, column = a[np.newaxis], b[:, np.newaxis]
    return _checked_product(row, column, inputs, accumulate, output, rounding, None, stream, observer, "dot").reshape(
        ()
    )


def sum(
    x: ArrayLike,
    axis: int | None = None,
    *,
    accumulate: Accumulator | Format | str,
    inputs: Format | str | None = None,
    output: Format | str | None = None,
    rounding: Rounding = nearest_even,
    stream: BitStream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The sum of the elements along `axis`, computed as their dot product with ones; all of them if axis is None.

    Elements are taken in C order, whatever the memory; an empty sum is +0. Options as in :func:`simfloat.matmul`.
    """
    x = as_operand(x)
    if axis is None:
        rows = x.reshape(1, -1)
        shape: tuple[int, ...] = ()
    elif isinstance(axis, int | np.integer) and -x.ndim <= axis < x.ndim:
        rows = np.moveaxis(x, axis, -1)
        shape = rows.shape[:-1]
        rows = rows.reshape(math.prod(shape), x.shape[axis])
    else:
        raise ValueError(f"axis must be None or an integer from {-x.ndim} to {x.ndim - 1}, got {axis!r}.")
    ones = np.ones((rows.shape[1], 1), x.dtype)
    pair = None if inputs is None else (inputs, inputs)
    return _checked_product(rows, ones, pair, accumulate, output, rounding, None, stream, observer, "sum").reshape(
        shape
    )


def _checked_product(
    a: NDArray,
    b: NDArray,
    inputs: Inputs,
    accumulate: Accumulator | Format | str,
    output: Format | str | None,
    rounding: Rounding,
    scales: tuple[ArrayLike, ArrayLike] | None,
    stream: BitStream | None,
    observer: Observer | None,
    operation: str,
) -> NDArray[np.floating]:
    """The products of matrices under options as users give them."""
    check_rounding(rounding)
    accumulator = as_accumulator(accumulate)
    format = output_format(output, accumulator)
    return multiply_matrices(
        a,
        b,
        inputs=pair_of_inputs(inputs),
        accumulator=accumulator,
        output=format,
        rounding=rounding,
        dtype=result_dtype([a, b], format),
        stream=stream,
        observer=observer,
        operation=operation,
        scales=as_scales(scales, a, b, accumulator),
    )


def multiply_matrices(
    a: NDArray,
    b: NDArray,
    *,
    inputs: tuple[Format, Format] | None,
    accumulator: Accumulator,
    output: Format,
    rounding: Rounding,
    dtype: FloatType,
    stream: BitStream | None,
    observer: Observer | None,
    operation: str,
    scales: Scales | None = None,
) -> NDArray[np.floating]:
    """The products of matrices a (..., m, k) and b (..., k, n), in an array of type `dtype`."""
    shape = _result_shape(a, b)
    return contract(
        partial(_sums, shape, scales if accumulator.scales else None),
        a,
        b,
        shape,
        a.shape[-1],
        inputs=inputs,
        accumulator=accumulator,
        output=output,
        rounding=rounding,
        dtype=dtype,
        stream=stream,
        observer=observer,
        operation=operation,
        scales=scales,
    )


def contract(
    sums_of: Callable[[Engine, NDArray, NDArray, Draw | None], NDArray],
    a: NDArray,
    b: NDArray,
    shape: tuple[int, ...],
    depth: int,
    *,
    inputs: tuple[Format, Format] | None,
    accumulator: Accumulator,
    output: Format,
    rounding: Rounding,
    dtype: FloatType,
    stream: BitStream | None,
    observer: Observer | None,
    operation: str,
    scales: Scales | None = None,
) -> NDArray[np.floating]:
    """Round the operands, sum `depth` products for every element of an array of `shape`, and round the sums.

    `sums_of` computes the sums of the rounded operands with an engine, as one vector in C order.
    """
    draw = take_draw(stream, rounding, *accumulator.roundings)
    x, y = (_rounded(a, inputs[0]), _rounded(b, inputs[1])) if inputs else (Operand(a), Operand(b))
    if scales and not accumulator.scales:
        x, y, scales = scaled(x, scales[0], -1), scaled(y, scales[1], -2), None
    engine = accumulator.engine(Operands(x, y, depth, output, rounding, scales))
    sums = sums_of(engine, x.array, y.array, draw)
    if output == accumulator.result and output.has_nan and observer is None and not rounding.saturates:
        return sums.reshape(shape).astype(dtype, copy=False)  # numbers of the output format already
    out = np.empty(shape, dtype)
    plan = plan_for(output, rounding, engine.carrier)
    round_all(Elements(sums), out, plan, operation=operation, draw=draw, observer=observer)
    return out


def _rounded(x: NDArray, format: Format) -> Operand:
    """An operand rounded to its format."""
    if format == FP64 or (format == FP32 and x.dtype == np.float32):
        return Operand(x, None, format)
    dtype = np.float32 if x.dtype == np.float32 and format.fits_float32 else np.float64
    if x.size < SMALL:
        return Operand(round_array(x, format, dtype=dtype), None, format)
    # Operands are often in the format already, and to see that is quicker than to round them again.
    facts = facts_of(x)
    if facts.inside(format):
        return Operand(x, facts, format)
    return Operand(round_array(x, format, dtype=dtype), facts.rounded(format), format)


def pair_of_inputs(inputs: Inputs) -> tuple[Format, Format] | None:
    """The formats of both operands, None to take them as they are."""
    if inputs is None:
        return None
    if isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise ValueError(f"inputs is a format, or a pair of formats for a and b; got {len(inputs)} of them.")
        return as_format(inputs[0]), as_format(inputs[1])
    return as_format(inputs), as_format(inputs)


def output_format(output: Format | str | None, accumulator: Accumulator) -> Format:
    """The format of results: `output`, by default the accumulator's."""
    if output is not None:
        return as_format(output)
    if accumulator.result is None:
        raise ValueError("An exact sum has no format of its own: pass output=, the format it is rounded to.")
    return accumulator.result


def _result_shape(a: NDArray, b: NDArray) -> tuple[int, ...]:
    if a.ndim == b.ndim == 2:
        return (a.shape[0], b.shape[1])
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"The leading axes of shapes {a.shape} and {b.shape} do not broadcast.") from None
    return (*batch, a.shape[-2], b.shape[-1])


def _sums(
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
    sums = np.empty((math.prod(batch), rows, columns), engine.carrier)
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
    flags = x.flags
    if x.dtype != carrier or not flags.c_contiguous or not flags.carray:
        x = np.array(x, carrier, order="C")
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


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
