"""AMD's matrix cores, as MMA-Sim 2.1.1 models them (Xie et al., arXiv 2511.10909)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.accumulator import Engine, Operands, Place, whole_steps
from simfloat.accumulate.contraction import as_pair
from simfloat.accumulate.facts import Facts
from simfloat.accumulate.fused import cut_to_tf32, powers
from simfloat.accumulate.sequential import Sequential
from simfloat.accumulate.units import Instruction, Pair, check_operands, find, padded
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import BF16, E4M3FNUZ, E5M2FNUZ, FP16, FP32, FP64, TF32, Format, Rounding

CHAINS = (Instruction((FP32,), (FP32,), 1), Instruction((FP64,), (FP64,), 1))

UNITS = {
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


def matrix_core(
    architecture: str, inputs: Format | str | tuple[Format | str, Format | str], *, variant: str | None = None
) -> MatrixCore:
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
    """
    pair = as_pair(inputs)
    output = FP64 if pair == (FP64, FP64) else FP32
    find("matrix_core", UNITS, architecture, pair, output, None)
    if variant is not None and (architecture, pair, variant) != ("cdna2", (BF16, BF16), "1k"):
        raise ValueError(f'The only variant is "1k", of BF16 on cdna2; got {variant!r} of {pair[0]} on {architecture}.')
    return MatrixCore(architecture, pair, variant)


@dataclass(frozen=True)
class MatrixCore:
    """See :func:`matrix_core`."""

    architecture: str
    inputs: Pair
    variant: str | None = None

    scales: ClassVar[None] = None
    stages: ClassVar[int] = 0
    roundings: ClassVar[tuple[Rounding, ...]] = ()

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return FP64 if self.inputs == (FP64, FP64) else FP32

    @cached_property
    def instruction(self) -> Instruction:
        """The unit's row of the table."""
        return find("matrix_core", UNITS, self.architecture, self.inputs, self.result, None)

    def steps(self, terms: int) -> int:
        """One a product."""
        return whole_steps(terms)

    def sums(self, products: Facts, terms: int) -> Facts:
        """What is known of sums of so many such products: floors add less than terms do."""
        return products.summed(2 * terms).numbers_of(self.result)

    def engine(self, operands: Operands) -> Engine:
        """The unit's loop. Raises ValueError for operands outside its formats."""
        check_operands(self, self.inputs, operands)
        instruction = self.instruction
        if instruction in CHAINS:
            return Sequential(self.result).engine(operands)
        least = (self.inputs[0].emin, self.inputs[1].emin)
        if self.architecture == "cdna1":
            return _Exact(instruction.terms)
        if self.architecture == "cdna2":
            return _Flushed(4 if self.variant else instruction.terms, least[0])
        finite = operands.a.finite and operands.b.finite and operands.products.high <= 128
        parts = 2 if instruction.terms == 16 else 1
        return _Floored(instruction.terms, parts, least, finite, TF32 in self.inputs)

    def __repr__(self) -> str:
        return self._call(*map(repr, self.inputs))

    def __str__(self) -> str:
        return self._call(*map(str, self.inputs))

    def _call(self, a: str, b: str) -> str:
        inputs = a if a == b else f"({a}, {b})"
        variant = f', variant="{self.variant}"' if self.variant else ""
        return f'matrix_core("{self.architecture}", {inputs}{variant})'


class _Exact(NamedTuple):
    """CDNA1."""

    terms: int
    carrier: FloatType = np.float64
    cost: float = 3.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        kernels.matrix_units.exact_chunks(*padded(a, b, self.terms), out, self.terms)


class _Flushed(NamedTuple):
    """CDNA2."""

    terms: int
    emin: int
    carrier: FloatType = np.float32
    cost: float = 0.3

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        least = np.float32(2.0**self.emin)
        kernels.matrix_units.flushed_pairs(*padded(a, b, self.terms), out, self.terms, least)


class _Floored(NamedTuple):
    """CDNA3."""

    terms: int
    parts: int
    least: tuple[int, int]  # emin of the left and of the right operand
    finite: bool
    cuts: bool
    carrier: FloatType = np.float64
    cost: float = 1.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        if self.cuts:
            a, b = cut_to_tf32(a), cut_to_tf32(b)
        a, b = padded(a, b, self.terms)
        left, right = reversed(self.least) if place.swapped else self.least
        a_powers, b_powers = powers(a, left), powers(b, right)
        kernels.matrix_units.floored_sums(a, b, a_powers, b_powers, out, self.terms, self.parts, self.finite)
