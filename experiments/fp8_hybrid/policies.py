"""Formats of the operands of products; other results are in BF16 and weights in FP32, as in the preset fp8-hybrid."""

from __future__ import annotations

from typing import Any

import simfloat as sf
from experiments.variants import Variant, static

#: A loss scale that brings the largest gradients near E4M3's 448: those of the logits are below 1/32.
LOSS_SCALE = 2.0**12


def operands(forward: Any, backward: Any, weights: Any = None) -> sf.Policy:
    """Return operands: activations (and weights, unless they have their own format), and gradients."""
    return sf.Policy(
        compute=forward, compute_gradients=backward, compute_weights=weights, weights=sf.FP32, activations=sf.BF16
    )


def scaled(format: sf.Format) -> Any:
    """Return operands in this format, each tensor scaled by its largest value."""
    return sf.scaled(format, sf.per_tensor())


E4M3, E5M2 = scaled(sf.E4M3), scaled(sf.E5M2)

FP32 = Variant("fp32", sf.policies["fp32"], "fp32")
FP16 = Variant("fp16", operands(sf.FP16, sf.FP16), "FP16")

#: Every tensor has its own scale.
HYBRID = Variant("hybrid", operands(E4M3, E5M2), "E4M3 / E5M2, scaled")
SCALED = [
    HYBRID,
    Variant("e4m3", operands(E4M3, E4M3), "E4M3 / E4M3, scaled"),
    Variant("e5m2", operands(E5M2, E5M2), "E5M2 / E5M2, scaled"),
    Variant("e5m2-weights", operands(E4M3, E5M2, E5M2), "E4M3 / E5M2, E5M2 weights, scaled"),
]

#: Nothing is scaled, or only the loss.
BARE = [
    Variant("hybrid-bare", operands(sf.E4M3, sf.E5M2), "E4M3 / E5M2"),
    Variant("e4m3-bare", operands(sf.E4M3, sf.E4M3), "E4M3 / E4M3"),
]
LOSS_SCALED = [
    Variant("hybrid-loss", operands(sf.E4M3, sf.E5M2), "E4M3 / E5M2, loss scaled", static(LOSS_SCALE)),
    Variant("e4m3-loss", operands(sf.E4M3, sf.E4M3), "E4M3 / E4M3, loss scaled", static(LOSS_SCALE)),
]

VARIANTS = [FP32, FP16, *SCALED, *BARE, *LOSS_SCALED]
