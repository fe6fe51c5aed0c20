"""The role of a policy that rounds the results which a recorder counted, and the override that widens it."""

from __future__ import annotations

from collections.abc import Iterable
from glob import escape
from typing import Any, NamedTuple

from simfloat.arithmetic.catalog import kind_of
from simfloat.formats import FP32, FP64
from simfloat.policy import Policy
from simfloat.policy.overrides import role_text
from simfloat.policy.roles import CONTRACTION, REDUCTION
from simfloat.telemetry.entries import Key

#: The roles of operands that are rounded before a product.
CAST_ROLES = {"cast_input": "compute", "cast_weight": "compute_weights", "cast_gradient": "compute_gradients"}

#: The roles of accumulators.
SUM_ROLES = ("accumulate", "accumulate_gradients", "reduce")

#: The paths below a parameter's at which an optimizer computes, and where loss scaling, clipping and replicas work on
#: its gradient.
BELOW_PARAMETERS = ("update", "unscale", "clip", "all_reduce")


class Remedy(NamedTuple):
    """An override that mends something: for a path or for an operation, a role with another value.

    Printed, it is the call; formats stand in it by their names.
    """

    path: str  # empty for an operation in all layers
    operation: str  # empty for all operations at the path
    role: str
    value: Any

    def apply(self, policy: Policy) -> Policy:
        """The policy with the override; a path is taken as it is, but for ``"*"``."""
        path = self.path if self.path == "*" else escape(self.path)
        return policy.override(path or None, operation=self.operation or None, **{self.role: self.value})

    def for_all_paths(self) -> Remedy:
        """Return the override for all paths."""
        return self._replace(path="*", operation="")

    def __str__(self) -> str:
        named = self.value in (FP32, FP64)
        target = repr(self.path) if self.path else f"operation={self.operation!r}"
        return f"policy.override({target}, {self.role}={f'sf.{self.value}' if named else role_text(self.value)})"


def remedy(key: Key, keys: Iterable[Key], *, is_fp32: bool, sums: bool = False) -> Remedy | None:
    """Return the override that gives the results counted by `key` a better format: FP32, or FP64 if theirs is FP32.

    `keys` are all that were seen, which tell parameters from layers; `sums` if it is the accumulator that is too
    narrow, and narrower than FP32. None for a function that was called outside of any model, where no policy has a say.
    """
    path, role = _path_and_role(key, frozenset(keys), sums)
    value = FP64 if is_fp32 and not sums else FP32
    return None if role is None else Remedy(path, "" if path else key.operation, role, value)


def remedy_in_own_types(proposal: Remedy, *, is_lost: bool) -> Remedy | None:
    """The remedy under a policy that follows a program's own types; None if no role has an effect there.

    `is_lost` says whether it is a remedy of lost updates.

    The type of a tensor limits its format, whatever a role says. Accumulators and the kind of an update remain.
    """
    if proposal.role in SUM_ROLES:
        return proposal
    return proposal._replace(role="update", value="kahan") if is_lost else None


def program_remedy_text(key: Key) -> str:
    """Say in words how a program with types of its own can mend the results counted by `key`."""
    if key.operation == "moment":
        return "keep the moment in float32, with a master copy of the weights"
    if key.phase == "update":
        return "a larger eps, or a master copy of the weights in float32"
    if key.phase == "backward" and key.operation == "add":
        return "accumulate gradients in float32"
    return (
        "compute it in float32, by .float()" if key.phase == "forward" else "scale the loss, or compute it in float32"
    )


def _path_and_role(key: Key, keys: frozenset[Key], sums: bool) -> tuple[str, str | None]:
    """Return an override's path, empty for an operation alone, and its role, None if no override has an effect."""
    if key.phase == "update":
        over_replicas = key.path.endswith(".all_reduce")
        role = "all_reduce" if over_replicas else "optimizer_state" if key.operation == "moment" else "weights"
        return updated_parameter(key) or "*", role
    kind = kind_of(key.operation)
    if not key.path and kind is None:
        return "", None
    if key.operation in CAST_ROLES:
        return key.path, CAST_ROLES[key.operation]
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
