"""AMD's matrix cores, as MMA-Sim 2.1.1 models them (Xie et al., arXiv 2511.10909)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate._fused import binade_powers
from simfloat.accumulate._sequential import SequentialSum
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.bounds import Bounds
from simfloat.accumulate.engine import Engine, Region
from simfloat.accumulate.integer_engine import choose_floored_engine
from simfloat.accumulate.matrix_units import (
    TF32_CUT,
    FormatPair,
    Instruction,
    UnitInputs,
    as_formats,
    check_architecture,
    check_operands,
    cut_to_tf32,
    find_instruction,
    operand_formats,
    pad_to_chunks,
    pair_text,
)
from simfloat.accumulate.operand_bounds import Problem
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import BF16, E4M3FNUZ, E5M2FNUZ, FP16, FP32, FP64, TF32, Format

CHAINS = (Instruction((FP32,), (FP32,), 1), Instruction((FP64,), (FP64,), 1))

#: The keys of the table.
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
    """The sums of an AMD matrix core: "cdna1", "cdna2" or "cdna3".

    `inputs` is the format of both operands, or a pair. Operands must be numbers of it; the TF32 unit takes FP32
    numbers and cuts their last 13 bits off. A short last chunk is padded with zeros. FP32 and FP64 are chains of
    fused multiply-adds; all others come in FP32:

    * CDNA1 adds chunks (FP16: 4 products, BF16: 2) and the sum so far without error and rounds once;
    * CDNA2 rounds products and the sums of pairs (FP16: 4 products at once, BF16: 2) to FP32 and flushes subnormal
      operands and results; ``variant="1k"`` names the later BF16 instructions, of 4 products;
    * CDNA3 aligns chunks (TF32: 4, FP16 and BF16: 8, FP8 fnuz: 16 in two interleaved halves), cuts products toward
      zero and sums toward minus infinity, and rounds to nearest.

    Raises ValueError, with a list of what there is, for what the architecture lacks.

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
        _ = self.row  # refuses what the architecture lacks

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return FP64 if self.inputs == (FP64, FP64) else FP32

    @property
    def chunk(self) -> int:
        """The products of an instruction's chunk."""
        return 4 if self.variant else self.row.terms

    @cached_property
    def row(self) -> Instruction:
        """The unit's row of the table."""
        return find_instruction(self.architecture, AMD_UNITS[self.architecture], self.inputs, self.result)

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """What is known of sums of so many such products: floors add less than terms do."""
        return products.after_summation(2 * terms).within_format(self.result)

    def engine(self, problem: Problem) -> Engine:
        """The unit's loop. Raises ValueError for operands outside its formats."""
        check_operands(self, operand_formats(self.inputs), problem)
        if self.row in CHAINS:
            return SequentialSum(self.result).engine(problem)
        least = (self.inputs[0].emin, self.inputs[1].emin)
        if self.architecture == "cdna1":
            return _Cdna1Sum(self.chunk)
        if self.architecture == "cdna2":
            return _Cdna2Sum(self.chunk, least[0])
        # On CDNA3 a product of 2^128 or more is infinite: only where there is none may the loop leave out that care.
        finite = problem.products.finite and problem.products.high <= 128
        # The sixteen products of FP8 are two sums: of those with even and of those
        # with odd numbers, each aligned to its own largest exponent.
        parts = 2 if self.row.terms == 16 else 1
        cuts = TF32 in self.inputs
        wide = _Cdna3Sum(self.row.terms, parts, least, finite, cuts)
        return choose_floored_engine(wide, self.row.terms, parts, least, TF32_CUT if cuts else 0)

    def _text(self, name: str, write: Any) -> str:
        if name == "inputs":
            return pair_text(self.inputs, write)
        return f'"{getattr(self, name)}"'


class _Cdna1Sum(NamedTuple):
    """CDNA1."""

    terms: int
    carrier: FloatType = np.float64
    cost: float = 3.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        region.machine.loops.matrix_core_loops.exact_chunks(*pad_to_chunks(a, b, self.terms), out, self.terms)


class _Cdna2Sum(NamedTuple):
    """CDNA2."""

    terms: int
    emin: int
    carrier: FloatType = np.float32
    cost: float = 0.3

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        # CDNA2 takes operands below this, subnormal in their own format, for zeros.
        least = np.float32(2.0**self.emin)
        if a.shape[1]:  # what the first sum starts from is an operand, and flushed as one
            out[np.abs(out) < 2.0**FP32.emin] = 0.0
        region.machine.loops.matrix_core_loops.flushed_pairs(*pad_to_chunks(a, b, self.terms), out, self.terms, least)


class _Cdna3Sum(NamedTuple):
    """CDNA3."""

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
