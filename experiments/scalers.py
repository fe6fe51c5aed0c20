"""Loss scales as plain values, which a job carries between processes: ``{"kind": "static", "scale": 1024.0}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simfloat.optim import DynamicLossScale, LayerwiseLossScale, LogNormalLossScale, LossScale, StaticLossScale

#: A kind by its name, and the options of its call.
Scaler = Mapping[str, Any]

KINDS: Mapping[str, type[LossScale]] = {
    "static": StaticLossScale,
    "dynamic": DynamicLossScale,
    "log-normal": LogNormalLossScale,
    "layerwise": LayerwiseLossScale,
}


def static(scale: float) -> Scaler:
    """The constant scale."""
    return {"kind": "static", "scale": scale}


def make_scaler(scaler: Scaler) -> LossScale:
    """A fresh loss scale of that kind. Raises ValueError for a kind that there is not, and as the kind itself does."""
    options = dict(scaler)
    kind = options.pop("kind", None)
    if kind not in KINDS:
        raise ValueError(f"Unknown kind of loss scale {kind!r}. Kinds: {', '.join(KINDS)}.")
    return KINDS[kind](**options)
