"""NVIDIA's tensor cores, as MMA-Sim 2.1.1 models them (Xie et al., arXiv 2511.10909)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.accumulator import Engine, Operands, Place, whole_steps
from simfloat.accumulate.contraction import as_pair
from simfloat.accumulate.facts import Facts
from simfloat.accumulate.fused import E8M13, Fused, FusedEngine, powers
from simfloat.accumulate.sequential import Sequential
from simfloat.accumulate.units import Instruction, Pair, check_operands, find
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    E8M0,
    FP16,
    FP32,
    FP64,
    TF32,
    Format,
    Rounding,
    as_format,
)

FP8 = (E4M3, E5M2)
SMALL = (E4M3, E5M2, E3M2, E2M3, E2M1)
BOTH = (FP32, FP16)
DOUBLE = Instruction((FP64,), (FP64,), 1)

#: Units of 64 products of E2M1 numbers, which add groups of 16 before they align them.
GROUPED = Instruction((E2M1,), (FP32,), 64, 35, ((32, E8M0), (16, E8M0), (16, E4M3)))

UNITS = {
    "volta": (Instruction((FP16,), BOTH, 4, 23), DOUBLE),
    "turing": (Instruction((FP16,), BOTH, 8, 24), DOUBLE),
    "ampere": (
        Instruction((FP16,), BOTH, 8, 24),
        Instruction((BF16,), (FP32,), 8, 24),
        Instruction((TF32,), (FP32,), 4, 24),
        DOUBLE,
    ),
    "ada": (
        Instruction((FP16,), BOTH, 8, 24),
        Instruction((BF16,), (FP32,), 8, 24),
        Instruction((TF32,), (FP32,), 4, 24),
        Instruction(FP8, BOTH, 16, 13),
        DOUBLE,
    ),
    "hopper": (
        Instruction((FP16,), BOTH, 16, 25),
        Instruction((BF16,), (FP32,), 16, 25),
        Instruction((TF32,), (FP32,), 8, 25),
        Instruction(FP8, BOTH, 32, 13),
        DOUBLE,
    ),
    "blackwell": (
        Instruction((FP16,), BOTH, 16, 25),
        Instruction((BF16,), (FP32,), 16, 25),
        Instruction((TF32,), (FP32,), 8, 25),
        Instruction(SMALL, BOTH, 32, 25),
        GROUPED,
        Instruction(SMALL, (FP32,), 32, 25, ((32, E8M0),)),
        DOUBLE,
    ),
}

#: The exponent with which zeros take part, for FP32 and for FP16 results.
ZERO_EXPONENTS = {
    "volta": (-131, -19),
    "turing": (-132, -20),
    "ampere": (-132, -20),
    "ada": (-132, -20),
    "hopper": (-133, -21),
    "blackwell": (-133, -21),
}
GROUPED_ZERO_EXPONENT = -139


def tensor_core(
    architecture: str,
    inputs: Format | str | tuple[Format | str, Format | str],
    output: Format | str = FP32,
    scales: tuple[int, Format | str] | None = None,
) -> TensorCore:
    """The sums of an NVIDIA tensor core: "volta", "turing", "ampere", "ada", "hopper" or "blackwell".

    `inputs` is the format of both operands, or a pair. Operands must be numbers of it; a TF32 unit takes FP32 numbers
    and cuts their last 13 bits off. Chunks of products are aligned, cut and added as in :func:`simfloat.fused`, with
    the unit's numbers; on Ada and Hopper FP8 products leave sums of 14 bits in FP32. A short last chunk is padded
    with zeros. `scales`, on Blackwell, is a pair of the products a block and the format of a block's scale; the
    scales themselves go to :func:`simfloat.matmul`. E2M1 x E2M1 with scales is the unit of 64 products, and a scale
    in E4M3 is read without its sign. FP64 is a chain of fused multiply-adds and comes in FP64. All NaN are one NaN.

    Raises ValueError, with a list of what there is, for what the architecture lacks.
    """
    pair = as_pair(inputs)
    result = FP64 if pair == (FP64, FP64) else as_format(output)
    block = None if scales is None else _as_block(scales)
    find("tensor_core", UNITS, architecture, pair, result, block)
    return TensorCore(architecture, pair, result, block)


def _as_block(scales: tuple[int, Format | str]) -> tuple[int, Format]:
    if not isinstance(scales, tuple) or len(scales) != 2:
        raise ValueError(f"scales is a pair of the products a block and a format, as (32, E8M0); got {scales!r}.")
    return scales[0], as_format(scales[1])


@dataclass(frozen=True)
class TensorCore:
    """See :func:`tensor_core`."""

    architecture: str
    inputs: Pair
    output: Format = FP32
    scales: tuple[int, Format] | None = None

    stages: ClassVar[int] = 0
    roundings: ClassVar[tuple[Rounding, ...]] = ()

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.output

    @cached_property
    def instruction(self) -> Instruction:
        """The unit's row of the table."""
        return find("tensor_core", UNITS, self.architecture, self.inputs, self.output, self.scales)

    @cached_property
    def unit(self) -> Fused:
        """The unit as a fused sum."""
        terms, bits = self.instruction.terms, self.instruction.fraction_bits
        if self.instruction == GROUPED:
            return Fused(terms, bits, FP32, GROUPED_ZERO_EXPONENT)
        wide, half = ZERO_EXPONENTS[self.architecture]
        if self.output == FP16:
            return Fused(terms, bits, FP16, half)
        return Fused(terms, bits, E8M13 if bits == 13 else FP32, wide)

    def steps(self, terms: int) -> int:
        """One a product."""
        return whole_steps(terms)

    def sums(self, products: Facts, terms: int) -> Facts:
        """What is known of sums of so many such products."""
        return products.summed(terms).numbers_of(self.output)

    def engine(self, operands: Operands) -> Engine:
        """The unit's loop. Raises ValueError for operands outside its formats."""
        check_operands(self, self.inputs, operands)
        if self.instruction == DOUBLE:
            return Sequential(FP64).engine(operands)
        finite = operands.a.finite and operands.b.finite
        if self.instruction == GROUPED and self.scales:
            return _Groups(self.unit, *self.scales)
        least = (self.inputs[0].emin, self.inputs[1].emin)
        block = self.scales[0] if self.scales else 1
        return FusedEngine(self.unit, least, finite, block, cuts=TF32 in self.inputs)

    def __repr__(self) -> str:
        return self._call(repr)

    def __str__(self) -> str:
        return self._call(str)

    def _call(self, write: Callable[[Format], str]) -> str:
        inputs = (
            write(self.inputs[0]) if self.inputs[0] == self.inputs[1] else f"({', '.join(map(write, self.inputs))})"
        )
        output = "" if self.output in (FP32, FP64) else f", output={write(self.output)}"
        scales = f", scales=({self.scales[0]}, {write(self.scales[1])})" if self.scales else ""
        return f'tensor_core("{self.architecture}", {inputs}{output}{scales})'


class _Groups(NamedTuple):
    """The unit of 64 products."""

    unit: Fused
    block: int
    scale_format: Format
    carrier: FloatType = np.float64
    cost: float = 0.3

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        left, right = map(np.abs, place.scales or ())
        emin = self.scale_format.emin
        kernels.fused.fused_groups(
            a, b, left, right, powers(left, emin), powers(right, emin), out, self.unit.unit, self.unit.grid, self.block
        )
