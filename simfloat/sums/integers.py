"""Sums of matrix units in 32-bit lanes, and common parts of the matrix units of NVIDIA and AMD.

If the operands need more than 32 bits, sums are computed in float64. The common parts are the formats of operands and
the errors for formats that a unit does not have.
"""

from __future__ import annotations

import math
import re
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

#: The largest total that can be converted to float32, with a margin for rounding up.
LARGEST_TOTAL = 2.0**31 - 2.0**7

#: The last bits of products are at most this number of binades below one.
MOST_BINADES_BELOW_ONE = 126

#: Terms of a chunk and the partial sum are below this number of units when they are added to anchors of float32 (see
#: `kernels/units/anchored.py`); and the least emin of formats with exponents that allow that.
ANCHOR, NEAR_ONE = 2.0**23, -31

#: The exponent of values that have none: it is below all others.
NO_EXPONENT = -1000


class FusedUnit(Protocol):
    """The properties of a fused sum that a loop needs."""

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
    """Sums by a loop in 32-bit lanes. If values need more bits, a matrix is summed by an engine in float64."""

    engine_in_float64: Engine
    loop: str
    numbers: tuple[NDArray[np.float64], NDArray[np.float64]]  # parameters of the unit, also for transposed products
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
            # The loop stops at a matrix with exponents that are too far apart, and returns its number. That matrix is
            # summed in float64, and the loop continues with the next one.
            if number < count:
                self._sum_in_float64(a, b, out, number, count, region)
                number += 1

    def _sum_in_float64(self, a: NDArray, b: NDArray, out: NDArray, number: int, count: int, region: Region) -> None:
        """Sum one product of a stack."""
        rows, depth = len(out) // count, a.shape[1]
        within = slice(number * rows, (number + 1) * rows)
        left = a if len(a) == rows else a[within]
        with np.errstate(invalid="ignore"):  # conversion of a signalling NaN
            left, right = copy(left, np.float64), copy(b[number * depth : (number + 1) * depth], np.float64)
            sums = copy(out[within], np.float64)
        self.engine_in_float64.run(left, right, sums, region)
        out[within] = np.where(sums == sums, sums, np.nan)


@lru_cache(maxsize=1024)
def choose_integer_engine(
    wide: Engine, unit: FusedUnit, precisions: tuple[int, int], least: tuple[int, int], dropped: int = 0
) -> Engine:
    """Return the engine for float32 operands with these significant bits and least exponents.

    The unit does not read the last `dropped` bits of operands. The result is `wide` itself if 32 bits are not enough.
    """
    output, bits = unit.output, unit.fraction_bits
    totals, zero = _rounding_of_totals(unit), unit.zero_exponent
    if totals is None or (zero is not None and zero > output.emin):
        return wide
    is_exact = totals == "exact"
    # float32 can represent products of at most 24 bits. Bits of a term or of the partial sum below the last bit that is
    # kept may be truncated only because another term is larger: so F is at least the number of bits of each
    # (`kernels/units/integers.py`).
    if sum(precisions) > 24 or bits < max(0 if is_exact else output.mantissa_bits, *precisions):
        return wide
    # Significands of p bits are at most 2 - 2^(1 - p), and the significand of the partial sum is below 2.
    most = math.prod(2 - 2.0 ** (1 - precision) for precision in precisions) * 2.0**bits
    most += unit.align != toward_zero
    # An int32 can hold this number of the largest terms and the partial sum; a chunk has at most two parts. A pass adds
    # four products before a sum is stored to memory.
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
    # If all terms and the partial sum are below 2^23 units, float32 can represent them. A term then takes two
    # multiply-adds toward zero, and four instructions in int32 lanes. This made FP8 sums of Hopper twice as fast.
    is_cut = (unit.align, totals) == (toward_zero, "truncated") and unit.terms * most + 2.0 ** (bits + 1) < ANCHOR
    is_anchored = is_cut and min(least) >= NEAR_ONE and kernels.compile.processor.ROUNDS_LANES
    loop = "anchored" if is_anchored else kernels.units.integers.fused_name(unit.align.steps, totals)
    carrier: FloatType = np.float64 if is_exact else np.float32
    return IntegerEngine(wide, loop, numbers, unit.grid, carrier, takes_stacks=totals != "random")


def _rounding_of_totals(unit: FusedUnit) -> str | None:
    """Return the name in `kernels.units.integers` of the rounding of totals in 32-bit lanes, or None."""
    output, mode = unit.output, unit.mode
    if output == FP64:
        return None if mode.saturates else "exact"
    # The partial sum is read as a float32 bit pattern, so normal numbers of the output must be normal in float32.
    if not output.fits_float32 or output.emin < FP32.emin:
        return None
    if unit.conversion != "general":
        return unit.conversion
    # Signed formats without subnormal numbers, in which tiny results become zero.
    if not output.flushes or not output.signed or output.precision == 1:
        return None
    way = kernels.rounding.grid.way_of(mode)
    return None if way == "general" else way


@lru_cache(maxsize=64)
def choose_floored_engine(wide: Engine, terms: int, sections: int, least: tuple[int, int], dropped: int) -> Engine:
    """Return the engine for CDNA3, with products of 24 fraction bits: 8 of at most 22 bits need 29 bits of an int32."""
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
    """Return the parameters of a matrix unit for operands with these least exponents, and for swapped operands."""
    upright, turned = (
        np.array(kernels.units.integer_operands.IntegerUnit(*fields(pair)), np.float64) for pair in (least, least[::-1])
    )
    return upright, turned


#: The number of last bits of float32 that a TF32 unit does not read.
TF32_CUT = FP32.mantissa_bits - TF32.mantissa_bits

#: The formats of the left and of the right operand.
FormatPair = tuple[Format, Format]

#: The types in which users pass the formats of a matrix unit's operands.
UnitInputs = FormatLike | tuple[FormatLike, FormatLike]


class Instruction(NamedTuple):
    """An instruction of a matrix unit, with operands in any two of `formats` and results in one of `outputs`."""

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
    """Return the formats of both operands."""
    if isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise ValueError(f"inputs is a format, or a pair of formats for a and b; got {len(inputs)} of them.")
        return as_format(inputs[0]), as_format(inputs[1])
    return as_format(inputs), as_format(inputs)


def pair_text(pair: FormatPair, write: Callable[[Any], str]) -> str:
    """Return a pair of formats as a call shows it: one format if both are equal."""
    a, b = map(write, pair)
    return a if a == b else f"({a}, {b})"


#: Architectures by names of their GPUs and targets of compilers. Sources: NVIDIA, CUDA GPU Compute Capability; AMD,
#: ROCm, Accelerator and GPU hardware specifications.
ARCHITECTURES = {
    r"v100|sm7[02]": "volta",
    r"t4|sm75": "turing",
    r"a100|a30|a2|sm8[067]": "ampere",
    r"l4|l40s?|rtx4090|sm89": "ada",
    r"g?h[12]00|sm90a?": "hopper",
    r"g?b200|sm100a?": "blackwell",
    r"mi100|gfx908": "cdna1",
    r"mi2\d\dx?|gfx90a": "cdna2",
    r"mi300[ax]?|mi325x|gfx94[0-2]": "cdna3",
}


def check_architecture(kind: str, table: Collection[str], architecture: Any) -> None:
    """Raise ValueError if an architecture is not in the table."""
    if not isinstance(architecture, str) or architecture not in table:
        hint = did_you_mean(_architecture_of(architecture) or architecture, table)
        raise ValueError(f"{kind} supports {', '.join(table)}; got {architecture!r}.{hint}")


def _architecture_of(name: Any) -> str | None:
    """Return the architecture of a GPU or a compiler's target; None for any other name."""
    short = re.sub(r"nvidia|geforce|amd|instinct|[\s_-]", "", str(name).lower())
    return next((architecture for names, architecture in ARCHITECTURES.items() if re.fullmatch(names, short)), None)


def find_instruction(
    architecture: str,
    instructions: tuple[Instruction, ...],
    inputs: FormatPair,
    output: Format,
    scales: tuple[int, Format] | None = None,
) -> Instruction:
    """Return the instruction for these operands; the ValueError for a missing one lists the existing ones."""
    for instruction in instructions:
        scaled = scales in instruction.scales if scales else not instruction.scales
        if inputs in pairs_of(instruction.formats, repeat=2) and output in instruction.outputs and scaled:
            return instruction
    request = f"{inputs[0]} x {inputs[1]} -> {output}"
    request += f" under scales=({scales[0]}, {scales[1]})" if scales else " without scales"
    has = "; ".join(map(str, instructions))
    raise ValueError(f"{architecture} has no unit for {request}. It has {has}.")


def operand_formats(inputs: FormatPair) -> FormatPair:
    """Return the formats of the operands that a matrix unit accepts: float32 numbers for TF32."""
    a, b = (FP32 if format == TF32 else format for format in inputs)
    return a, b


def check_operands(unit: object, formats: FormatPair, problem: Problem, advise: Callable[[], str] = str) -> None:
    """Raise ValueError if an operand has a value outside of its format; `advise` returns the end of the message."""
    if not _are_numbers(problem.a, formats[0]):
        _refuse_operand(unit, "a", problem.a, formats[0], advise)
    if not _are_numbers(problem.b, formats[1]):
        _refuse_operand(unit, "b", problem.b, formats[1], advise)


def _are_numbers(operand: OperandBounds, format: Format) -> bool:
    """Return True if all values are certain to be numbers of the format; a matrix unit reads -0 as 0."""
    # Identity first: most formats are the objects of the catalog, and comparing two formats compares all their fields.
    if operand.format is format or (operand.is_float32 and format is FP32):
        return True
    if operand.format == format:
        return True
    return (operand.bounds.finite or _has_specials_of(format, operand.format)) and operand.bounds.are_in_format(format)


def _has_specials_of(format: Format, other: Format | None) -> bool:
    """Return True if the format has the infinities and NaN of the other format."""
    if other is None:
        return False
    return (format.has_infinity or not other.has_infinity) and (format.has_nan or not other.has_nan)


def _refuse_operand(unit: object, name: str, operand: OperandBounds, format: Format, advise: Callable[[], str]) -> None:
    """Raise ValueError if a value is not a number of the format, or if the operand has no array to search."""
    if operand.array is None:
        raise ValueError(f"{unit} takes {format} operands, but these are sums in {operand.format}.")
    place = first_outside_format(operand.array, format)
    if place is not None:
        raise ValueError(
            f"{unit} takes {format} operands, and {name}{list(place)} = {float(operand.array[place])!r} is not one. "
            f"Pass inputs={format} to round them; in a policy, set compute and compute_gradients to {format}."
            f"{advise()}"
        )


def pad_to_chunks(a: NDArray, b: NDArray, terms: int) -> tuple[NDArray, NDArray]:
    """Pad both operands with zeros to complete chunks."""
    short = -a.shape[1] % terms
    return (np.pad(a, ((0, 0), (0, short))), np.pad(b, ((0, short), (0, 0)))) if short else (a, b)


def cut_to_tf32(x: NDArray) -> NDArray[np.float64]:
    """Truncate the last 13 bits of float32 values, which a TF32 unit does not read."""
    with np.errstate(invalid="ignore"):  # conversion of a signalling NaN
        # The matrix unit does not round: it reads the upper 19 bits. NaN is restored below, because its payload may be
        # in the other bits.
        image = x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), np.nan, image.view(np.float32)).astype(np.float64)
