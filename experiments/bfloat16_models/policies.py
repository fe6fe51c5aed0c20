"""The policies that are compared."""

from __future__ import annotations

import simfloat as sf
from experiments.variants import Variant

FP32 = Variant("fp32", sf.policies["fp32"], "32-bit")
STANDARD = Variant("bf16-standard", sf.policies["bf16-standard"], "standard 16-bit")
FP32_WEIGHTS = Variant("bf16-fp32-weights", sf.policies["bf16-fp32-weights"], "16-bit with 32-bit weights")
STOCHASTIC = Variant("bf16-stochastic", sf.policies["bf16-stochastic"], "16-bit stochastic")
KAHAN = Variant("bf16-kahan", sf.policies["bf16-kahan"], "16-bit Kahan")

#: Table 2 of the paper.
PURE = [FP32, STANDARD, STOCHASTIC, KAHAN]


def partly_kahan(name: str, *layers: str) -> sf.Policy:
    """Return stochastic updates, with Kahan summation for the parameters of these layers."""
    policy = sf.Policy(
        name=name,
        compute=sf.BF16,
        update="stochastic",
        source="arXiv 2010.06192, section 4: Kahan summation on part of the weights",
    )
    for layer in layers:
        policy = policy.override(f"{layer}.*", update="kahan")
    return policy


#: Figure 4 of the paper: Kahan summation for some of the weights of DLRM.
MIXED = [
    Variant("kahan-mlps", partly_kahan("kahan-mlps", "bottom", "top"), "Kahan for MLPs"),
    Variant("kahan-tables", partly_kahan("kahan-tables", "tables"), "Kahan for tables"),
]

#: The variants, in the order of their memory.
TRADE_OFF = [STOCHASTIC, *MIXED, KAHAN]
