"""Policies that differ from a reference in some parts alone."""

from __future__ import annotations

from collections.abc import Iterable
from glob import escape
from typing import Any

from simfloat.attribution.roles_used import STORED, PolicyPart
from simfloat.policy import Policy
from simfloat.policy.overrides import path_matches
from simfloat.policy.role_types import WIDEST
from simfloat.policy.roles import ROLES

#: Where an override holds: an operation, or None for a parameter's storage; and which role it is of.
OverridePlace = tuple[str | None, str]


def explicit_policy(reference: Policy) -> Policy:
    """Give every role of the reference a value, so that none follows another one that is changed.

    Raises ValueError for a reference with overrides, or whose results have no format of their own.
    """
    roles = {role: getattr(reference.recipe(), role) for role in ROLES}
    if reference.overrides or WIDEST in (roles["activations"], roles["gradients"]):
        raise ValueError(
            "The reference is one recipe for all that is not measured, such as 'fp64' or 'fp32': a policy without "
            f"overrides and without activations='widest'; got {reference!r}."
        )
    return Policy(**roles)


class Probes:
    """The policies that carry out chosen parts as the policy does, and everything else as the reference does."""

    def __init__(self, base: Policy, parts: Iterable[PolicyPart]) -> None:
        self.base = base
        self._paths: dict[OverridePlace, dict[str, None]] = {}
        for part in parts:
            for where in _override_places(part):
                self._paths.setdefault(where, {})[part.path] = None

    def is_changed(self, part: PolicyPart) -> bool:
        """Whether the part is carried out otherwise than under the reference."""
        return any(value != getattr(self.base, role) for role, value in part.values.items())

    def policy_with_parts(self, chosen: Iterable[PolicyPart]) -> Policy:
        """The reference with these parts as the policy has them."""
        values_by_place: dict[OverridePlace, dict[str, Any]] = {}
        for part in chosen:
            for where in _override_places(part):
                values_by_place.setdefault(where, {})[part.path] = part.values[where[1]]
        policy = self.base
        for (operation, role), values in values_by_place.items():
            for path, value in self._overrides((operation, role), values):
                policy = policy.override(escape(path), operation=operation, **{role: value})
        return policy

    def _overrides(self, where: OverridePlace, values: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        """Paths with their values, so that what lies inside of a chosen layer has its own value again."""
        standard = getattr(self.base, where[1])
        overrides: list[tuple[str, Any]] = []
        for path in sorted(self._paths[where], key=lambda path: len(path.split(".")) if path else 0):
            want = values.get(path, standard)
            outer_values = [value for outer, value in overrides if path_matches(escape(outer), path)]
            if want != (outer_values[-1] if outer_values else standard):
                overrides.append((path, want))
        return overrides


def _override_places(part: PolicyPart) -> list[OverridePlace]:
    return [(None if part.operation == STORED else part.operation, role) for role in part.values]


def checked_modes(base: Policy, parts: Iterable[PolicyPart]) -> None:
    """Raise ValueError where results of the reference's formats cannot be rounded as the policy rounds."""
    widest = max(getattr(base, role).precision for role in ("activations", "activation_gradients", "weight_gradients"))
    for part in parts:
        if "rounding" in part.values and widest > 50:
            raise ValueError(
                f"The policy rounds {part.operation} by {part.values['rounding']}, and numbers of FP64 are rounded to "
                "nearest even only; give reference='fp32'."
            )
