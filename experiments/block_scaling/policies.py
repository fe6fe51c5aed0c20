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

#: One part of NVFP4's recipe, added to MXFP4.
STOCHASTIC = replace(
    sf.policies["mxfp4"],
    compute_gradients=sf.cast(sf.E2M1, sf.stochastic(), scale=sf.block(32, sf.E8M0)),
    name="mxfp4-stochastic",
    source="Training LLMs with MXFP4, arXiv 2502.20586, without its rotation",
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
    Variant("mxfp4-stochastic", STOCHASTIC, "MXFP4, stochastic"),
]
