"""Policies that people use, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from simfloat.formats import BF16, FP16, FP32, FP64
from simfloat.policy.policy import Policy

REVISITING = "Revisiting BFloat16 Training, arXiv 2010.06192"
MIXED = "Micikevicius et al., Mixed Precision Training, ICLR 2018"

#: Name, roles and source of every preset.
PRESETS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("fp64", dict(compute=FP64, accumulate=FP64), "IEEE 754-2019 binary64 throughout"),
    ("fp32", dict(compute=FP32), f"{REVISITING}, section 2: 32-bit precision training"),
    ("bf16-standard", dict(compute=BF16), f"{REVISITING}, section 1: the standard algorithm"),
    (
        "bf16-stochastic",
        dict(compute=BF16, update="stochastic"),
        f"{REVISITING}, section 3.2: stochastic rounding of the weight update",
    ),
    (
        "bf16-kahan",
        dict(compute=BF16, update="kahan"),
        f"{REVISITING}, algorithm 1: Kahan summation of the weight updates",
    ),
    (
        "bf16-fp32-weights",
        dict(compute=BF16, weights=FP32, optimizer_state=BF16),
        f"{REVISITING}, section 4: 32-bit weights, all else in 16 bits",
    ),
    ("fp16-standard", dict(compute=FP16), f"{MIXED}, section 3: FP16 without a master copy"),
    ("fp16-master", dict(compute=FP16, weights=FP32), f"{MIXED}, section 3.1: FP32 master copy of weights"),
)

policies: Mapping[str, Policy] = MappingProxyType(
    {name: Policy(name=name, source=source, **roles) for name, roles, source in PRESETS}
)
