"""What the matrix units of NVIDIA and AMD share: the formats of their operands, and refusing what they lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import product as pairs_of
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.operand_bounds import OperandBounds, Problem, first_outside_format
from simfloat.checks import did_you_mean
from simfloat.formats import FP32, TF32, Format, as_format
from simfloat.formats.format_names import FormatLike

#: The last bits of float32 that a TF32 unit does not read.
TF32_CUT = FP32.mantissa_bits - TF32.mantissa_bits

#: The formats of the left and of the right operand.
FormatPair = tuple[Format, Format]

#: As users give the formats of a unit's operands.
UnitInputs = FormatLike | tuple[FormatLike, FormatLike]


class Instruction(NamedTuple):
    """Products that a unit sums at once: any two of `formats`, with results in one of `outputs`."""

    formats: tuple[Format, ...]
    outputs: tuple[Format, ...]
    terms: int
    fraction_bits: int = 0
    scales: tuple[tuple[int, Format], ...] = ()

    def __str__(self) -> str:
        mixed = " with " if len(self.formats) > 1 else ""
        names = _names(self.formats)
        scales = _names(f"scales=({block}, {format})" for block, format in self.scales)
        return f"{names}{mixed}{names if mixed else ''} -> {_names(self.outputs)}{' under ' if scales else ''}{scales}"


def _names(values: Iterable[object]) -> str:
    return " or ".join(map(str, values))


def as_formats(inputs: UnitInputs) -> FormatPair:
    """The formats of both operands."""
    if isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise ValueError(f"inputs is a format, or a pair of formats for a and b; got {len(inputs)} of them.")
        return as_format(inputs[0]), as_format(inputs[1])
    return as_format(inputs), as_format(inputs)


def pair_text(pair: FormatPair, write: Callable[[Any], str]) -> str:
    """A pair of formats as a call shows it: one for both, if they are the same."""
    a, b = map(write, pair)
    return a if a == b else f"({a}, {b})"


def check_architecture(kind: str, table: Collection[str], architecture: Any) -> None:
    """Raise ValueError for what is no architecture of the table."""
    if not isinstance(architecture, str) or architecture not in table:
        raise ValueError(f"{kind} knows {', '.join(table)}; got {architecture!r}.{did_you_mean(architecture, table)}")


def find_instruction(
    architecture: str,
    instructions: tuple[Instruction, ...],
    inputs: FormatPair,
    output: Format,
    scales: tuple[int, Format] | None = None,
) -> Instruction:
    """The instruction for such operands; ValueError lists what the architecture has."""
    for instruction in instructions:
        scaled = scales in instruction.scales if scales else not instruction.scales
        if inputs in pairs_of(instruction.formats, repeat=2) and output in instruction.outputs and scaled:
            return instruction
    request = f"{inputs[0]} x {inputs[1]} -> {output}"
    request += f" under scales=({scales[0]}, {scales[1]})" if scales else " without scales"
    has = "; ".join(map(str, instructions))
    raise ValueError(f"{architecture} has no unit for {request}. It has {has}.")


def operand_formats(inputs: FormatPair) -> FormatPair:
    """The formats of the operands that a unit takes: one for TF32 takes float32 numbers."""
    a, b = (FP32 if format == TF32 else format for format in inputs)
    return a, b


def check_operands(unit: object, formats: FormatPair, problem: Problem) -> None:
    """Refuse operands that are not numbers of the formats that the unit takes."""
    if not _are_numbers(problem.a, formats[0]):
        _refuse_operand(unit, "a", problem.a, formats[0])
    if not _are_numbers(problem.b, formats[1]):
        _refuse_operand(unit, "b", problem.b, formats[1])


def _are_numbers(operand: OperandBounds, format: Format) -> bool:
    """Whether all are numbers of the format for certain. A unit reads -0 as 0."""
    # Identity first: most formats are the catalog's own objects, and comparing two takes all their fields.
    if operand.format is format or (operand.is_float32 and format is FP32):
        return True
    if operand.format == format:
        return True
    return (operand.bounds.finite or _has_specials_of(format, operand.format)) and operand.bounds.are_in_format(format)


def _has_specials_of(format: Format, other: Format | None) -> bool:
    """Whether infinities and NaN of the other format are some of this one, too."""
    if other is None:
        return False
    return (format.has_infinity or not other.has_infinity) and (format.has_nan or not other.has_nan)


def _refuse_operand(unit: object, name: str, operand: OperandBounds, format: Format) -> None:
    """Raise ValueError if a number is none of the format's, or if there is no array in which to look for one."""
    if operand.array is None:
        raise ValueError(f"{unit} takes {format} operands, which sums in {operand.format} are not.")
    place = first_outside_format(operand.array, format)
    if place is not None:
        raise ValueError(
            f"{unit} takes {format} operands, and {name}{list(place)} = {float(operand.array[place])!r} is none. "
            f"Pass inputs={format} to round them."
        )


def pad_to_chunks(a: NDArray, b: NDArray, terms: int) -> tuple[NDArray, NDArray]:
    """Both operands with zeros up to a whole number of chunks."""
    short = -a.shape[1] % terms
    return (np.pad(a, ((0, 0), (0, short))), np.pad(b, ((0, short), (0, 0)))) if short else (a, b)


def cut_to_tf32(x: NDArray) -> NDArray[np.float64]:
    """float32 numbers without their last 13 bits, which a TF32 unit does not read."""
    with np.errstate(invalid="ignore"):  # converting a signalling NaN
        # The unit does not round: it reads the upper 19 bits. NaN is
        # put back below, for its payload may be in the others.
        image = x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), np.nan, image.view(np.float32)).astype(np.float64)
