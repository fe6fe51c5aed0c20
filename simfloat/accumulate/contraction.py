"""What all sums of products do: round the operands, sum them with an engine, round the sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator, Engine, Operand, Operands, Scales, as_accumulator
from simfloat.accumulate.facts import facts_of
from simfloat.accumulate.scales import scaled
from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.plan import round_all
from simfloat.arithmetic.sources import Elements
from simfloat.arithmetic.stream import Draw, Stream, take_draw
from simfloat.arithmetic.target import Target, as_target, result_dtype
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even

#: As users give the formats of operands.
Inputs = Format | str | tuple[Format | str, Format | str] | None


class Options(NamedTuple):
    """How operands are rounded, products summed and sums rounded."""

    inputs: tuple[Format, Format] | None
    accumulator: Accumulator
    target: Target


def options_of(
    operands: list[NDArray],
    inputs: Inputs,
    accumulate: Accumulator | Format | str,
    output: Format | str | None,
    rounding: Rounding,
    stream: Stream | None,
    observer: Observer | None,
    operation: str,
) -> Options:
    """The options as users give them, checked."""
    accumulator = as_accumulator(accumulate)
    format = as_format(output) if output is not None else accumulator.result
    if format is None:
        raise ValueError("An exact sum has no format of its own: pass output=, the format it is rounded to.")
    pair = None if inputs is None else as_pair(inputs)
    return Options(pair, accumulator, as_target(operands, format, rounding, stream, observer, operation))


def as_pair(inputs: Format | str | tuple[Format | str, Format | str]) -> tuple[Format, Format]:
    """The formats of both operands."""
    if isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise ValueError(f"inputs is a format, or a pair of formats for a and b; got {len(inputs)} of them.")
        return as_format(inputs[0]), as_format(inputs[1])
    return as_format(inputs), as_format(inputs)


def contract(
    sums_of: Callable[[Engine, NDArray, NDArray, Draw | None], NDArray],
    a: NDArray,
    b: NDArray,
    shape: tuple[int, ...],
    depth: int,
    options: Options,
    scales: Scales | None = None,
) -> NDArray[np.floating]:
    """Sums of `depth` products for every element of an array of `shape`.

    `sums_of` computes the sums of the rounded operands with an engine, as one vector in C order.
    """
    inputs, accumulator, target = options
    draw = take_draw(target.stream, target.rounding, *accumulator.roundings)
    x, y = (_rounded(a, inputs[0]), _rounded(b, inputs[1])) if inputs else (Operand(a), Operand(b))
    if accumulator.scales and not scales:
        block, format = accumulator.scales
        raise ValueError(f"{accumulator} needs scales=(a_scales, b_scales) in {format}, blocks of {block}.")
    if scales and not accumulator.scales:
        x, y, scales = scaled(x, scales[0], -1), scaled(y, scales[1], -2), None
    engine = accumulator.engine(Operands(x, y, depth, target.format, target.rounding, scales))
    sums = sums_of(engine, x.array, y.array, draw)
    out = np.empty(shape, target.dtype)
    round_all(Elements(sums), out, target, draw)
    return out


def _rounded(x: NDArray, format: Format) -> Operand:
    """An operand rounded to its format."""
    if format == FP64 or (format == FP32 and x.dtype == np.float32):
        return Operand(x, None, format)
    # Operands are often in the format already, and to see that is quicker than to round them again.
    facts = facts_of(x)
    if facts.inside(format):
        return Operand(x, facts, format)
    return Operand(
        round_array(x, Target(format, nearest_even, result_dtype([x], format))), facts.rounded(format), format
    )
