"""The manifest of a training: policy, seed, model, options and data by name, as checkpoints store it."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from simfloat.policy import Policy
from simfloat.simulation import Simulation, Switching
from simfloat.table import Table, table
from simfloat.train.saving import has_state
from simfloat.train.training_step import TrainingStep
from simfloat.version import __version__

#: Under these names a manifest tells when the training began, which is what it is known by, and what changed since.
BEGUN, CHANGES = "begun", "changes"


class Manifest(dict[str, Any]):
    """Names and values that tell what a training is, and that print as a table.

    Options stand behind the name of what they belong to, as ``optimizer.lr``. Values are numbers, text, None, and
    tuples and lists of them.
    """

    def __repr__(self) -> str:
        return self._table()

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def _table(self) -> Table:
        return table([("name", "value"), *((name, str(value)) for name, value in self.items())])


def new_manifest(step: TrainingStep, schedule: Any, switching: Any, simulation: Simulation) -> Manifest:
    """The manifest of a training that begins now, as far as it is known before the first batch."""
    policy = simulation.policy if switching is None else simulation.first_policy  # before the rule changed it
    options = step.options(schedule)
    return Manifest(
        {
            BEGUN: datetime.now(UTC).isoformat(),
            **_versions(),
            **step.versions(),
            "policy": policy.name,
            **_roles("policy", policy),
            **_rule(switching),
            "seed": simulation.seed,
            "model": value_text(step.model),
            "loss_fn": value_text(step.loss_fn),
            **_option_entries("optimizer", step.optimizer, options["optimizer"]),
            **_option_entries("scaler", step.scaler, options["scaler"]),
            **_option_entries("schedule", schedule, options["schedule"]),
            "clip": plain_value(step.clip),
            "accumulation": plain_value(step.accumulation),
            "replicas": plain_value(step.replicas),
            **{"batch_size": None, "data": []},  # known with the first batches
            "observer": type(simulation.observer).__name__ if has_state(simulation.observer) else None,
            CHANGES: [],
        }
    )


def _versions() -> dict[str, str]:
    import numba  # which only kernels need

    versions = {"simfloat": __version__, "numpy": np.__version__, "numba": numba.__version__}
    return {**versions, "python": platform.python_version()}


def value_text(value: Any) -> str | None:
    """A function's name, or what another object prints as, whatever its address and module; None for None."""
    if value is None:
        return None
    name = getattr(value, "__name__", None)
    if isinstance(name, str):
        return name
    if type(value).__repr__ is object.__repr__:
        return type(value).__name__
    named = re.sub(r"<function (?:\S*\.)?(\S+) at 0x[0-9a-fA-F]+>", r"\1", repr(value))
    return re.sub(r" at 0x[0-9a-fA-F]+", "", named)


def plain_value(value: Any) -> Any:
    """A number, text, or tuples of them; of other things what they print as."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(plain_value, value)) if isinstance(value, list | tuple) else value_text(value)


def _option_entries(name: str, part: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The kind of a part under its name, and its options below."""
    kind = None if part is None else type(part).__name__
    return {name: kind, **{f"{name}.{option}": plain_value(value) for option, value in options.items()}}


def _roles(name: str, policy: Policy) -> dict[str, Any]:
    """The roles of a policy that are not at their default, and its overrides."""
    try:
        policy_fields = policy.to_dict()
    except ValueError:  # an accumulator that has no text in policy files
        return {f"{name}.text": str(policy)}
    overrides = policy_fields.pop("overrides", [])
    roles = {f"{name}.{role}": value for role, value in policy_fields.items() if role not in ("name", "source")}
    for number, override in enumerate(overrides):
        roles[f"{name}.overrides.{number}"] = ", ".join(f"{key}={value}" for key, value in override.items())
    return roles


def _rule(switching: Any) -> dict[str, Any]:
    """A rule for switching, and the roles of the policies of simfloat's own."""
    described = {"switching": value_text(switching)}
    if isinstance(switching, Switching):
        described |= _roles("switching.narrow", switching.narrow) | _roles("switching.wide", switching.wide)
    return described
