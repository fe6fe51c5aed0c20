"""A layer in FP8, in FP16, or in the one that a rule chooses; everything else in FP16, weights in FP32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import simfloat as sf
from experiments.layer_switching.problems import LAYER

#: Clean steps after which the loss scale grows: PyTorch's 2000 would be five runs.
GROWTH_INTERVAL = 25

#: Above this variance of its weight gradient, the layer is in FP16: the median of runs in FP32 is near it.
VARIANCE = 1e-4

#: After this share of the steps, a layer that was in FP16 switches to FP8 permanently.
ONCE = 0.75

#: The number of steps that a layer stays in FP16 before FP8 is tried again.
HOLD = 25

#: Steps inside the loss are in FP32: a scale of 2^16 is infinite in FP16.
WIDE = sf.Policy(name="fp16", compute=sf.FP16, weights=sf.FP32, fused=True)


def in_fp8(forward: Any, backward: Any) -> sf.Policy:
    """Return FP16 with the operands of the layer's products in FP8; its results stay in FP16."""
    return WIDE.override(LAYER, compute=forward, compute_gradients=backward, activations=sf.FP16)


HYBRID = in_fp8(sf.E4M3, sf.E5M2)
E4M3 = in_fp8(sf.E4M3, sf.E4M3)
SCALED = in_fp8(sf.scaled(sf.E4M3, sf.per_tensor()), sf.scaled(sf.E5M2, sf.per_tensor()))


class Switched(NamedTuple):
    """A layer in `narrow` or in FP16, by a rule that is evaluated every `window` steps, or fixed."""

    key: str
    label: str
    narrow: sf.Policy
    rule: str | None = None  # "variance", "overflow" or "once"
    window: int = 1

    @property
    def first(self) -> sf.Policy:
        """Return the policy of the first step."""
        return WIDE if self.rule == "once" else self.narrow

    def switching(self, model: sf.nn.Module, steps: int) -> Callable[..., sf.Policy] | None:
        """Return the rule for a model in a run of `steps` steps."""
        if self.rule == "once":
            return lambda step, observer: self.narrow if step >= ONCE * steps else WIDE
        if self.rule == "variance":
            measure, above = lambda: variance(model), VARIANCE
            return sf.Switching(self.narrow, WIDE, measure, above=above, window=self.window, hold=HOLD)
        if self.rule == "overflow":
            return sf.Switching(self.narrow, WIDE, "overflow", above=0.0, path=f"{LAYER}*", hold=HOLD)
        return None


def variance(model: sf.nn.Module) -> float:
    """Return the variance of the gradient of the layer's weight; NaN if it is not finite."""
    gradient = np.asarray(dict(model.named_parameters())[f"{LAYER}.weight"].grad, np.float64)
    return float(np.var(gradient)) if np.isfinite(gradient).all() else np.nan


FIXED = Switched("fp16", "FP16", WIDE)
VARIANTS = {
    "digits": [
        FIXED,
        Switched("fp8", "FP8, E5M2 gradients", HYBRID),
        Switched("fp8-e4m3", "FP8, E4M3 gradients", E4M3),
        Switched("variance", "by variance, E5M2", HYBRID, "variance"),
        Switched("variance-scaled", "by variance, E5M2 scaled", SCALED, "variance"),
        Switched("variance-e4m3", "by variance, E4M3", E4M3, "variance"),
        Switched("variance-late", "by variance every 10 steps, E4M3", E4M3, "variance", window=10),
        Switched("once", "once, late, E5M2", HYBRID, "once"),
        Switched("once-e4m3", "once, late, E4M3", E4M3, "once"),
    ],
    "camera": [
        FIXED,
        Switched("fp8", "FP8, E5M2 gradients", HYBRID),
        Switched("overflow", "by overflow, E5M2", HYBRID, "overflow"),
    ],
}
