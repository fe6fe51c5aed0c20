"""The policies that are compared."""

from __future__ import annotations

import simfloat as sf
from experiments.variants import Variant

UPDATE_ONLY = sf.Policy(
    name="update-only",
    compute=sf.FP32,
    weights=sf.BF16,
    source="arXiv 2010.06192, section 3.1: nearest rounding of the weight update only",
)
FORWARD_BACKWARD_ONLY = sf.Policy(
    name="forward-backward-only",
    compute=sf.FP32,
    activations=sf.BF16,
    gradients=sf.BF16,
    source="arXiv 2010.06192, section 3.1: nearest rounding of activations and gradients only",
)

#: Theorem 2's setting: one rounding of x^T w - y (the linear layer does not round its sum), and exact updates.
THEOREM_2 = sf.Policy(
    name="theorem-2",
    compute=sf.FP64,
    accumulate=sf.FP64,
    activations=sf.BF16,
    gradients=sf.BF16,
).override(operation="linear", activations=sf.FP64)

FP32 = Variant("fp32", sf.policies["fp32"], "fp32")
NEAREST_UPDATE = Variant("update-only", UPDATE_ONLY, "bf16 update only")

VARIANTS = [
    FP32,
    Variant("forward-backward-only", FORWARD_BACKWARD_ONLY, "bf16 forward and backward only"),
    Variant("bf16-standard", sf.policies["bf16-standard"], "bf16 standard"),
    NEAREST_UPDATE,
    Variant("bf16-stochastic", sf.policies["bf16-stochastic"], "bf16 stochastic update"),
    Variant("bf16-kahan", sf.policies["bf16-kahan"], "bf16 Kahan update"),
    Variant("bf16-fp32-weights", sf.policies["bf16-fp32-weights"], "bf16 with fp32 weights"),
]

#: The settings of the theorems: no rounding to 16 bits, nearest updates, exact updates.
THEOREMS = [FP32, NEAREST_UPDATE, Variant("theorem-2", THEOREM_2, "bf16 forward and backward only")]
