"""Which role of a policy rounds what a recorder counted, and the override that gives it a wider format there."""

from __future__ import annotations

from collections.abc import Iterable

from simfloat.arithmetic.catalog import kind_of
from simfloat.policy.roles import CONTRACTION, REDUCTION
from simfloat.telemetry.entries import Key

#: The roles of operands that are rounded before a product.
CASTS = {"cast_input": "compute", "cast_weight": "compute_weights", "cast_gradient": "compute_gradients"}

#: The paths below a parameter's at which an optimizer computes, and loss scaling and clipping work on its gradient.
BELOW_PARAMETERS = ("update", "unscale", "clip")


def override(key: Key, keys: Iterable[Key], *, is_fp32: bool, sums: bool = False) -> str:
    """The call that gives what was counted by `key` a better format: FP32, or FP64 if it is as good as FP32 already.

    `keys` are all that were seen, which tell parameters from layers; `sums` if it is the accumulator that is too
    narrow. Empty for a function that was called outside of any model, where no policy has a say.
    """
    path, role = _path_and_role(key, frozenset(keys), sums)
    if role is None:
        return ""
    target = repr(path) if path else f"operation={key.operation!r}"
    return f"policy.override({target}, {role}=sf.{'FP64' if is_fp32 else 'FP32'})"


def _path_and_role(key: Key, keys: frozenset[Key], sums: bool) -> tuple[str, str | None]:
    """Which path an override names, none for an operation alone, and the role; None if no override reaches it."""
    if key.phase == "update":
        return updated_parameter(key) or "*", "optimizer_state" if key.operation == "moment" else "weights"
    kind = kind_of(key.operation)
    if not key.path and kind is None:
        return "", None
    if key.operation in CASTS:
        return key.path, CASTS[key.operation]
    if sums and kind in (CONTRACTION, REDUCTION):
        role = "reduce" if kind == REDUCTION else "accumulate"
        return key.path, "accumulate_gradients" if key.phase == "backward" and role == "accumulate" else role
    if key.phase == "forward":
        return key.path, "activations"
    return key.path, "weight_gradients" if is_parameter(key.path, keys) else "activation_gradients"


def updated_parameter(key: Key) -> str:
    """The path of the parameter that an update counted by `key` is of; empty where it is of all."""
    path, _, name = key.path.rpartition(".")
    return path if key.operation == "moment" or name in BELOW_PARAMETERS else key.path


def is_parameter(path: str, keys: frozenset[Key]) -> bool:
    """Whether what was counted at the path is a parameter's gradient: it is updated, or a layer's and no layer itself.

    A layer has results of the forward pass where these were recorded; a parameter has none.
    """
    of_update = {path, *(f"{path}.{name}" for name in BELOW_PARAMETERS)}
    if any(key.phase == "update" and key.path in of_update for key in keys):
        return True
    layer = path.rpartition(".")[0]
    forward = {key.path for key in keys if key.phase == "forward"}
    layers = forward or {key.path for key in keys if key.path != path}
    return path not in forward and layer in layers
