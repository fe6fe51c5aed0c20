"""Policies that people use, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from simfloat.accumulate import sequential
from simfloat.formats import BF16, FP16, FP32, FP64
from simfloat.policy.policy import Policy

REVISITING = "Revisiting BFloat16 Training, arXiv 2010.06192"
MIXED = "Micikevicius et al., Mixed Precision Training, ICLR 2018"

policies: Mapping[str, Policy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy(name="fp64", compute=FP64, accumulate=sequential(FP64), source="IEEE 754-2019 binary64 throughout"),
            Policy(name="fp32", compute=FP32, source=f"{REVISITING}, section 2: 32-bit precision training"),
            Policy(name="bf16-standard", compute=BF16, source=f"{REVISITING}, section 1: the standard algorithm"),
            Policy(
                name="bf16-stochastic",
                compute=BF16,
                update="stochastic",
                source=f"{REVISITING}, section 3.2: stochastic rounding of the weight update",
            ),
            Policy(
                name="bf16-kahan",
                compute=BF16,
                update="kahan",
                source=f"{REVISITING}, algorithm 1: Kahan summation of the weight updates",
            ),
            Policy(
                name="bf16-fp32-weights",
                compute=BF16,
                weights=FP32,
                optimizer_state=BF16,
                source=f"{REVISITING}, section 4: 32-bit weights, all else in 16 bits",
            ),
            Policy(name="fp16-standard", compute=FP16, source=f"{MIXED}, section 3: FP16 without a master copy"),
            Policy(
                name="fp16-master",
                compute=FP16,
                weights=FP32,
                source=f"{MIXED}, section 3.1: FP32 master copy of weights",
            ),
        )
        if policy.name is not None
    }
)
