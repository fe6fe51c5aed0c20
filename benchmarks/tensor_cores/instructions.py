"""The instructions of tensor cores for which we have models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import simfloat as sf

#: The names of formats in instructions.
NAMES = {sf.FP32: "f32", sf.FP16: "f16", sf.BF16: "bf16", sf.TF32: "tf32", sf.E4M3: "e4m3", sf.E5M2: "e5m2"}

#: Formats of both operands.
PAIRS = (*((format, format) for format in (sf.FP16, sf.BF16, sf.TF32)), *product((sf.E4M3, sf.E5M2), repeat=2))

#: The number of bytes of a row of a, and of a column of b, that an instruction reads, for every format.
CHUNK_BYTES = 32


class Gpu(NamedTuple):
    """A compute capability: our name for its architecture, and its instructions by the names of our models."""

    architecture: str
    instructions: Mapping[str, str | None]


MMA: Mapping[str, str | None] = {"mma": None}

#: By compute capability. 12.0 has no `tcgen05`, and its `mma` sums FP8 as `tcgen05` does on 10.0 (MMA-Sim 2.1.1).
GPUS = {
    80: Gpu("ampere", MMA),
    86: Gpu("ampere", MMA),
    87: Gpu("ampere", MMA),
    89: Gpu("ada", MMA),
    90: Gpu("hopper", {"mma": "mma", "wgmma": "wgmma"}),
    100: Gpu("blackwell", {"mma": "mma"}),
    120: Gpu("blackwell", MMA),
}


class Unit(NamedTuple):
    """One instruction: `mma` of a warp or `wgmma` of four, with the formats of its operands and of its sums."""

    family: str
    a: sf.Format
    b: sf.Format
    sums: sf.Format

    @property
    def name(self) -> str:
        """The instruction in PTX."""
        a, b, sums = (NAMES[format] for format in (self.a, self.b, self.sums))
        if self.family == "wgmma":
            return f"wgmma.mma_async.sync.aligned.m64n8k{self.terms}.{sums}.{a}.{b}"
        return f"mma.sync.aligned.m16n8k{self.terms}.row.col.{sums}.{a}.{b}.{sums}"

    @property
    def rows(self) -> int:
        """The number of rows of a; there are 8 columns of b."""
        return 16 * self.warps

    @property
    def warps(self) -> int:
        """The number of warps that run it together."""
        return 4 if self.family == "wgmma" else 1

    @property
    def terms(self) -> int:
        """The number of products that it adds to each sum."""
        return CHUNK_BYTES // bytes_of(self.a)

    def model(self, capability: int) -> sf.Accumulator:
        """Return our accumulator for it on such a GPU. Raises ValueError if there is none."""
        architecture, instructions = GPUS[capability]
        named = instructions[self.family]
        return sf.tensor_core(architecture, (self.a, self.b), self.sums, instruction=named)  # type: ignore[arg-type]


def bytes_of(format: sf.Format) -> int:
    """Return the bytes of an operand in the memory of a GPU: TF32 numbers are stored as float32."""
    return 4 if format == sf.TF32 else format.bits // 8


def units(capability: int) -> Iterator[Unit]:
    """Return every instruction of a GPU for which we have a model."""
    for family, (a, b), sums in product(GPUS[capability].instructions, PAIRS, (sf.FP32, sf.FP16)):
        unit = Unit(family, a, b, sums)
        try:
            unit.model(capability)
        except ValueError:  # the architecture has no such unit
            continue
        yield unit
