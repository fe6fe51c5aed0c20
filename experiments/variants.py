"""The policies that an experiment compares, with a key for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from simfloat.optim import DynamicLossScale, LayerwiseLossScale, LogNormalLossScale, LossScale, StaticLossScale
from simfloat.policy import Policy

#: A loss scale as plain values, which a job carries between processes: ``{"kind": "static", "scale": 1024.0}``.
Scaler = Mapping[str, Any]

KINDS: Mapping[str, type[LossScale]] = {
    "static": StaticLossScale,
    "dynamic": DynamicLossScale,
    "log-normal": LogNormalLossScale,
    "layerwise": LayerwiseLossScale,
}


class Variant(NamedTuple):
    """A policy with its loss scale, if any: results are grouped by `key`; figures and tables show `label`."""

    key: str
    policy: Policy
    label: str
    scaler: Scaler | None = None


def given(policy: Policy, reference: Sequence[Variant]) -> list[Variant]:
    """Return the reference and the policy of the user, with different keys even if they have the same name."""
    name = policy.name or "given"
    taken = {label for variant in reference for label in (variant.key, variant.label)}
    return [*reference, Variant("given", policy, f"{name} (given)" if name in taken else name)]


def static(scale: float) -> Scaler:
    """Return the constant scale."""
    return {"kind": "static", "scale": scale}


def make_scaler(scaler: Scaler) -> LossScale:
    """Return a new loss scale of that kind. Raises ValueError for an unknown kind or invalid arguments."""
    options = dict(scaler)
    kind = options.pop("kind", None)
    if kind not in KINDS:
        raise ValueError(f"Unknown kind of loss scale {kind!r}. Kinds: {', '.join(KINDS)}.")
    return KINDS[kind](**options)
