"""What the matrix units of NVIDIA and AMD share: the formats of their operands, and refusing what they lack."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product as pairs_of
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Operand, Operands
from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.target import Target
from simfloat.formats import FP32, TF32, Format, nearest_even

Pair = tuple[Format, Format]


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


def find(
    kind: str,
    table: dict[str, tuple[Instruction, ...]],
    architecture: str,
    inputs: Pair,
    output: Format,
    scales: tuple[int, Format] | None,
) -> Instruction:
    """The instruction for such operands; ValueError lists what the architecture has."""
    if architecture not in table:
        raise ValueError(f"{kind} knows {', '.join(table)}; got {architecture!r}.")
    for instruction in table[architecture]:
        scaled = scales in instruction.scales if scales else not instruction.scales
        if inputs in pairs_of(instruction.formats, repeat=2) and output in instruction.outputs and scaled:
            return instruction
    wanted = f"{inputs[0]} x {inputs[1]} -> {output}"
    wanted += f" under scales=({scales[0]}, {scales[1]})" if scales else " without scales"
    has = "; ".join(map(str, table[architecture]))
    raise ValueError(f"{architecture} has no unit for {wanted}. It has {has}.")


def check_operands(unit: object, inputs: Pair, operands: Operands) -> None:
    """Refuse operands that are not numbers of the unit's formats; a TF32 unit takes float32 numbers."""
    a, b = (FP32 if format == TF32 else format for format in inputs)
    if not (operands.x.format == a or operands.a.inside(a)):
        _check_operand(unit, "a", operands.x, a)
    if not (operands.y.format == b or operands.b.inside(b)):
        _check_operand(unit, "b", operands.y, b)


def _check_operand(unit: object, name: str, operand: Operand, format: Format) -> None:
    array = operand.array
    if format == FP32 and array.dtype == np.float32:
        return
    if array.size == 0 and operand.facts:
        raise ValueError(f"{unit} takes {format} operands, which sums in {operand.format} are not.")
    wrong = np.isnan(array) & (not format.has_nan)
    if not wrong.any():
        rounded = round_array(array, Target(format, nearest_even, array.dtype.type))
        wrong = (rounded != array) & ~(np.isnan(array) & np.isnan(rounded))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"{unit} takes {format} operands, and {name}{list(place)} = {float(array[place])!r} is none. "
            f"Pass inputs={format} to round them."
        )


def padded(a: NDArray, b: NDArray, terms: int) -> tuple[NDArray, NDArray]:
    """Both operands with zeros up to a whole number of chunks."""
    short = -a.shape[1] % terms
    return (np.pad(a, ((0, 0), (0, short))), np.pad(b, ((0, short), (0, 0)))) if short else (a, b)
