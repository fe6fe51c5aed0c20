"""The ways of training in 16 and 8 bits that experiments with much data compare with FP32."""

from __future__ import annotations

import simfloat as sf
from experiments.mixed_precision import FP16_WEIGHTS, FP32, UNSCALED
from experiments.variants import Variant

STANDARD = Variant("bf16-standard", sf.policies["bf16-standard"], "BF16, nearest updates")
STOCHASTIC = Variant("bf16-stochastic", sf.policies["bf16-stochastic"], "BF16, stochastic updates")
KAHAN = Variant("bf16-kahan", sf.policies["bf16-kahan"], "BF16, Kahan updates")
FP32_WEIGHTS = Variant("bf16-fp32-weights", sf.policies["bf16-fp32-weights"], "BF16, FP32 weights")
NO_MASTER = Variant("fp16-weights", FP16_WEIGHTS, "FP16, FP16 weights")
MASTER = UNSCALED._replace(label="FP16, FP32 master copy")
FP8 = Variant("fp8-hybrid", sf.policies["fp8-hybrid"], "FP8 products")

VARIANTS = (FP32, STANDARD, STOCHASTIC, KAHAN, FP32_WEIGHTS, NO_MASTER, MASTER, FP8)
