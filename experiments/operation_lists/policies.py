"""The policies that are compared: one list in FP16 and the rest in FP32, and mixed precision with one list changed."""

from __future__ import annotations

import simfloat as sf
from experiments.variants import Variant
from simfloat.policy.presets import AUTOCAST_NARROW as ALLOWED
from simfloat.policy.presets import AUTOCAST_WIDE as DENIED

AMP = sf.policies["amp-fp16"]

#: Parameters are always in FP32: the lists are about operations.
WIDE = sf.Policy(compute=sf.FP32)
NARROW = sf.Policy(compute=sf.FP16, weights=sf.FP32)
NARROW_SUMS = sf.Policy(compute=sf.FP16, weights=sf.FP32, reduce=sf.FP16)

FP32 = Variant("fp32", sf.policies["fp32"], "fp32")
MIXED = Variant("amp", AMP, "the three lists (AMP)")
INFER_NARROW = Variant("infer-narrow", NARROW.deny(*DENIED), "AMP, infer list in FP16")
DENY_NARROW = Variant(
    "deny-narrow", AMP.override(operation=DENIED, activations=sf.FP16, reduce=sf.FP16), "AMP, deny list in FP16"
)
EVERYTHING = Variant("everything", NARROW_SUMS, "everything in FP16")

#: What trains.
TRAINED = [FP32, MIXED, INFER_NARROW, DENY_NARROW, EVERYTHING]

#: One list in FP16, everything else in FP32: this measures the effect of the list alone.
ALLOW_ALONE = Variant("allow-alone", WIDE.allow(*ALLOWED, format=sf.FP16), "allow list alone")
INFER_ALONE = Variant("infer-alone", NARROW.deny(*ALLOWED, *DENIED), "infer list alone")
DENY_ALONE = Variant(
    "deny-alone", WIDE.override(operation=DENIED, activations=sf.FP16, reduce=sf.FP16), "deny list alone"
)
DENY_WIDE_SUMS = Variant(
    "deny-wide-sums", WIDE.override(operation=DENIED, activations=sf.FP16), "deny list alone, FP32 sums"
)
ALONE = [ALLOW_ALONE, INFER_ALONE, DENY_WIDE_SUMS, DENY_ALONE]

#: The policies of the gradients.
MEASURED = [*ALONE, MIXED, INFER_NARROW, DENY_NARROW, EVERYTHING]
