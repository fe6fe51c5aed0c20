"""How a sum comes about: its running sum after every step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.accumulate._blocked import Blocked
from simfloat.accumulate.accumulator import Accumulator, whole_steps
from simfloat.accumulate.blocked_engines import RunsEngine, StackedRunsEngine
from simfloat.accumulate.contraction import prepare_sum, round_sums
from simfloat.accumulate.engine import Engine, Region, TileScales
from simfloat.accumulate.given_draws import UserDrawsEngine
from simfloat.accumulate.one_format import InOneFormat, running_sums
from simfloat.accumulate.product import Inputs, as_vectors, read_options, refuse_flags
from simfloat.accumulate.product_plan import Options
from simfloat.accumulate.scales import Scales
from simfloat.accumulate.tiles import as_carrier
from simfloat.arithmetic.arrays import empty
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import as_operand
from simfloat.environment import in_usual_environment
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike


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
    """The running sum of a dot product after every step of the accumulator, in order; the last one is `dot`'s.

    A step is a product, a chunk of a unit, a run of a blocked sum, or a scaled block; the last one may be short. Each
    running sum is rounded to `output` as if the sum ended there. Options as in :func:`simfloat.dot`. The sum starts
    from the number `initial`, as that of dot, which is itself none of the running sums.

    The time is that of one sum and of so many steps, with one exception: where `stream` holds given draws, and both the
    runs of a blocked sum and their sum take some, the draws of the outer sum follow those of all runs, so it is another
    one for every step and is made anew. Running sums of a Kahan sum are made on the CPU wherever the operands lie.

    Raises ValueError for pairwise and exact sums, which have no running sum, and as :func:`simfloat.dot`.

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
        raise ValueError(f"{accumulator} has no running sum: its terms are not added one after the other.")
    return running_sums_of_vectors(a, b, options, None if initial is None else as_operand(initial, "initial"))


def running_sums_of_vectors(
    a: NDArray, b: NDArray, options: Options, initial: NDArray | None = None
) -> NDArray[np.floating]:
    """The running sums of two vectors under these options, from the number `given` on; nothing is checked."""
    accumulator = options.accumulator
    row, column, work = prepare_sum(a[np.newaxis], b[:, np.newaxis], (), a.size, options, initial=initial)
    start = np.zeros((1, 1), like=row) if work.initial is None else work.initial.reshape(1, 1)
    row, column = (as_carrier(x, work.engine.carrier, work.has_no_signalling_nan) for x in (row, column))
    sums = _running_sums(
        row, column, work.engine, accumulator, work.scales, Region(0, 1, 1, work.draw, machine=work.device), start
    )
    if not options.target.rounding.is_stochastic:
        return round_sums(sums, sums.shape, options, work, row, column)
    # Every running sum is what `dot` would return if the sum ended there: element 0 of a result.
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
    """The running sum after every chunk, in the engine's type."""
    if isinstance(engine, UserDrawsEngine):
        return engine.running_sums(row, column, start)
    if isinstance(engine, RunsEngine | StackedRunsEngine):
        # All runs are summed, then their results: inner and outer sums draw at steps of their own.
        whole = region._replace(scales=scales and _scales_of_products(scales, slice(0, row.size)))
        results = engine.results(row, column, whole)
        ones, outer, at = (
            np.ones_like(results.T),
            _outer_accumulator(engine, accumulator),
            region._replace(is_transposed=True),
        )
        return _running_sums(ones, results, engine.outer, outer, None, at, start).astype(engine.carrier, copy=False)
    # A compensated sum cannot go on from a running sum: its correction is lost. A loop of its own keeps every running
    # sum, in the time of one sum; a sum for every length took time in proportion to the square of the length.
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
    """The running sums of an accumulator that resumes: each starts from the one before it, or, where one draw of
    words serves several steps, from the last one at which a draw begins.
    """
    chunk, terms = accumulator.chunk, row.size
    assert chunk is not None
    span = 1 if accumulator.resumes else whole_steps(accumulator.roundings, 1)
    sums = np.zeros(-(-terms // chunk), engine.carrier, like=row)
    running = np.zeros((1, 1), engine.carrier, like=row)
    for i in range(sums.size):
        # Words are drawn for four or sixteen steps at a time. A piece that began inside such a group would read the
        # first words of the group, so it begins with the group, and up to fifteen steps are made again.
        first = i - i % span
        within = slice(first * chunk, min((i + 1) * chunk, terms))
        running[:] = sums[first - 1] if first else start
        at = region._replace(step=first, scales=scales and _scales_of_products(scales, within))
        engine.run(np.array(row[:, within], order="C", like=row), column[within], running, at)
        sums[i] = running[0, 0]
    return sums


def _outer_accumulator(engine: RunsEngine | StackedRunsEngine, accumulator: Accumulator) -> Accumulator:
    """The accumulator of the results of runs."""
    if isinstance(engine, RunsEngine) and engine.scale_removal is not None:
        return engine.scale_removal.total
    assert isinstance(accumulator, Blocked)
    return accumulator.outer


def _scales_of_products(scales: Scales, products: slice) -> TileScales:
    """The scales of the blocks of some products, which start where a block does."""
    blocks = slice(products.start // scales.block, -(-products.stop // scales.block))
    return scales.a[:, blocks].astype(np.float64), scales.b[blocks].astype(np.float64)
