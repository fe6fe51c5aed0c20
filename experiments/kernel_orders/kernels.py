"""Forms of inference, and the kernels that are compared in each: the same products, added in other orders."""

from __future__ import annotations

import simfloat as sf
from simfloat.sums import Accumulator

#: The kernel with which the others are compared: the one of cuBLAS on an H200.
REFERENCE = "H200"

#: Formats of results: BF16, BF16 with the logits in FP32, FP16, and FP32 with weights in BF16.
FORMS = ("BF16", "FP32 head", "FP16", "LayerCast")


def units(operands: sf.Format) -> dict[str, Accumulator]:
    """Return the accumulators: Hopper's tensor core, the same in parts, Ampere's tensor core, and FP32 additions."""
    hopper = sf.tensor_core("hopper", operands)
    return {
        REFERENCE: hopper,
        "split": sf.blocked(32, hopper, sf.FP32),
        "A100": sf.tensor_core("ampere", operands),
        "chain": sf.sequential(sf.FP32),
    }


def orders() -> dict[str, Accumulator]:
    """Return accumulators in FP32: blocks of 32, blocks of 64 as for TF32, lanes as for one row, and one chain."""
    return {
        REFERENCE: sf.blocked(32, sf.FP32, sf.FP32),
        "split": sf.blocked(64, sf.FP32, sf.FP32),
        "lanes": sf.lanes(32, sf.FP32, sf.pairwise(sf.FP32)),
        "chain": sf.sequential(sf.FP32),
    }


def policies(form: str) -> dict[str, sf.Policy]:
    """Return the policy of each kernel for a form of inference."""
    if form == "LayerCast":
        return {
            name: sf.Policy(weights=sf.BF16, compute=sf.FP32, accumulate=order, reduce=sf.FP32)
            for name, order in orders().items()
        }
    operands = sf.FP16 if form == "FP16" else sf.BF16
    plain = {
        name: sf.Policy(compute=operands, accumulate=unit, reduce=sf.FP32, fused=True)
        for name, unit in units(operands).items()
    }
    if form != "FP32 head":
        return plain
    pairs = zip(plain.items(), orders().values(), strict=True)
    return {name: policy.override("head", compute=sf.FP32, accumulate=order) for (name, policy), order in pairs}
