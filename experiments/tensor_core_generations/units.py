"""The units that are compared."""

from __future__ import annotations

from typing import NamedTuple

import simfloat as sf
from simfloat.sums.units import NvidiaArchitecture


class Unit(NamedTuple):
    """A way to sum, with its key in the results and its name in figures."""

    key: str
    label: str
    accumulator: sf.Accumulator


#: From the oldest to the newest.
GENERATIONS: tuple[NvidiaArchitecture, ...] = ("volta", "turing", "ampere", "ada", "hopper", "blackwell")

#: The sum of scalar cores: one fused multiply-add in FP32 after the other.
CHAIN = Unit("fp32", "FP32 FMA chain", sf.sequential(sf.FP32))

#: FP16 products, FP32 sums.
HALF = (*(Unit(name, name.capitalize(), sf.tensor_core(name, sf.FP16)) for name in GENERATIONS), CHAIN)

#: Generations with equal units, by the oldest one of each group.
GROUPS = {
    "volta": ("volta",),
    "turing": ("turing", "ampere", "ada"),
    "hopper": ("hopper", "blackwell"),
    "fp32": ("fp32",),
}

HOPPER = sf.tensor_core("hopper", sf.E4M3)

#: The number of products after which DeepSeek-V3 moves a partial sum to FP32.
INTERVAL = 128


def promoted(interval: int) -> sf.Accumulator:
    """Return Hopper's FP8 sums, each of `interval` products from zero, added up in FP32."""
    return sf.blocked(interval, HOPPER, sf.FP32)


#: FP8 products.
EIGHT = (
    Unit("hopper", "Hopper", HOPPER),
    Unit("promoted", f"Hopper, promoted every {INTERVAL}", promoted(INTERVAL)),
    Unit("blackwell", "Blackwell", sf.tensor_core("blackwell", sf.E4M3)),
    CHAIN,
)
