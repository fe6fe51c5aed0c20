"""The policies that are compared: FP32 throughout, except for Adam's moments."""

from __future__ import annotations

from dataclasses import replace

import simfloat as sf
from experiments.variants import Variant

FP32 = sf.policies["fp32"]


def moments(format: sf.Format, *, stochastic: bool = False) -> sf.Policy:
    """Return moments in this format, to nearest or stochastically; the last addition of weights is to nearest."""
    policy = replace(FP32, optimizer_state=format, name=f"{format.name} moments", source=None)
    return policy.override(operation="update", rounding=sf.stochastic()) if stochastic else policy


VARIANTS = [
    Variant("fp32", FP32, "FP32"),
    Variant("bf16", moments(sf.BF16), "BF16"),
    Variant("bf16-stochastic", moments(sf.BF16, stochastic=True), "BF16, stochastic"),
    Variant("fp16", moments(sf.FP16), "FP16"),
    Variant("e5m2", moments(sf.E5M2), "E5M2"),
    Variant("e5m2-stochastic", moments(sf.E5M2, stochastic=True), "E5M2, stochastic"),
]
