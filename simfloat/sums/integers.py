"""Sums of matrix units in 32-bit lanes, and what the matrix units of NVIDIA and AMD share.

Where operands leave no room for lanes of 32 bits, sums are made in float64. The units share the formats of their
operands, and the refusal of formats that they lack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from itertools import product as pairs_of
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.operands import FloatType, copy
from simfloat.common import did_you_mean
from simfloat.formats import FP32, FP64, TF32, Format, Rounding, as_format, nearest_even, toward_zero
from simfloat.formats.catalog import FormatLike
from simfloat.sums.accumulator import Engine, Region, kernel_region
from simfloat.sums.operands import OperandBounds, Problem, first_outside_format

#: The largest total that is converted to float32, with room for the magnitude to be rounded up.
LARGEST_TOTAL = 2.0**31 - 2.0**7

#: So many binades the last bits of products lie below one, at most.
MOST_BINADES_BELOW_ONE = 126

#: Units that a chunk's terms and the sum so far are below where they are added to anchors of float32 (see
#: `kernels/units/anchored.py`), and emin of formats whose exponents leave those room.
ANCHOR, NEAR_ONE = 2.0**23, -31

#: Stands for that of what has none: it lies below all others.
NO_EXPONENT = -1000


class FusedUnit(Protocol):
    """What a loop needs to know of a fused sum."""

    @property
    def terms(self) -> int: ...
    @property
    def fraction_bits(self) -> int: ...
    @property
    def output(self) -> Format: ...
    @property
    def zero_exponent(self) -> int | None: ...
    @property
    def align(self) -> Rounding: ...
    @property
    def conversion(self) -> str: ...
    @property
    def mode(self) -> Rounding: ...
    @property
    def grid(self) -> NDArray[np.float64]: ...


class IntegerEngine(NamedTuple):
    """Sums by a loop in 32-bit lanes, but matrices whose numbers leave no room for that by an engine in float64."""

    engine_in_float64: Engine
    loop: str
    numbers: tuple[NDArray[np.float64], NDArray[np.float64]]  # of the unit, also for the transposed product
    grid: NDArray[np.float64]
    carrier: FloatType = np.float32
    cost: float = 0.1
    takes_stacks: bool = True

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        machine, number = region.machine, 0
        count = len(b) // a.shape[1] if a.shape[1] and out.size else 0
        while number < count:
            if machine is CPU:
                loop = machine.loops.integer_sums.loops[self.loop]
                number = loop(a, b, out, number, self.numbers[region.is_transposed], self.grid, *kernel_region(region))
            # The loop stops at a matrix whose exponents lie too far apart, and says which one:
            # that one is summed in float64, and the loop goes on with the next.
            if number < count:
                self._sum_in_float64(a, b, out, number, count, region)
                number += 1

    def _sum_in_float64(self, a: NDArray, b: NDArray, out: NDArray, number: int, count: int, region: Region) -> None:
        """Sum one product of a stack."""
        rows, depth = len(out) // count, a.shape[1]
        within = slice(number * rows, (number + 1) * rows)
        left = a if len(a) == rows else a[within]
        with np.errstate(invalid="ignore"):  # converting a signalling NaN
            left, right = copy(left, np.float64), copy(b[number * depth : (number + 1) * depth], np.float64)
            sums = copy(out[within], np.float64)
        self.engine_in_float64.run(left, right, sums, region)
        out[within] = np.where(sums == sums, sums, np.nan)


@lru_cache(maxsize=1024)
def choose_integer_engine(
    wide: Engine, unit: FusedUnit, precisions: tuple[int, int], least: tuple[int, int], dropped: int = 0
) -> Engine:
    """The engine for operands with so many significant bits and these least exponents, which float32 holds and of
    which it reads all but the last `dropped` bits; `wide` itself, if they leave no room for 32 bits.
    """
    output, bits = unit.output, unit.fraction_bits
    totals, zero = _rounding_of_totals(unit), unit.zero_exponent
    if totals is None or (zero is not None and zero > output.emin):
        return wide
    is_exact = totals == "exact"
    # float32 holds products of at most 24 bits. What a term or the sum so far has below the last bit that is kept may
    # be cut only because another term is larger: so F is no less than either's bits (`kernels/units/integers.py`).
    if sum(precisions) > 24 or bits < max(0 if is_exact else output.mantissa_bits, *precisions):
        return wide
    # Significands of p bits are at most 2 - 2^(1 - p), and that of the sum so far is below 2.
    most = math.prod(2 - 2.0 ** (1 - precision) for precision in precisions) * 2.0**bits
    most += unit.align != toward_zero
    # An int32 holds so many terms of the largest size and the sum so far; a chunk has two
    # parts at most. Passes add four products before a sum is put back into memory.
    part = max(int((LARGEST_TOTAL - 2.0 ** (bits + 1)) / most), 0)
    part -= part % kernels.units.integer_operands.PASS
    if 2 * part < unit.terms:
        return wide
    lowest = bits - MOST_BINADES_BELOW_ONE
    if totals == "random":  # the smallest normal number is added to smaller totals in float64
        lowest = max(lowest, bits + output.last_exponent - FP64.mantissa_bits)
    drops = 0 if is_exact else 23 - output.mantissa_bits
    how = kernels.units.integers.codes_of_unit(unit.align.steps, totals)
    rounding = output.emin, NO_EXPONENT if zero is None else zero, drops, lowest, *how
    numbers = _unit_numbers(least, lambda pair: (unit.terms, 1, part, bits, *pair, dropped, *rounding))
    # Where all terms and the sum so far are below 2^23 units, float32 itself holds them: a term is two multiply-adds
    # toward zero, where int32 lanes take four instructions. This made FP8 sums of Hopper twice as fast.
    is_cut = (unit.align, totals) == (toward_zero, "truncated") and unit.terms * most + 2.0 ** (bits + 1) < ANCHOR
    is_anchored = is_cut and min(least) >= NEAR_ONE and kernels.compile.processor.ROUNDS_LANES
    loop = "anchored" if is_anchored else kernels.units.integers.fused_name(unit.align.steps, totals)
    carrier: FloatType = np.float64 if is_exact else np.float32
    return IntegerEngine(wide, loop, numbers, unit.grid, carrier, takes_stacks=totals != "random")


def _rounding_of_totals(unit: FusedUnit) -> str | None:
    """How totals are rounded in 32-bit lanes: a name of `kernels.units.integers`; None if they are not made there."""
    output, mode = unit.output, unit.mode
    if output == FP64:
        return None if mode.saturates else "exact"
    # The sum so far is read by its float32 image, where a normal number of the output has to be a normal one, too.
    if not output.fits_float32 or output.emin < FP32.emin:
        return None
    if unit.conversion != "general":
        return unit.conversion
    # Signed formats without subnormal numbers, whose tiny results are made zero.
    if not output.flushes or not output.signed or output.precision == 1:
        return None
    way = kernels.rounding.grid.way_of(mode)
    return None if way == "general" else way


@lru_cache(maxsize=64)
def choose_floored_engine(wide: Engine, terms: int, sections: int, least: tuple[int, int], dropped: int) -> Engine:
    """The engine for sums of CDNA3, whose products have 24 fraction bits: 8 of at most 22 bits need 29 of an int32."""
    numbers = _unit_numbers(
        least,
        lambda pair: (
            terms,
            sections,
            terms,
            24,
            *pair,
            dropped,
            FP32.emin,
            NO_EXPONENT,
            0,
            24 - MOST_BINADES_BELOW_ONE,
            0,
            0,
        ),
    )
    return IntegerEngine(wide, "floored", numbers, kernels.rounding.grid.pack_grid(FP32, nearest_even))


def _unit_numbers(
    least: tuple[int, int], fields: Callable[[tuple[int, int]], tuple[int, ...]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The numbers of a unit for operands with these least exponents, and for swapped ones."""
    upright, turned = (
        np.array(kernels.units.integer_operands.IntegerUnit(*fields(pair)), np.float64) for pair in (least, least[::-1])
    )
    return upright, turned


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
