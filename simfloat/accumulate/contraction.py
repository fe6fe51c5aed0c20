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
from simfloat.accumulate.known import Problem, known_of
from simfloat.accumulate.operand import Taken, Use, take
from simfloat.accumulate.rescaled import engine_by_blocks
from simfloat.accumulate.scales import Scales, scales_of_blocks, with_scales
from simfloat.accumulate.start import start_for
from simfloat.arithmetic._cast import Cast, as_cast
from simfloat.arithmetic.arrays import empty
from simfloat.arithmetic.block_scaling import Block
from simfloat.arithmetic.exactness import check_precision
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import are_float32
from simfloat.arithmetic.operations import compute_drawn
from simfloat.arithmetic.plan import check_no_nan, round_all
from simfloat.arithmetic.scaling import History
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
    def has_blocks(self) -> bool:
        """Whether a cast scales blocks of its operand."""
        return self.inputs is not None and any(isinstance(cast.scale, Block) for cast in self.inputs)

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
    """Take the call's draw, round the operands, and choose the engine for sums of `depth` products in this shape.

    Operands are matrices (..., m, k) and (..., k, n) if a cast scales blocks of them, else of any shape.
    """
    inputs, accumulator, target, *_ = options
    if options.has_scales:
        _check_scaled(options, scales, initial)
    draw = take_draw(target.stream, target.rounding, *accumulator.roundings, *(cast.rounding for cast in inputs or ()))
    if inputs:
        accumulator = accumulator.for_inputs(inputs[0].format, inputs[1].format)
        left, right = _taken(a, b, options, draw, accumulator.reads_numbers)
        scales = scales_of_blocks(left, right, accumulator) or scales
    else:
        left, right = Taken(known_of(a)), Taken(known_of(b))
        accumulator = accumulator.for_inputs(None, None)
    divisor = left.divisor * right.divisor * (scales.divisor if scales else 1.0)
    if divisor != 1.0 or options.has_scales:
        check_precision(target.format, target.rounding)  # of what is divided
    x, y, own = with_scales(left.known, right.known, scales, accumulator)
    start = None if initial is None else start_for(accumulator, initial, shape)
    factors = (facts_of(own.a), facts_of(own.b)) if own and accumulator.scales else None
    addend = None if start is None else facts_of(start)
    problem = Problem(x, y, depth, target.format, target.rounding, factors, addend, divisor)
    engine = engine_by_blocks(accumulator, problem, own) if own and not factors else accumulator.engine(problem)
    # Exact sums that float64 does not hold are divided where they are made.
    divisor = 1.0 if isinstance(engine, Fractions) else divisor
    assert x.array is not None and y.array is not None
    return Work(engine, x.array, y.array, draw, own, start, x.are_finite and y.are_finite, divisor)


def _taken(a: NDArray, b: NDArray, options: Options, draw: Draw | None, looks: bool) -> tuple[Taken, Taken]:
    """Both operands, taken to their formats."""
    casts, target, names, histories = options.inputs, options.target, options.cast_operations, options.histories
    assert casts is not None
    left = take(a, casts[0], Use(names[0], 255, -1, histories[0]), draw, target, looks)
    return left, take(b, casts[1], Use(names[1], 254, -2, histories[1]), draw, target, looks)


def _check_scaled(options: Options, scales: Scales | None, initial: NDArray | None) -> None:
    """Refuse what casts that scale cannot be combined with."""
    if scales is not None:
        raise ValueError("Operands bring scales of their own, and inputs= would scale them again: pass one of both.")
    whole = [cast.scale for cast in options.inputs or () if cast.scale is not None and cast.scale.is_whole]
    if whole and initial is not None:
        raise ValueError(
            f"Sums that start from initial= would be divided with it by the scale of an operand as a whole, which "
            f"{whole[0]} has: add it to the result."
        )


def finish(sums: NDArray, shape: tuple[int, ...], options: Options, work: Work) -> NDArray[np.floating]:
    """The sums rounded once to the output format, in an array of `shape`."""
    target, result = options.target, options.accumulator.result
    if result is not None and result is not target.format and not result.has_nan:
        check_no_nan(sums.reshape(shape), result)
    if work.divisor != 1.0:
        return compute_drawn("divide", [sums, np.array([work.divisor])], target, work.draw).reshape(shape)
    out = empty(shape, target.dtype)
    round_all(Elements(sums), out, target, work.draw)
    return out
