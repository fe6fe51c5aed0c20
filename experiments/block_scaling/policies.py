"""The policies that are compared: they differ only in the operands of contractions, and in DeepSeek's moments."""

from __future__ import annotations

from dataclasses import replace

import simfloat as sf
from experiments.variants import Variant

BF16 = Variant(
    "bf16", sf.Policy(name="bf16", compute=sf.BF16, weights=sf.FP32, source="what narrower operands replace"), "BF16"
)

#: OCP's own rule for scales, which rounds them down.
FLOOR = replace(
    sf.policies["mxfp8"],
    compute=sf.scaled(sf.E4M3, sf.block(32, sf.E8M0, rule="floor")),
    name="mxfp8-floor",
    source="OCP Microscaling Formats 1.0, section 6.3",
)

#: MXFP4 with one part of NVFP4's recipe: gradients are rounded stochastically.
MXFP4_STOCHASTIC = replace(
    sf.policies["mxfp4"],
    compute_gradients=sf.cast(sf.E2M1, sf.stochastic(), scale=sf.block(32, sf.E8M0)),
    name="mxfp4-stochastic",
    source=None,
)

#: E2M1 with one E4M3 scale for each 16 numbers of a row, rounded to nearest.
PLAIN = sf.scaled(sf.E2M1, sf.block(16, sf.E4M3))

#: NVFP4's format without the other parts of its recipe.
NVFP4_BARE = replace(
    sf.policies["nvfp4"], rotation=None, compute_gradients=PLAIN, compute_weights=PLAIN, name="bare", source=None
)

VARIANTS = [
    BF16,
    Variant("fp32", sf.policies["fp32"], "FP32 throughout"),
    Variant("fp8-delayed", sf.policies["fp8-delayed"], "FP8, delayed scaling"),
    Variant("fp8-hopper", sf.policies["fp8-hopper"], "FP8, Hopper's sums"),
    Variant("fp8-deepseek", sf.policies["fp8-deepseek"], "FP8, DeepSeek-V3"),
    Variant("mxfp8", sf.policies["mxfp8"], "MXFP8, scales up"),
    Variant("mxfp8-floor", FLOOR, "MXFP8, scales down"),
    Variant("nvfp4", sf.policies["nvfp4"], "NVFP4"),
    Variant("mxfp4", sf.policies["mxfp4"], "MXFP4"),
    Variant("mxfp4-stochastic", MXFP4_STOCHASTIC, "MXFP4, stochastic gradients"),
    Variant("nvfp4-bare", NVFP4_BARE, "NVFP4, bare"),
]
