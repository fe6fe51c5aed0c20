"""The instructions of tensor cores that our models know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import simfloat as sf

#: The formats as instructions name them.
NAMES = {sf.FP32: "f32", sf.FP16: "f16", sf.BF16: "bf16", sf.TF32: "tf32", sf.E4M3: "e4m3", sf.E5M2: "e5m2"}

#: Formats of both operands.
PAIRS = (*((format, format) for format in (sf.FP16, sf.BF16, sf.TF32)), *product((sf.E4M3, sf.E5M2), repeat=2))

#: The bytes of a row of a, and of a column of b, that an instruction reads, whatever their formats.
CHUNK_BYTES = 32


class Gpu(NamedTuple):
    """What a compute capability means: our name for its architecture, and its instructions by our models' names."""

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
    """One instruction: `mma` of a warp or `wgmma` of four, the formats of its operands, and that of its sums."""

    family: str
    a: sf.Format
    b: sf.Format
    sums: sf.Format

    @property
    def name(self) -> str:
        """The instruction, as PTX writes it."""
        a, b, sums = (NAMES[format] for format in (self.a, self.b, self.sums))
        if self.family == "wgmma":
            return f"wgmma.mma_async.sync.aligned.m64n8k{self.terms}.{sums}.{a}.{b}"
        return f"mma.sync.aligned.m16n8k{self.terms}.row.col.{sums}.{a}.{b}.{sums}"

    @property
    def rows(self) -> int:
        """The rows of a; there are 8 columns of b."""
        return 16 * self.warps

    @property
    def warps(self) -> int:
        """How many warps carry it out together."""
        return 4 if self.family == "wgmma" else 1

    @property
    def terms(self) -> int:
        """The products that it adds to each sum."""
        return CHUNK_BYTES // bytes_of(self.a)

    def model(self, capability: int) -> sf.Accumulator:
        """Our accumulator for it on such a GPU; ValueError if there is none."""
        architecture, instructions = GPUS[capability]
        named = instructions[self.family]
        return sf.tensor_core(architecture, (self.a, self.b), self.sums, instruction=named)  # type: ignore[arg-type]


def bytes_of(format: sf.Format) -> int:
    """The bytes of an operand in a GPU's memory: TF32 numbers come as float32."""
    return 4 if format == sf.TF32 else format.bits // 8


def units(capability: int) -> Iterator[Unit]:
    """Every instruction of a GPU that our models have."""
    for family, (a, b), sums in product(GPUS[capability].instructions, PAIRS, (sf.FP32, sf.FP16)):
        unit = Unit(family, a, b, sums)
        try:
            unit.model(capability)
        except ValueError:  # the architecture has no such unit
            continue
        yield unit
