"""The policies that are compared."""

from __future__ import annotations

import simfloat as sf

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

#: Theorem 2's setting: one rounding of x^T w - y (the linear layer hands its sum on unrounded), exact updates.
THEOREM_2 = sf.Policy(
    name="theorem-2",
    compute=sf.FP64,
    accumulate=sf.FP64,
    activations=sf.BF16,
    gradients=sf.BF16,
).override(operation="linear", activations=sf.FP64)

POLICIES: dict[str, sf.Policy] = {
    "fp32": sf.policies["fp32"],
    "forward-backward-only": FORWARD_BACKWARD_ONLY,
    "bf16-standard": sf.policies["bf16-standard"],
    "update-only": UPDATE_ONLY,
    "bf16-stochastic": sf.policies["bf16-stochastic"],
    "bf16-kahan": sf.policies["bf16-kahan"],
    "bf16-fp32-weights": sf.policies["bf16-fp32-weights"],
}
