"""The policies that are compared: NVFP4's recipe without each of its parts, its bare format with each, and MXFP8's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import simfloat as sf
from experiments.block_scaling.policies import BF16
from experiments.variants import Variant

NVFP4, MXFP8 = sf.policies["nvfp4"], sf.policies["mxfp8"]

#: E2M1 with one E4M3 scale for each 16 numbers of a row, rounded to nearest.
PLAIN = sf.scaled(sf.E2M1, sf.block(16, sf.E4M3))


def wide_head(policy: sf.Policy) -> sf.Policy:
    """Return the policy with the last layer, the logits, in BF16, as the paper does with its last blocks."""
    return policy.override(
        "head", compute=sf.BF16, compute_gradients=None, compute_weights=None, accumulate=sf.FP32, rotation=None
    )


#: NVFP4's format without the other parts of its recipe.
BARE = replace(NVFP4, rotation=None, compute_gradients=PLAIN, compute_weights=PLAIN, name="bare", source=None)

#: Functions that add a part to a policy without it.
PARTS: dict[str, Callable[[sf.Policy], sf.Policy]] = {
    "rotation": lambda policy: replace(policy, rotation=NVFP4.rotation),
    "stochastic gradients": lambda policy: replace(policy, compute_gradients=NVFP4.compute_gradients),
    "squares of weights": lambda policy: replace(policy, compute_weights=NVFP4.compute_weights),
    "last layer in BF16": wide_head,
}


def recipe(*parts: str, bare: sf.Policy = BARE) -> sf.Policy:
    """Return the bare format with these parts."""
    policy = bare
    for part in parts:
        policy = PARTS[part](policy)
    return replace(policy, name=", ".join(("NVFP4", *parts)))


def others(part: str) -> list[str]:
    """Return all parts except one."""
    return [each for each in PARTS if each != part]


def with_powers_of_two() -> sf.Policy:
    """Return the whole recipe with scales that are powers of two, rounded up, instead of E4M3 numbers."""
    whole, scales = recipe(*PARTS), {"rows": sf.block(16, sf.E8M0), "squares": sf.block((16, 16), sf.E8M0)}
    return replace(
        whole,
        compute=sf.scaled(sf.E2M1, scales["rows"]),
        compute_gradients=sf.cast(sf.E2M1, sf.stochastic(), scale=scales["rows"]),
        compute_weights=sf.scaled(sf.E2M1, scales["squares"]),
        accumulate=sf.tensor_core("blackwell", scales=(16, sf.E8M0)),
        name="NVFP4, powers of two",
    )


E5M2_GRADIENTS = replace(
    MXFP8, compute_gradients=sf.scaled(sf.E5M2, sf.block(32, sf.E8M0)), name="mxfp8-e5m2", source=None
)

VARIANTS = [
    BF16,
    Variant("whole", recipe(*PARTS), "NVFP4, whole recipe"),
    *(Variant(f"without {part}", recipe(*others(part)), f"without {part}") for part in PARTS),
    Variant("powers of two", with_powers_of_two(), "whole, powers of two as scales"),
    Variant("bare", BARE, "NVFP4, bare"),
    *(Variant(f"only {part}", recipe(part), f"bare + {part}") for part in PARTS),
    Variant("mxfp8", MXFP8, "MXFP8"),
    Variant("mxfp8-e5m2", E5M2_GRADIENTS, "MXFP8, gradients in E5M2"),
]
