"""What a sum of products is asked for: how operands are rounded, products summed, and sums rounded."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate._sequential import as_accumulator
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.short import Casts, Short, formats_of, short_for
from simfloat.arithmetic._cast import Cast, as_cast
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.block_scaling import Block
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import are_float32
from simfloat.arithmetic.scaling import AmaxHistory
from simfloat.arithmetic.target import Target, as_target, carrier_of
from simfloat.formats import Rounding, as_format, nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding

#: As users give the formats of operands, or how they are taken to them.
OneInput = Cast | FormatLike
Inputs = OneInput | tuple[OneInput, OneInput] | None

#: The operations as which observers hear of the casts of both operands; None: they are not told.
CastOperations = tuple[str | None, str | None]

#: What the scales of delayed scalings of both operands follow from.
Histories = tuple[AmaxHistory | None, AmaxHistory | None]


class Options(NamedTuple):
    """How operands are rounded, products summed and sums rounded; pairs are of the left and the right operand."""

    inputs: Casts | None
    accumulator: Accumulator
    target: Target
    cast_operations: CastOperations = ("cast_input", "cast_input")
    histories: Histories = (None, None)
    settled: tuple[bool, bool] = (False, False)  # whether a cast is known to leave its operand as it is
    short: Short | None = None  # the way of small products, if nobody watches

    @property
    def has_scales(self) -> bool:
        """Whether a cast scales its operand."""
        return self.inputs is not None and not (self.inputs[0].scale is self.inputs[1].scale is None)

    @property
    def has_blocks(self) -> bool:
        """Whether a cast scales blocks of its operand."""
        return self.inputs is not None and any(isinstance(cast.scale, Block) for cast in self.inputs)

    @property
    def divides_sums(self) -> bool:
        """Whether a cast scales its operand as a whole, so that sums are divided in the end."""
        return self.inputs is not None and any(cast.scale is not None and cast.scale.is_whole for cast in self.inputs)


def options_of(
    operands: list[NDArray],
    inputs: Inputs,
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None,
    rounding: RoundingLike | None,
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
    rounding = None if rounding is None else as_rounding(rounding)
    target = as_target(operands, format, rounding or nearest_even, stream, observer, operation)
    if rounding is not None and format == accumulator.result and not options.divides_sums:
        _refuse_rounding(accumulator, rounding)
    return options._replace(target=target, short=short_for(accumulator, options.inputs, target))


@lru_cache(maxsize=1024)
def _settled(
    inputs: Inputs, accumulate: Accumulator | FormatLike, output: FormatLike | None, single: bool, operation: str
) -> Options:
    """The options of a call that gives no others; `single` if all operands are float32. Remembered: calls repeat."""
    casts = None if inputs is None else as_casts(inputs)
    accumulator = as_accumulator(accumulate).for_inputs(*formats_of(casts))
    format = as_format(output) if output is not None else accumulator.result
    if format is None:
        raise ValueError("An exact sum has no format of its own: pass output=, the format it is rounded to.")
    dtype = carrier_of(format) if single else np.float64
    target = Target(format, nearest_even, dtype, operation=operation)
    return Options(casts, accumulator, target, short=short_for(accumulator, casts, target))


def as_casts(inputs: OneInput | tuple[OneInput, OneInput]) -> Casts:
    """The casts of both operands."""
    if isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise ValueError(f"inputs is a format, or a pair of formats for a and b; got {len(inputs)} of them.")
        return as_cast(inputs[0]), as_cast(inputs[1])
    cast = as_cast(inputs)
    return cast, cast


def _refuse_rounding(accumulator: Accumulator, rounding: Rounding) -> None:
    """A mode for results that are not rounded: the steps' own was meant."""
    meant = "pass output=, the format that they are to be rounded to"
    if "rounding" in (field.name for field in fields(accumulator)):
        meant = f"for the mode of the steps pass accumulate={replace(accumulator, rounding=rounding)}"  # type: ignore[call-arg]
    raise ValueError(
        f"rounding={rounding} is the mode in which results are rounded to output, and sums in {accumulator.result} "
        f"that stay in it are not rounded again; {meant}."
    )
