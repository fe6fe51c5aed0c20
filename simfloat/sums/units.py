"""NVIDIA's tensor cores and AMD's matrix cores, as MMA-Sim 2.1.1 models them (Xie et al., arXiv 2511.10909)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_device_of
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    FP64,
    TF32,
    Format,
    as_format,
)
from simfloat.formats.catalog import FormatLike
from simfloat.sums.accumulator import Accumulator, Engine, Region, around_operands
from simfloat.sums.blocked import Blocked, RunLengths, RunsEngine
from simfloat.sums.bounds import Bounds
from simfloat.sums.fused import E8M13, Fused, FusedEngine, binade_powers
from simfloat.sums.integers import (
    TF32_CUT,
    FormatPair,
    Instruction,
    UnitInputs,
    as_formats,
    check_architecture,
    check_operands,
    choose_floored_engine,
    cut_to_tf32,
    find_instruction,
    operand_formats,
    pad_to_chunks,
    pair_text,
    pairs_of,
)
from simfloat.sums.operands import BOUNDS_OF_ONES, OperandBounds, Problem
from simfloat.sums.sequential import SequentialSum

#: The names of the architectures in the table.
NvidiaArchitecture = Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell"]

FP8 = (E4M3, E5M2)
NARROW_FORMATS = (E4M3, E5M2, E3M2, E2M3, E2M1)
FP32_AND_FP16 = (FP32, FP16)
DOUBLE = Instruction((FP64,), (FP64,), 1)

#: Units that sum 64 products of E2M1 numbers, in groups of 16 that are added before they are aligned.
GROUPED = Instruction((E2M1,), (FP32,), 64, 35, ((32, E8M0), (16, E8M0), (16, E4M3)))

NVIDIA_UNITS: dict[NvidiaArchitecture, tuple[Instruction, ...]] = {
    "volta": (Instruction((FP16,), FP32_AND_FP16, 4, 23), DOUBLE),
    "turing": (Instruction((FP16,), FP32_AND_FP16, 8, 24), DOUBLE),
    "ampere": (
        Instruction((FP16,), FP32_AND_FP16, 8, 24),
        Instruction((BF16,), (FP32,), 8, 24),
        Instruction((TF32,), (FP32,), 4, 24),
        DOUBLE,
    ),
    "ada": (
        Instruction((FP16,), FP32_AND_FP16, 8, 24),
        Instruction((BF16,), (FP32,), 8, 24),
        Instruction((TF32,), (FP32,), 4, 24),
        Instruction(FP8, FP32_AND_FP16, 16, 13),
        DOUBLE,
    ),
    "hopper": (
        Instruction((FP16,), FP32_AND_FP16, 16, 25),
        Instruction((BF16,), (FP32,), 16, 25),
        Instruction((TF32,), (FP32,), 8, 25),
        Instruction(FP8, FP32_AND_FP16, 32, 13),
        DOUBLE,
    ),
    "blackwell": (
        Instruction((FP16,), FP32_AND_FP16, 16, 25),
        Instruction((BF16,), (FP32,), 16, 25),
        Instruction((TF32,), (FP32,), 8, 25),
        Instruction(NARROW_FORMATS, FP32_AND_FP16, 32, 25),
        GROUPED,
        Instruction(NARROW_FORMATS, (FP32,), 32, 25, ((32, E8M0),)),
        DOUBLE,
    ),
}

#: The instructions of architectures with several; the first is the default. Units that both have give equal results.
INSTRUCTIONS: dict[NvidiaArchitecture, tuple[str, str]] = {"hopper": ("wgmma", "mma"), "blackwell": ("tcgen05", "mma")}

#: FP8 products by `mma` on architectures with another instruction for them: two steps of the FP16 unit (16 products, 25
#: fraction bits) from zero, first the products k with k mod 4 < 2, then the others. Their sum is added to the partial
#: sum once, rounded to nearest even in the output format. (Recorded on H100, H200 and B200: MATLAB-tensor-core of
#: north-numerical-computing, replayed in the tests. NVIDIA's assembler, ptxas 13.5, compiles `mma` to these steps: FP16
#: numbers of the lower half of every word, HMMA from zero, numbers of the upper half, HMMA, and FADD or HADD2.)
TWO_STEPS = Instruction(FP8, FP32_AND_FP16, 32, 25)
STEP_TERMS = 16

#: The products of 32 in the order of the two steps. A word contains four FP8 numbers, and the lower two take part in
#: the first step.
STEP_ORDER = np.array([k for first in (0, 2) for k in range(TWO_STEPS.terms) if k % 4 - first in (0, 1)])

#: The units of `mma` on these architectures.
MMA = (
    Instruction((FP16,), FP32_AND_FP16, 16, 25),
    Instruction((BF16,), (FP32,), 16, 25),
    Instruction((TF32,), (FP32,), 8, 25),
    TWO_STEPS,
    DOUBLE,
)

#: The exponents that zeros take part with in the alignment, for FP32 and for FP16 results.
ZERO_EXPONENTS: dict[NvidiaArchitecture, tuple[int, int]] = {
    "volta": (-131, -19),
    "turing": (-132, -20),
    "ampere": (-132, -20),
    "ada": (-132, -20),
    "hopper": (-133, -21),
    "blackwell": (-133, -21),
}
GROUPED_ZERO_EXPONENT = -139


def tensor_core(
    architecture: NvidiaArchitecture,
    inputs: UnitInputs | None = None,
    output: FormatLike = FP32,
    scales: tuple[int, FormatLike] | None = None,
    *,
    instruction: str | None = None,
) -> TensorCore:
    """Sum products as an NVIDIA tensor core does.

    Each architecture has a matrix unit ("unit" below) for each combination of formats that it supports. Chunks of
    products are aligned, truncated and added as in :func:`simfloat.fused`, with the parameters of the hardware. A short
    last chunk is padded with zeros. All NaN results are the same NaN. Special cases:

    * FP8 on Ada and Hopper: sums have 14 bits, stored in FP32.
    * TF32: the unit accepts FP32 numbers, and truncates their last 13 bits.
    * E2M1 x E2M1 with scales: the unit sums 64 products, and ignores the sign of a scale in E4M3.
    * FP64: a chain of fused multiply-adds, with results in FP64.

    Parameters:
        architecture: "volta", "turing", "ampere", "ada", "hopper" or "blackwell".
        inputs: the format of both operands, or a pair; operands must be numbers of it. By default the unit is chosen by
            the `inputs` of the product that it sums.
        output: the format of the sums, FP32 or FP16.
        scales: for block scales on Blackwell: a pair of the products per block and the format of a scale, such as
            ``(32, E8M0)``. The scales are passed to :func:`simfloat.matmul`.
        instruction: "wgmma" (default) or "mma" on Hopper, "tcgen05" (default) or "mma" on Blackwell. They differ for
            FP8: `mma` sums 32 products from zero in two steps, and rounds to nearest even when it adds them to the
            partial sum.

    Returns:
        The accumulator.

    Raises:
        ValueError: if the architecture, or a unit for these formats, scales or instruction, does not exist. The message
            lists the existing ones.

    Examples:
        >>> a, ones = [2.0**14, 2.0**-11, -(2.0**14)], np.ones(3)
        >>> sf.dot(a, ones, inputs=sf.FP16, accumulate=sf.tensor_core("volta"))
        array(0.)
        >>> sf.dot(a, ones, inputs=sf.FP16, accumulate=sf.tensor_core("hopper"))
        array(0.00048828)
    """
    check_architecture("tensor_core", NVIDIA_UNITS, architecture)
    pair = None if inputs is None else as_formats(inputs)
    result, block = as_format(output), None if scales is None else _as_block(scales)
    if instruction is not None:
        _check_instruction(architecture, instruction)
        instruction = None if instruction == INSTRUCTIONS[architecture][0] else instruction
    if pair == (FP64, FP64) and result == FP32:
        result = FP64
    return TensorCore(architecture, pair, output=result, scales=block, instruction=instruction)


def _as_block(scales: tuple[int, FormatLike]) -> tuple[int, Format]:
    if not isinstance(scales, tuple) or len(scales) != 2 or type(scales[0]) is not int:
        raise ValueError(
            f"scales must be a pair of the products per block and a format, such as (32, E8M0); got {scales!r}."
        )
    return scales[0], as_format(scales[1])


def _check_instruction(architecture: NvidiaArchitecture, instruction: Any) -> None:
    names = INSTRUCTIONS.get(architecture, ())
    if instruction not in names:
        has = " or ".join(map(repr, names)) if names else "only one, which has no name"
        raise ValueError(f"The instruction of a tensor core on {architecture} is {has}; got {instruction!r}.")


@dataclass(frozen=True, repr=False)
class TensorCore(Accumulator):
    """See :func:`tensor_core`."""

    architecture: NvidiaArchitecture
    inputs: FormatPair | None = None
    output: Format = field(default=FP32, kw_only=True)
    scales: tuple[int, Format] | None = field(default=None, kw_only=True)
    instruction: str | None = field(default=None, kw_only=True)

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "tensor_core"
    is_matrix_unit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.inputs is not None:
            _ = self.row  # raises ValueError for a unit that the architecture does not have

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.output

    @property
    def chunk(self) -> int:
        """The number of products of a chunk of the instruction."""
        return self.row.terms

    def for_inputs(self, a: Format | None, b: Format | None) -> TensorCore:
        """Return the unit for operands of these formats, unless its formats are fixed."""
        if self.inputs is not None:
            return self
        if a is None or b is None:
            a, b = self._formats  # raises ValueError
        output = FP64 if (a, b, self.output) == (FP64, FP64, FP32) else self.output
        return TensorCore(self.architecture, (a, b), output=output, scales=self.scales, instruction=self.instruction)

    @cached_property
    def row(self) -> Instruction:
        """The row of the unit in the table."""
        rows = MMA if self.instruction == "mma" else NVIDIA_UNITS[self.architecture]
        return find_instruction(self.architecture, rows, self._formats, self.output, self.scales)

    @property
    def _formats(self) -> FormatPair:
        """The formats of the operands; ValueError if they are not known yet."""
        if self.inputs is None:
            raise ValueError(f"{self} depends on the formats of the operands: pass inputs=.")
        return self.inputs

    def _advise_scales(self) -> str:
        """Return the scales of blocks that the architecture takes for such operands; "" if it takes none."""
        rows = [row for row in NVIDIA_UNITS[self.architecture] if self._formats in pairs_of(row.formats, repeat=2)]
        texts = dict.fromkeys(f"scales=({block}, {format})" for row in rows for block, format in row.scales)
        advice = f" For operands with scales of blocks, such as results of block_quantize, pass {' or '.join(texts)}."
        return advice if texts and not self.scales else ""

    @cached_property
    def unit(self) -> Fused:
        """The unit as a fused sum.

        It accepts fewer start values than the tensor core if its sums have 14 bits (FP8 on Ada and Hopper). The tensor
        core truncates an FP32 number c; for the fused sum, write ``simfloat.round(c, simfloat.Format(8, 13),
        simfloat.toward_zero)``.
        """
        terms, bits = self.row.terms, self.row.fraction_bits
        if self.row is GROUPED:
            return Fused(terms, bits, FP32, zero_exponent=GROUPED_ZERO_EXPONENT)
        # A sum of zero takes part in the alignment with this exponent. This matters if the exponents of all products
        # are below it: then they are truncated at its last bit, not at their own.
        wide, half = ZERO_EXPONENTS[self.architecture]
        if self.row is TWO_STEPS:
            terms = STEP_TERMS
        if self.output == FP16:
            return Fused(terms, bits, FP16, zero_exponent=half)
        # Units with 13 fraction bits (FP8 on Ada and Hopper) return sums of 14 significant bits in FP32.
        return Fused(terms, bits, E8M13 if bits == 13 else FP32, zero_exponent=wide)

    def as_steps(self, factors: list[Any]) -> tuple[Accumulator, list[Any]]:
        """Return the accumulator of the same sums without block scales, and the factors in the order of its products.

        There is a pair of arrays for each product.
        """
        if self.row is DOUBLE:
            return SequentialSum(FP64), factors
        if TF32 in self._formats:
            factors = [(cut_to_tf32(x), cut_to_tf32(y)) for x, y in factors]
        if self.row is not TWO_STEPS or not factors:
            return self.unit, factors
        zeros = tuple(map(np.zeros_like, factors[0]))
        factors = factors + [zeros] * (-len(factors) % TWO_STEPS.terms)
        firsts = np.arange(0, len(factors), TWO_STEPS.terms)[:, np.newaxis]
        steps = Blocked(TWO_STEPS.terms, inner=self.unit, outer=SequentialSum(self.output))
        return steps, [factors[k] for k in (firsts + STEP_ORDER).ravel()]

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return bounds on a sum of `terms` products with the given bounds."""
        return products.after_summation(terms).within_format(self.output)

    def engine_for_all(self, a: Format, b: Format) -> Engine | None:
        """Return the loop of the unit if the operands have its own formats, otherwise None."""
        left, right = zip(self._formats, self._operand_formats, strict=True)
        if self.row is GROUPED or self.row is TWO_STEPS or a not in left or b not in right:
            return None
        return SequentialSum(FP64).engine_for_all(a, b) if self.row is DOUBLE else self._engine

    def engine(self, problem: Problem) -> Engine:
        """Return the loop of the unit; raise ValueError for operands outside its formats."""
        row = self.row
        check_operands(self, self._operand_formats, problem, self._advise_scales)
        if row is DOUBLE:
            return SequentialSum(FP64).engine(problem)
        if row is GROUPED and self.scales:
            return _GroupedSum(self.unit, *self.scales)
        return _two_step_engine(self._engine, self.output, problem) if row is TWO_STEPS else self._engine

    @cached_property
    def _operand_formats(self) -> FormatPair:
        return operand_formats(self._formats)

    @cached_property
    def _engine(self) -> Engine:
        a, b = self._formats
        least = a.emin, b.emin
        if self.scales:
            return FusedEngine(self.unit, least, block=self.scales[0])
        return self.unit.choose_engine((a.precision, b.precision), least, dropped=TF32_CUT if TF32 in (a, b) else 0)

    def _text(self, name: str, write: Any) -> str:
        if name == "inputs" and self.inputs is not None:
            return pair_text(self.inputs, write)
        if name == "scales" and self.scales:
            return f"({self.scales[0]}, {write(self.scales[1])})"
        if name == "architecture":
            return f'"{self.architecture}"'
        return super()._text(name, write)

    def _call(self, write: Any) -> str:
        shown = super()._call(write)
        if self.inputs is None:
            shown = shown.replace(", None", "", 1)
        # FP64 operands have results only in FP64.
        return shown.replace(f", output={write(FP64)}", "", 1) if self.output == FP64 else shown


class _GroupedSum(NamedTuple):
    """The unit that sums 64 products."""

    unit: Fused
    block: int
    scale_format: Format
    carrier: FloatType = np.float64
    cost: float = 0.3

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        # The unit does not read the sign of a scale in E4M3.
        left, right = map(np.abs, region.scales or ())
        machine = region.machine
        s, t = (binade_powers(x, self.scale_format.emin, machine) for x in (left, right))
        machine.loops.fused_loops.fused_groups(a, b, left, right, s, t, out, self.unit.unit, self.unit.grid, self.block)


def _two_step_engine(steps: Engine, output: Format, problem: Problem) -> Engine:
    """Return an engine that sums 32 products from zero in two steps, and adds the result to the partial sum."""
    terms = TWO_STEPS.terms
    sums = OperandBounds(problem.products.after_summation(terms).within_format(output), output, False)
    runs = -(-problem.depth // terms)
    outer = SequentialSum(output).engine(
        Problem(sums, BOUNDS_OF_ONES, runs, output, initial=problem.initial, device=problem.device)
    )
    return around_operands(RunsEngine(RunLengths(terms), steps, outer, output, 0, terms), _by_steps)


def _by_steps(a: NDArray, b: NDArray, out: NDArray, region: Region) -> tuple[NDArray, NDArray, NDArray]:
    """Place the products k with k mod 4 < 2 of every 32 products before the others."""
    a, b = pad_to_chunks(a, b, TWO_STEPS.terms)
    firsts = np.arange(0, a.shape[1], TWO_STEPS.terms, like=a)
    order = (firsts[:, np.newaxis] + on_device_of(STEP_ORDER, a)).ravel()
    return np.ascontiguousarray(a[:, order], like=a), b[order], out


CHAINS = (Instruction((FP32,), (FP32,), 1), Instruction((FP64,), (FP64,), 1))

#: The names of the architectures in the table.
AmdArchitecture = Literal["cdna1", "cdna2", "cdna3"]

AMD_UNITS: dict[AmdArchitecture, tuple[Instruction, ...]] = {
    "cdna1": (Instruction((FP16,), (FP32,), 4), Instruction((BF16,), (FP32,), 2), *CHAINS),
    "cdna2": (Instruction((FP16,), (FP32,), 4), Instruction((BF16,), (FP32,), 2), *CHAINS),
    "cdna3": (
        Instruction((FP16,), (FP32,), 8),
        Instruction((BF16,), (FP32,), 8),
        Instruction((TF32,), (FP32,), 4),
        Instruction((E4M3FNUZ, E5M2FNUZ), (FP32,), 16),
        *CHAINS,
    ),
}


def matrix_core(architecture: AmdArchitecture, inputs: UnitInputs, *, variant: str | None = None) -> MatrixCore:
    """Sum products as an AMD matrix core does.

    A short last chunk is padded with zeros. FP32 and FP64 are chains of fused multiply-adds. The sums of all other
    units are in FP32:

    * CDNA1 adds a chunk (FP16: 4 products, BF16: 2) and the partial sum without error, and rounds once;
    * CDNA2 rounds products and the sums of pairs (FP16: 4 products at once, BF16: 2) to FP32, and flushes subnormal
      operands and results;
    * CDNA3 aligns chunks (TF32: 4, FP16 and BF16: 8, FP8 fnuz: 16 in two interleaved halves), truncates products toward
      zero and sums toward minus infinity, and rounds to nearest.

    Parameters:
        architecture: "cdna1", "cdna2" or "cdna3".
        inputs: the format of both operands, or a pair; operands must be numbers of it. The TF32 unit accepts FP32
            numbers, and truncates their last 13 bits.
        variant: "1k" for the later BF16 instructions of CDNA2, with 4 products; by default none.

    Returns:
        The accumulator.

    Raises:
        ValueError: if the architecture, the variant, or a unit for these formats does not exist. The message lists the
            existing ones.

    Examples:
        >>> x = [2.0**-15], [1.0]
        >>> sf.dot(*x, inputs=sf.FP16, accumulate=sf.matrix_core("cdna2", sf.FP16))  # subnormal operands are flushed
        array(0.)
        >>> sf.dot(*x, inputs=sf.FP16, accumulate=sf.matrix_core("cdna3", sf.FP16))
        array(3.05175781e-05)
    """
    check_architecture("matrix_core", AMD_UNITS, architecture)
    pair = as_formats(inputs)
    if variant is not None and (architecture, pair, variant) != ("cdna2", (BF16, BF16), "1k"):
        raise ValueError(f'The only variant is "1k", of BF16 on cdna2; got {variant!r} of {pair[0]} on {architecture}.')
    return MatrixCore(architecture, pair, variant=variant)


@dataclass(frozen=True, repr=False)
class MatrixCore(Accumulator):
    """See :func:`matrix_core`."""

    architecture: AmdArchitecture
    inputs: FormatPair
    variant: str | None = field(default=None, kw_only=True)

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "matrix_core"
    is_matrix_unit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _ = self.row  # raises ValueError for a unit that the architecture does not have

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return FP64 if self.inputs == (FP64, FP64) else FP32

    @property
    def chunk(self) -> int:
        """The number of products of a chunk of the instruction."""
        return 4 if self.variant else self.row.terms

    @cached_property
    def row(self) -> Instruction:
        """The row of the unit in the table."""
        return find_instruction(self.architecture, AMD_UNITS[self.architecture], self.inputs, self.result)

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return bounds on a sum of `terms` products with the given bounds. Rounding down adds less than the terms
        do."""
        return products.after_summation(2 * terms).within_format(self.result)

    def engine(self, problem: Problem) -> Engine:
        """Return the loop of the unit; raise ValueError for operands outside its formats."""
        check_operands(self, operand_formats(self.inputs), problem)
        if self.row in CHAINS:
            return SequentialSum(self.result).engine(problem)
        least = (self.inputs[0].emin, self.inputs[1].emin)
        if self.architecture == "cdna1":
            return _Cdna1Sum(self.chunk)
        if self.architecture == "cdna2":
            return _Cdna2Sum(self.chunk, least[0])
        # On CDNA3 a product of 2^128 or more is infinite. The loop skips this test only without such products.
        finite = problem.products.finite and problem.products.high <= 128
        # The sixteen products of FP8 form two sums, of products with even and with odd indices. Each sum is aligned to
        # its own largest exponent.
        parts = 2 if self.row.terms == 16 else 1
        cuts = TF32 in self.inputs
        wide = _Cdna3Sum(self.row.terms, parts, least, finite, cuts)
        return choose_floored_engine(wide, self.row.terms, parts, least, TF32_CUT if cuts else 0)

    def _text(self, name: str, write: Any) -> str:
        if name == "inputs":
            return pair_text(self.inputs, write)
        return f'"{getattr(self, name)}"'


class _Cdna1Sum(NamedTuple):
    """A sum on CDNA1."""

    terms: int
    carrier: FloatType = np.float64
    cost: float = 3.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        region.machine.loops.matrix_core_loops.exact_chunks(*pad_to_chunks(a, b, self.terms), out, self.terms)


class _Cdna2Sum(NamedTuple):
    """A sum on CDNA2."""

    terms: int
    emin: int
    carrier: FloatType = np.float32
    cost: float = 0.3

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        # CDNA2 treats operands below this power, which are subnormal in their format, as zeros.
        least = np.float32(2.0**self.emin)
        if a.shape[1]:  # the start value of a sum is an operand, and is flushed like one
            out[np.abs(out) < 2.0**FP32.emin] = 0.0
        region.machine.loops.matrix_core_loops.flushed_pairs(*pad_to_chunks(a, b, self.terms), out, self.terms, least)


class _Cdna3Sum(NamedTuple):
    """A sum on CDNA3."""

    terms: int
    parts: int
    least: tuple[int, int]  # emin of the left and of the right operand
    finite: bool
    cuts_to_tf32: bool
    carrier: FloatType = np.float64
    cost: float = 1.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        if self.cuts_to_tf32:
            a, b = cut_to_tf32(a), cut_to_tf32(b)
        a, b = pad_to_chunks(a, b, self.terms)
        left, right = reversed(self.least) if region.is_transposed else self.least
        machine = region.machine
        a_powers, b_powers = binade_powers(a, left, machine), binade_powers(b, right, machine)
        machine.loops.matrix_core_loops.floored_sums(a, b, a_powers, b_powers, out, self.terms, self.parts, self.finite)
