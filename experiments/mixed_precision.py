"""Mixed precision training: Micikevicius et al., ICLR 2018, arXiv 1710.03740, section 3."""

from __future__ import annotations

import simfloat as sf
from experiments.variants import Scaler, Variant, static

#: Weights, activations and gradients in FP16, sums in FP32, losses and softmax in FP32 inside, a master copy in FP32.
MIXED = sf.Policy(
    name="mixed",
    compute=sf.FP16,
    weights=sf.FP32,
    fused=True,
    source="arXiv 1710.03740, section 3: FP16 with an FP32 master copy and FP32 sums",
)

#: The same without a master copy: weights are stored and updated in FP16.
FP16_WEIGHTS = sf.Policy(
    name="fp16-weights",
    compute=sf.FP16,
    fused=True,
    source="arXiv 1710.03740, section 3.1: FP16 without a master copy",
)

FP32 = Variant("fp32", sf.policies["fp32"], "FP32")
UNSCALED = Variant("unscaled", MIXED, "mixed, not scaled")


def scaled(exponent: int) -> Variant:
    """Return mixed precision with a constant loss scale of 2^exponent."""
    return with_scaler(f"scale-{exponent}", static(2.0**exponent), f"mixed, scale {2**exponent}")


def with_scaler(key: str, scaler: Scaler, label: str) -> Variant:
    """Return mixed precision with a loss scale."""
    return Variant(key, MIXED, label, scaler)
