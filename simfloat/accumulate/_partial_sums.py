"""How a sum comes about: its running sum after every step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.contraction import finish, prepare
from simfloat.accumulate.engine import Region, TileScales
from simfloat.accumulate.product import Inputs, as_vectors, options_of
from simfloat.accumulate.product_plan import Work
from simfloat.accumulate.scales import Scales
from simfloat.accumulate.tiles import in_carrier
from simfloat.arithmetic.arrays import empty
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.machines import machine_of
from simfloat.arithmetic.observer import Observer
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike


def partial_sums(
    a: ArrayLike,
    b: ArrayLike,
    *,
    inputs: Inputs = None,
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The running sum of a dot product after every step of the accumulator, in order; the last one is `dot`'s.

    A step is a product, a chunk of a unit, a run of a blocked sum, or a scaled block; the last one may be short. Each
    running sum is rounded to `output` as if the sum ended there. Options as in :func:`simfloat.dot`.

    Raises ValueError for pairwise and exact sums, which have no running sum, and as :func:`simfloat.dot`.

    Examples:
        >>> sf.partial_sums([2046.0, 1.0, 1.0, 1.0], np.ones(4), accumulate=sf.FP16)
        array([2046., 2047., 2048., 2048.])
    """
    a, b = as_vectors(a, b)
    options = options_of([a, b], inputs, accumulate, output, rounding, stream, observer, "partial_sums")
    accumulator = options.accumulator
    if accumulator.chunk is None:
        raise ValueError(f"{accumulator} has no running sum: its terms are not added one after the other.")
    row, column, work = prepare(a[np.newaxis], b[:, np.newaxis], (), a.size, options)
    chunk, resumes = accumulator.chunk, accumulator.resumes
    if work.scales and not accumulator.scales:
        chunk, resumes = work.scales.block, not any(rounding.is_stochastic for rounding in accumulator.roundings)
    sums = _running_sums(row, column, work, chunk, resumes)
    if not options.target.rounding.is_stochastic:
        return finish(sums, sums.shape, options, work, row, column)
    # Every running sum is what `dot` would return if the sum ended there: element 0 of a result.
    results = empty(sums.shape, options.target.dtype, machine_of(sums))
    for i in range(sums.size):
        results[i] = finish(sums[i : i + 1], (), options, work, row, column)
    return results


def _running_sums(row: NDArray, column: NDArray, work: Work, chunk: int, resumes: bool) -> NDArray:
    """The running sum after every chunk; from the start each time, unless the accumulator can go on from the last."""
    engine, terms = work.engine, row.size
    row, column = (in_carrier(x, engine.carrier, work.quiet) for x in (row, column))
    sums = np.zeros(-(-terms // chunk), engine.carrier, like=row)
    running = np.zeros((1, 1), engine.carrier, like=row)
    for i in range(sums.size):
        first = i * chunk if resumes else 0
        within = slice(first, min((i + 1) * chunk, terms))
        if not resumes:
            running[:] = 0.0
        region = Region(0, 1, 1, work.draw, scales=work.scales and _within(work.scales, within))
        engine.run(np.array(row[:, within], order="C", like=row), column[within], running, region)
        sums[i] = running[0, 0]
    return sums


def _within(scales: Scales, products: slice) -> TileScales:
    """The scales of the blocks of some products, which start where a block does."""
    blocks = slice(products.start // scales.block, -(-products.stop // scales.block))
    return scales.a[:, blocks].astype(np.float64), scales.b[blocks].astype(np.float64)
