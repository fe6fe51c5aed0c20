"""Partial sums after every step of a sum, and sums over the replicas of a model.

Sums over replicas are computed in the orders of connected devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.machines import on_device_of
from simfloat.arithmetic.operands import as_operand, empty
from simfloat.arithmetic.target import Observer
from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.sums.accumulator import Accumulator, Engine, Region, TileScales, whole_steps
from simfloat.sums.blocked import Blocked, InRuns, RunsEngine
from simfloat.sums.by_operations import OperationsEngine
from simfloat.sums.contraction import prepare_sum, round_sums
from simfloat.sums.one_format import InOneFormat, Pairwise, pairwise, running_sums
from simfloat.sums.plan import Options
from simfloat.sums.product import Inputs, as_vectors, read_options, refuse_flags
from simfloat.sums.product import sum as summed
from simfloat.sums.scales import Scales
from simfloat.sums.sequential import SequentialSum, as_accumulator
from simfloat.sums.tiles import as_carrier


@in_usual_environment
def partial_sums(
    a: ArrayLike,
    b: ArrayLike,
    *,
    inputs: Inputs = None,
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    initial: ArrayLike | None = None,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: bool = False,
) -> NDArray[np.floating]:
    """Return the partial sums of a dot product after every step of the accumulator; the last one is the result of
    `dot`.

    A step is a product, a chunk of a matrix unit, a run of a blocked sum, or a scaled block; the last one may be short.
    Each partial sum is rounded to `output` as if the sum ended there.

    This takes the time of one sum, with one exception. If `stream` is a `GivenBits`, and both the inner and the outer
    sum of a `blocked` accumulator are stochastic, the outer sum is recomputed for every step, because its draws come
    after the draws of all runs. Partial sums of a Kahan sum are computed on the CPU, even for operands on a GPU.

    Parameters:
        a, b: vectors of equal length.
        inputs: a format or a :func:`simfloat.cast` that a and b are first rounded to, or a pair of them; by default
            none.
        accumulate: an accumulator, or a format, which means `sequential(format)`.
        output: the format of the results; by default the format of the accumulator.
        rounding: the mode in which partial sums are rounded to `output`; by default to nearest even.
        initial: the start value of the sum, which is not itself one of the results; by default +0.
        stream: the random bits of stochastic modes (`BitStream` or `GivenBits`).
        observer: receives the rounding events of the casts and of the results.
        flags: must be False; :func:`simfloat.sum`, :func:`simfloat.dot` and :func:`simfloat.matmul` return flags.

    Returns:
        A vector with an element for each step. It is float32 if both vectors are float32 and the output format fits
        into float32, otherwise float64.

    Raises:
        ValueError: if the accumulator has no partial sums, like `pairwise`, `tree`, `lanes` and `exact`.
        ValueError: for the operands and options that :func:`simfloat.dot` rejects.

    Examples:
        >>> sf.partial_sums([2046.0, 1.0, 1.0, 1.0], np.ones(4), accumulate=sf.FP16)
        array([2046., 2047., 2048., 2048.])
    """
    if flags is not False:
        refuse_flags("partial_sums", flags)
    a, b = as_vectors(a, b)
    options = read_options([a, b], inputs, accumulate, output, rounding, stream, observer, "partial_sums")
    accumulator = options.accumulator
    if accumulator.chunk is None:
        raise ValueError(f"{accumulator} has no partial sums: its terms are not added one after the other.")
    return running_sums_of_vectors(a, b, options, None if initial is None else as_operand(initial, "initial"))


def running_sums_of_vectors(
    a: NDArray, b: NDArray, options: Options, initial: NDArray | None = None
) -> NDArray[np.floating]:
    """Return the partial sums of two vectors under these options, starting from `initial`; nothing is checked."""
    accumulator = options.accumulator
    row, column, work = prepare_sum(a[np.newaxis], b[:, np.newaxis], (), a.size, options, initial=initial)
    start = np.zeros((1, 1), like=row) if work.initial is None else work.initial.reshape(1, 1)
    row, column = (as_carrier(x, work.engine.carrier, work.has_no_signalling_nan) for x in (row, column))
    sums = _running_sums(
        row, column, work.engine, accumulator, work.scales, Region(0, 1, 1, work.draw, machine=work.device), start
    )
    if not options.target.rounding.is_stochastic:
        return round_sums(sums, sums.shape, options, work, row, column)
    # Each partial sum is the result of `dot` if the sum ended there: element 0 of a result.
    results = empty(sums.shape, options.target.dtype, work.device)
    for i in range(sums.size):
        results[i] = round_sums(sums[i : i + 1], (), options, work, row, column)
    return results


def _running_sums(
    row: NDArray,
    column: NDArray,
    engine: Engine,
    accumulator: Accumulator,
    scales: Scales | None,
    region: Region,
    start: NDArray,
) -> NDArray:
    """Return the partial sum after every chunk, in the dtype of the engine."""
    if isinstance(engine, OperationsEngine):
        return engine.running_sums(row, column, start)
    if isinstance(engine, InRuns):
        # All runs are summed first, and then their results: inner and outer sums take their draws from different steps.
        whole = region._replace(scales=scales and _scales_of_products(scales, slice(0, row.size)))
        results = engine.results(row, column, whole)
        ones, outer, at = (
            np.ones_like(results.T),
            _outer_accumulator(engine, accumulator),
            region._replace(is_transposed=True),
        )
        return _running_sums(ones, results, engine.outer, outer, None, at, start).astype(engine.carrier, copy=False)
    # A compensated sum cannot continue from a partial sum, because its correction is lost. A separate loop stores every
    # partial sum, in the time of one sum; a sum for every length took time in proportion to the square of the length.
    if isinstance(accumulator, InOneFormat):
        sums = running_sums(accumulator, row, column, start, region)
        return region.machine.to_device(sums.astype(engine.carrier, copy=False))
    return _resumed_sums(row, column, engine, accumulator, scales, region, start)


def _resumed_sums(
    row: NDArray,
    column: NDArray,
    engine: Engine,
    accumulator: Accumulator,
    scales: Scales | None,
    region: Region,
    start: NDArray,
) -> NDArray:
    """Return the partial sums of an accumulator that resumes: each one starts from the one before.

    If a draw of words serves several steps, it starts from the last partial sum at which a draw begins.
    """
    chunk, terms = accumulator.chunk, row.size
    assert chunk is not None
    span = 1 if accumulator.resumes else whole_steps(accumulator.roundings, 1)
    sums = np.zeros(-(-terms // chunk), engine.carrier, like=row)
    running = np.zeros((1, 1), engine.carrier, like=row)
    for i in range(sums.size):
        # Words are drawn for four or sixteen steps at a time. A piece that started inside such a group would read the
        # first words of the group. So it starts with the group, and up to fifteen steps are computed again.
        first = i - i % span
        within = slice(first * chunk, min((i + 1) * chunk, terms))
        running[:] = sums[first - 1] if first else start
        at = region._replace(step=first, scales=scales and _scales_of_products(scales, within))
        engine.run(np.array(row[:, within], order="C", like=row), column[within], running, at)
        sums[i] = running[0, 0]
    return sums


def _outer_accumulator(engine: InRuns, accumulator: Accumulator) -> Accumulator:
    """Return the accumulator of the results of runs."""
    if isinstance(engine, RunsEngine) and engine.scale_removal is not None:
        return engine.scale_removal.total
    assert isinstance(accumulator, Blocked)
    return accumulator.outer


def _scales_of_products(scales: Scales, products: slice) -> TileScales:
    """Return the scales of the blocks of some products, which start at the start of a block."""
    blocks = slice(products.start // scales.block, -(-products.stop // scales.block))
    return scales.a[:, blocks].astype(np.float64), scales.b[blocks].astype(np.float64)


Order = Literal["ring", "tree", "sequential"]


@in_usual_environment
def all_reduce(
    parts: Sequence[ArrayLike] | ArrayLike,
    *,
    order: Order = "ring",
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """Sum one array per replica, rounding each addition, and return the sum that every replica receives.

    Data-parallel training adds gradients in this way. The orders are:

    * ``"ring"``: the elements, in C order, are divided into chunks of ceil(size / n) for n replicas; the last chunks
      may be short or empty. Chunk c starts at replica c + 1, continues through c + 2, ... and ends at c. Each replica
      adds its own values to the sum that it receives, so elements of different chunks are added in different orders.
    * ``"tree"``: neighbours are added level by level, and an odd last one is carried up, as in
      :func:`simfloat.pairwise`.
    * ``"sequential"``: one after the other, starting with the first replica.

    A replica sends numbers in the format of the accumulator. A Format (or :func:`simfloat.sequential`) rounds each
    addition to it, and also the first value that is sent. Other accumulators sum the values of each element in the
    order of the ring, or in sequential order.

    Parameters:
        parts: a sequence of arrays of one shape, or one array (replicas, ...).
        order: "ring", "tree" or "sequential".
        accumulate: an accumulator, or a format, which means `sequential(format)`. A tree accepts a format, a sequential
            or a pairwise accumulator.
        output: the format of the result; by default the format of the accumulator.
        rounding: the mode in which sums are rounded to `output`; by default to nearest even.
        stream: the random bits of stochastic modes (`BitStream` or `GivenBits`).
        observer: receives the rounding events of the results.

    Returns:
        An array of the shape of a part. It is float32 if all parts are float32 and the output format fits into float32,
        otherwise float64.

    Raises:
        ValueError: if `parts` is empty, or if the shapes differ.
        ValueError: if the order is unknown, or does not support the accumulator.
        ValueError: for the options that :func:`simfloat.sum` rejects.

    Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009 (ring); NCCL.

    Examples:
        >>> parts = [[256.0, 1.0], [1.0, 1.0], [1.0, 256.0], [1.0, 1.0]]
        >>> sf.all_reduce(parts, accumulate=sf.BF16)  # chunks of an element; the first begins with 1 + 1 + 1
        array([260., 256.])
        >>> sf.all_reduce(parts, order="tree", accumulate=sf.BF16)
        array([258., 258.])
    """
    numbers = _stack_parts(parts)
    if order not in get_args(Order):
        raise ValueError(f"order is one of {', '.join(map(repr, get_args(Order)))}; got {order!r}.")
    accumulator = as_accumulator(accumulate)
    try:
        accumulator.for_inputs(None, None)
    except ValueError:
        raise ValueError(
            f"{accumulator} depends on the formats of the operands, which all_reduce does not round: write them in the "
            "accumulator, as in tensor_core('hopper', FP16)."
        ) from None
    if order == "tree":
        accumulator = _as_tree(accumulator)
    rows = in_addition_order(numbers.reshape(len(numbers), math.prod(numbers.shape[1:])), order)
    result = summed(rows, 0, accumulate=accumulator, output=output, rounding=rounding, stream=stream, observer=observer)
    return result.reshape(numbers.shape[1:])


def in_addition_order(rows: NDArray[np.floating], order: Order) -> NDArray[np.floating]:
    """Return the values of every column, one per replica, in the order in which they are added."""
    if order != "ring":
        return rows
    ordered: NDArray[np.floating] = rows[
        on_device_of(_replicas_in_ring_order(*rows.shape), rows), on_device_of(np.arange(rows.shape[1]), rows)
    ]
    return ordered


def _stack_parts(parts: Any) -> NDArray:
    """Return the parts in one array (replicas, ...); ValueError if their shapes differ."""
    if hasattr(parts, "shape") and len(parts.shape) and len(parts):
        return as_operand(parts, "parts")
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not len(parts):
        raise ValueError("parts is a list with an array for each replica, at least one, or one array (replicas, ...).")
    arrays = [as_operand(part, "a part") for part in parts]
    shapes = [array.shape for array in arrays]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"The parts of all replicas have one shape; got {', '.join(map(str, dict.fromkeys(shapes)))}.")
    return np.stack(arrays)


def _replicas_in_ring_order(replicas: int, size: int) -> NDArray[np.intp]:
    """Return the replica that adds to each element at each step, (replicas, size)."""
    chunks = np.arange(size) // max(-(-size // replicas), 1)
    # Chunk c starts at replica c + 1 and is passed on, so that in step s replica c + 1 + s adds to it; c is the last
    # one.
    return (chunks + 1 + np.arange(replicas)[:, np.newaxis]) % replicas


def _as_tree(accumulator: Accumulator) -> Accumulator:
    if isinstance(accumulator, Pairwise):
        return accumulator
    if isinstance(accumulator, SequentialSum) and accumulator.products is None:
        return pairwise(accumulator.format, rounding=accumulator.rounding)
    raise ValueError(f"A tree takes a format, a sequential or a pairwise accumulator, got {accumulator!r}.")
