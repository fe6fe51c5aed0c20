"""What all sums of products do: round the operands, sum them with an engine, round the sums."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate._exact import Fractions
from simfloat.accumulate._sequential import as_accumulator
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.engine import Engine
from simfloat.accumulate.facts import facts_of
from simfloat.accumulate.known import Known, Problem, known_of
from simfloat.accumulate.operand import take
from simfloat.accumulate.scales import Scales, scaled
from simfloat.accumulate.start import start_for
from simfloat.arithmetic._cast import Cast, as_cast
from simfloat.arithmetic.exactness import check_precision
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import are_float32
from simfloat.arithmetic.operations import compute_drawn
from simfloat.arithmetic.plan import check_no_nan, round_all
from simfloat.arithmetic.scaling import History, Whole
from simfloat.arithmetic.sources import Elements
from simfloat.arithmetic.stream import Draw, Stream, take_draw
from simfloat.arithmetic.target import Target, as_target, carrier_of
from simfloat.formats import Format, FormatLike, Rounding, as_format, nearest_even

#: As users give the formats of operands, or how they are taken to them.
OneInput = Cast | FormatLike
Inputs = OneInput | tuple[OneInput, OneInput] | None

#: The operations as which observers hear of the casts of both operands; None: they are not told.
CastOperations = tuple[str | None, str | None]

#: What the scales of delayed scalings of both operands follow from.
Histories = tuple[History | None, History | None]


class Options(NamedTuple):
    """How operands are rounded, products summed and sums rounded."""

    inputs: tuple[Cast, Cast] | None
    accumulator: Accumulator
    target: Target
    cast_operations: CastOperations = ("cast_input", "cast_input")
    histories: Histories = (None, None)

    @property
    def has_scales(self) -> bool:
        """Whether a cast scales its operand."""
        return self.inputs is not None and not (self.inputs[0].scale is None and self.inputs[1].scale is None)


def options_of(
    operands: list[NDArray],
    inputs: Inputs,
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None,
    rounding: Rounding | None,
    stream: Stream | None,
    observer: Observer | None,
    operation: str,
) -> Options:
    """The options as users give them, checked."""
    given: tuple[Any, ...] = (inputs, accumulate, output, are_float32(operands), operation)
    try:
        options = _settled(*given)
    except TypeError:  # what is not hashable is none of these, and is refused
        options = _settled.__wrapped__(*given)
    if rounding is None and stream is None and observer is None:
        return options
    format, accumulator = options.target.format, options.accumulator
    target = as_target(operands, format, nearest_even if rounding is None else rounding, stream, observer, operation)
    if rounding is not None and format == accumulator.result and not options.has_scales:
        _refuse_rounding(accumulator, rounding)
    return options._replace(target=target)


@lru_cache(maxsize=1024)
def _settled(
    inputs: Inputs, accumulate: Accumulator | FormatLike, output: FormatLike | None, single: bool, operation: str
) -> Options:
    """The options of a call that gives no others; `single` if all operands are float32. Remembered: calls repeat."""
    casts = None if inputs is None else as_casts(inputs)
    accumulator = as_accumulator(accumulate).for_inputs(*_formats(casts))
    format = as_format(output) if output is not None else accumulator.result
    if format is None:
        raise ValueError("An exact sum has no format of its own: pass output=, the format it is rounded to.")
    dtype = carrier_of(format) if single else np.float64
    return Options(casts, accumulator, Target(format, nearest_even, dtype, operation=operation))


def as_casts(inputs: OneInput | tuple[OneInput, OneInput]) -> tuple[Cast, Cast]:
    """The casts of both operands."""
    if isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise ValueError(f"inputs is a format, or a pair of formats for a and b; got {len(inputs)} of them.")
        return as_cast(inputs[0]), as_cast(inputs[1])
    cast = as_cast(inputs)
    return cast, cast


def _formats(casts: tuple[Cast, Cast] | None) -> tuple[Format | None, Format | None]:
    return (casts[0].format, casts[1].format) if casts else (None, None)


def _refuse_rounding(accumulator: Accumulator, rounding: Rounding) -> None:
    """A mode for results that are not rounded: the steps' own was meant."""
    meant = "pass output=, the format that they are to be rounded to"
    if "rounding" in (field.name for field in fields(accumulator)):
        meant = f"for the mode of the steps pass accumulate={replace(accumulator, rounding=rounding)}"  # type: ignore[call-arg]
    raise ValueError(
        f"rounding={rounding} is the mode in which results are rounded to output, and sums in {accumulator.result} "
        f"that stay in it are not rounded again; {meant}."
    )


class Work(NamedTuple):
    """Operands that are ready to be summed."""

    engine: Engine
    a: NDArray
    b: NDArray
    draw: Draw | None
    scales: Scales | None  # those that the engine takes
    start: NDArray | None  # what the sums start from, in the shape of the result
    finite: bool  # all operands are known to be finite
    divisor: float  # by which the engine's sums are too large


def prepare(
    a: NDArray,
    b: NDArray,
    shape: tuple[int, ...],
    depth: int,
    options: Options,
    scales: Scales | None = None,
    initial: NDArray | None = None,
) -> Work:
    """Take the call's draw, round the operands, and choose the engine for sums of `depth` products in this shape."""
    inputs, accumulator, target, names, histories = options
    if options.has_scales:
        _check_scaled(options, scales, initial)
    divisor, own, factors = 1.0, None, None
    if inputs:
        left, right = inputs
        draw = take_draw(target.stream, target.rounding, *accumulator.roundings, left.rounding, right.rounding)
        x, s = take(a, left, draw, target, names[0], 255, histories[0])
        y, t = take(b, right, draw, target, names[1], 254, histories[1])
        accumulator, divisor = accumulator.for_inputs(left.format, right.format), s * t
    else:
        draw = take_draw(target.stream, target.rounding, *accumulator.roundings)
        x, y = known_of(a), known_of(b)
        accumulator = accumulator.for_inputs(None, None)
    if scales or accumulator.scales:
        x, y, own = _with_scales(x, y, scales, accumulator)
        divisor = scales.divisor if scales else divisor
        factors = own and (facts_of(own.a), facts_of(own.b))
    if divisor != 1.0 or options.has_scales:
        check_precision(target.format, target.rounding)  # of what is divided
    start, addend = None, None
    if initial is not None:
        start = start_for(accumulator, initial, shape)
        addend = facts_of(start)
    problem = Problem(x, y, depth, target.format, target.rounding, factors, addend, divisor)
    assert x.array is not None and y.array is not None
    engine = accumulator.engine(problem)
    # Exact sums that float64 does not hold are divided where they are made.
    divisor = 1.0 if isinstance(engine, Fractions) else divisor
    return Work(engine, x.array, y.array, draw, own, start, x.are_finite and y.are_finite, divisor)


def _check_scaled(options: Options, scales: Scales | None, initial: NDArray | None) -> None:
    """Refuse what casts that scale cannot be combined with."""
    if scales is not None:
        raise ValueError("Operands bring scales of their own, and inputs= would scale them again: pass one of both.")
    whole = [cast.scale for cast in options.inputs or () if isinstance(cast.scale, Whole)]
    if whole and initial is not None:
        raise ValueError(
            f"Sums that start from initial= would be divided by the scales of {whole[0]} as a whole: add it to the "
            "result."
        )


def finish(sums: NDArray, shape: tuple[int, ...], options: Options, work: Work) -> NDArray[np.floating]:
    """The sums rounded once to the output format, in an array of `shape`."""
    target, result = options.target, options.accumulator.result
    if result is not None and result is not target.format and not result.has_nan:
        check_no_nan(sums.reshape(shape), result)
    if work.divisor != 1.0:
        return compute_drawn("divide", [sums, np.array([work.divisor])], target, work.draw).reshape(shape)
    out = np.empty(shape, target.dtype)
    round_all(Elements(sums), out, target, work.draw)
    return out


def _with_scales(
    x: Known, y: Known, scales: Scales | None, accumulator: Accumulator
) -> tuple[Known, Known, Scales | None]:
    """The operands with their scales multiplied in, or as they are beside scales that the accumulator takes."""
    if accumulator.scales:
        if not scales:
            block, format = accumulator.scales
            raise ValueError(f"{accumulator} needs scales=(a_scales, b_scales) in {format}, blocks of {block}.")
        return x, y, scales
    assert scales is not None
    return scaled(x, scales.a, scales.block, -1), scaled(y, scales.b, scales.block, -2), None
