"""Policies: the formats in which each layer and each operation computes.

The functions after the class return properties of a whole policy, over all layers and operations, and rewrite a
policy that follows the dtypes of a program for one of these dtypes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from html import escape
from textwrap import fill
from typing import Any

from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.scaling import Delayed, Hadamard
from simfloat.common import Table, did_you_mean
from simfloat.common import table as aligned
from simfloat.formats import FP32, FP64, Format, Rounding
from simfloat.policy import overrides, text
from simfloat.policy.overrides import Override, check_matched, check_text, role_text, with_classes
from simfloat.policy.roles import PARAMETER, RESULTS, ROLES, WIDEST, Recipe, Roles
from simfloat.policy.text import LABELS, Layered, check_model, difference, table
from simfloat.sums import Accumulator, sequential


@dataclass(frozen=True, kw_only=True, repr=False)
class Policy(Roles):
    """The formats, accumulators and rounding modes of every role in training.

    A role that is left out follows its default. A format may be given by name, and an accumulator as a format, which
    means `sequential`. The rounding of operands is a format, which means rounding to nearest even, or a
    `simfloat.cast`.

    Parameters:
        {roles}
        name: a name for display; it does not affect equality.
        source: a reference for display; it does not affect equality.
        overrides: set by the method `override`.

    Raises:
        ValueError: if a role has an invalid value; the message names the role.

    Examples:
        >>> policy = sf.Policy(compute=sf.E4M3, compute_gradients=sf.E5M2, weights=sf.FP32, activations=sf.BF16)
        >>> policy = policy.override("head", compute=sf.BF16).override(operation="softmax", activations=sf.FP32)
        >>> sf.Policy.from_dict(policy.to_dict()) == policy
        True
    """

    name: str | None = field(default=None, compare=False)
    source: str | None = field(default=None, compare=False)
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        for label, value in self._labels().items():
            check_text(f"The {label} of a policy", value)
        if not isinstance(self.overrides, tuple) or not all(isinstance(entry, Override) for entry in self.overrides):
            raise ValueError(f"Overrides are created by Policy.override, got {self.overrides!r}.")
        set_roles = [role for role in ROLES if getattr(self, role) is not None]
        for override in self.overrides:
            override.check_effect(set_roles)

    def override(
        self, path: str | None = None, *, operation: str | Sequence[str] | None = None, **roles: Any
    ) -> Policy:
        """Return the policy with other roles for a path, for an operation, or for both.

        Later overrides win. An override that matches nothing in the model raises ValueError: `explain` checks paths,
        and the end of a `simulate` block checks paths and single operations. A list of operations may match nothing.

        Parameters:
            path: a shell pattern such as ``"hidden.*"`` for modules or ``"*.weight"`` for parameters; it applies to
                everything inside a matching module. None for all paths.
            operation: the name of an operation (``"softmax"``) or of a class (``"contraction"``, ``"reduction"``,
                ``"pointwise"``), or a list of them, such as ``("exp", "log")``. None for all operations.
            roles: the roles by name, as in `Policy`; None returns a role to its default.

        Returns:
            A new `Policy`.

        Raises:
            ValueError: if `path` and `operation` are both missing; if a role or an operation is unknown; if a role has
                no effect on the operation.
        """
        target: Any = operation  # Override checks the type
        return replace(self, overrides=(*self.overrides, Override(path, target, tuple(roles.items()))))

    def allow(self, *operations: str, format: Format | Cast | str | None = None) -> Policy:
        """Return the policy with these operations on its allow list.

        They run in the formats of the policy, or in `format`. Operands of contractions are rounded to `compute`, and
        results to `activations`, or to the format of `compute` if `activations` is ``"widest"``.

        `allow`, `deny` and `infer` each add an override for a list of operations, which `print` shows. Later overrides
        win. It is not an error if a model contains none of the operations.

        Parameters:
            operations: names of operations.
            format: the format of operands and results, or a cast of the operands; results then have its format.
                None for the formats of the policy.

        Returns:
            A new `Policy`.

        Raises:
            ValueError: if an operation is unknown; the message names similar ones.
        """
        return self.override(operation=operations, **overrides.roles_to_allow(self, operations, format))

    def deny(self, *operations: str, format: Format | str = FP32) -> Policy:
        """Return the policy with these operations on its deny list: they run entirely in `format`.

        Operands, results and gradients have this format. Sums are sequential in it, unless they already use this
        format or are exact. Raises ValueError, with the nearest names, if one of `operations` is unknown.
        """
        return self.override(operation=operations, **overrides.roles_to_deny(self, operations, format))

    def infer(self, *operations: str) -> Policy:
        """Return the policy with these operations in the widest format of their operands; gradients take the operand
        formats.

        Raises ValueError if one of `operations` is unknown, or always rounds its operands to `compute`.
        """
        return self.override(operation=operations, **overrides.roles_to_infer(self, operations))

    def recipe(self, path: str = "", *operations: str) -> Recipe:
        """Return the roles of an operation in the layer, or for the parameter, at `path`.

        `operations` are the composites around the operation, then the operation. Inside a composite that is `fused`,
        results have the format of `reduce`. Raises ValueError if its sums are exact, because they have no format.
        """
        roles = self.given_roles(path, operations)
        recipe = Recipe(**roles)
        if len(operations) < 2 or not self.recipe(path, *operations[:-1]).fused:
            return recipe
        if recipe.reduce.result is None:
            raise ValueError(
                f"A fused {operations[-2]} computes in the format of reduce, but exact sums have none; pass reduce=, "
                "for example reduce=simfloat.FP32."
            )
        return Recipe(**roles | dict.fromkeys(RESULTS, recipe.reduce.result))

    def given_roles(self, path: str, operations: Sequence[str]) -> dict[str, Any]:
        """Return the roles that the policy and its overrides set there; None for a role that follows another one."""
        names = with_classes(operations)
        roles = {role: getattr(self, role) for role in ROLES}
        for override in self.overrides:
            if override.matches(path, names):
                roles.update(override.roles)
        return roles

    def check_matched(self, paths: Iterable[str], operations: Iterable[str] = ()) -> None:
        """Raise ValueError, with the nearest name, for the first override without a match.

        `paths` are the paths of the modules and parameters that occurred, `operations` the names of operations and
        composites. Paths are not checked if there are none; operations are not checked if there are none, or only
        updates of an optimizer.
        """
        check_matched(self.overrides, paths, operations)

    def explain(self, model: Layered) -> Table:
        """Return a table of the roles of every layer of a model.

        A parameter or an operation that an override changes has its own row. Operations of a list share a row if
        their roles are equal: once for the model, and again below a layer that differs. A dash marks a role without
        use in the row. The table is a str, and notebooks display it as HTML.

        Raises ValueError if the path of an override matches no layer and no parameter.
        """
        check_model(model)
        paths = [path for path, _ in (*model.named_modules(), *model.named_parameters())]
        self.check_matched(paths)
        single = [name for entry in self.overrides if not entry.is_list for name in entry.operations]
        listed = [name for entry in self.overrides if entry.is_list for name in entry.operations]
        return table(model, self.recipe, single, listed)

    def diff(self, other: Policy | str) -> Table:
        """Return a table of the differences from another policy, or from the preset with this name.

        The table contains roles with the values of both policies, and overrides that only one of them has. It does
        not compare the order of overrides, although later ones win. Raises ValueError if `other` is not a policy.
        """
        other = as_policy(other, "diff")
        names = self.name or "this", other.name or "other"
        return difference(names, (self.recipe(), other.recipe()), (self.overrides, other.overrides))

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as text in plain dictionaries and lists, without roles at their default.

        `from_dict` creates the same policy from it. Raises ValueError if an accumulator is nested too deeply to be
        text.
        """
        return text.to_data(self._labels(), self._changed_roles(), self.overrides)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Policy:
        """Return the policy described by a result of `to_dict`; ValueError names an invalid key."""
        policy = cls(**text.labels_and_roles(data))
        for path, operation, roles in text.read_overrides(data):
            policy = policy.override(path, operation=operation, **roles)
        return policy

    def to_toml(self) -> str:
        """Return the policy as the text of a TOML file with the keys of `to_dict` at the top level."""
        return text.to_toml(self.to_dict())

    @classmethod
    def from_toml(cls, toml: str) -> Policy:
        """Return the policy in the text of a TOML file; ValueError gives the position of an error."""
        return cls.from_dict(text.from_toml(toml))

    def _changed_roles(self) -> list[tuple[str, Any]]:
        """Return the roles that are not at their default, with their values."""
        values = [(name, getattr(self, name)) for name in ROLES]
        return [(name, value) for name, value in values if value != ROLES[name].standard]

    def _labels(self) -> dict[str, str]:
        """Return the labels that are set."""
        return {label: getattr(self, label) for label in LABELS if getattr(self, label) is not None}

    def __repr__(self) -> str:
        return ".".join([self._call(repr), *map(repr, self.overrides)])

    def __str__(self) -> str:
        """Return the calls that create the policy, with short names of formats and one override per line."""
        lines = [self._call(role_text), *(f".{override}" for override in self.overrides)]
        return "\n".join(fill(line, 100, subsequent_indent="    ", break_on_hyphens=False) for line in lines)

    def _call(self, write: Callable[[Any], str]) -> str:
        options = [*self._changed_roles(), *self._labels().items()]
        return f"Policy({', '.join(f'{key}={write(value)}' for key, value in options)})"

    def _repr_html_(self) -> str:
        recipe = self.recipe()
        rows = [("role", "value"), *((role, str(getattr(recipe, role))) for role in ROLES)]
        rows += [("override", str(override)) for override in self.overrides]
        return f"<b>{escape(self.name or 'Policy')}</b>{aligned(rows)._repr_html_()}"


# The texts and types of the roles come from their table.
Policy.__doc__ = re.sub(
    r"(?m)^( *)\{roles\}$",
    lambda line: "\n".join(f"{line[1]}{name}: {role}." for name, role in ROLES.items()),
    Policy.__doc__ or "",
)
Policy.__init__.__annotations__ |= {name: role.takes for name, role in ROLES.items()}


class Presets(Mapping[str, Policy]):
    """Policies by name, each created at its first use; it prints as a table of their sources."""

    def __init__(self) -> None:
        self._makers: dict[str, tuple[Callable[[], Policy], str]] = {}
        self._made: dict[str, Policy] = {}

    def add(self, name: str, make: Callable[[], Policy], source: str) -> None:
        """Add the policy that `make` returns, under this name."""
        self._makers[name] = make, source

    def __getitem__(self, name: object) -> Policy:
        if not isinstance(name, str) or name not in self._makers:
            raise KeyError(unknown(name))
        if name not in self._made:
            make, source = self._makers[name]
            self._made[name] = replace(make(), name=name, source=source)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __repr__(self) -> str:
        return aligned([("name", "source"), *((name, source) for name, (_, source) in self._makers.items())])


#: All presets by name; `presets` contains the table.
policies = Presets()


def as_policy(policy: Policy | str, taker: str) -> Policy:
    """Return the policy, or the preset with this name; `taker` is the name of the caller for messages.

    Raises ValueError, with the nearest name, for an unknown name, and for other types.
    """
    if isinstance(policy, str):
        if policy not in policies:
            raise ValueError(unknown(policy))
        return policies[policy]
    if not isinstance(policy, Policy):
        raise ValueError(f"{taker} takes a simfloat.Policy or its name, got {policy!r}.")
    return policy


def unknown(name: object) -> str:
    """Return the message for an unknown name of a policy."""
    read = " simfloat.Policy.from_toml takes the text of a file." if str(name).endswith(".toml") else ""
    return f"Unknown policy {name!r}. Policies: {', '.join(policies)}.{did_you_mean(name, policies)}{read}"


def draws_bits(policy: Policy) -> bool:
    """True if any rounding under the policy is random: of results, in sums, of operands, or in updates."""
    return any(map(_is_random, _values(policy)))


def draws_in_operations(recipe: Recipe) -> bool:
    """True if a rounding of an operation is random. Updates, and the states of optimizers, belong to parameters."""
    return any(_is_random(getattr(recipe, name)) for name, role in ROLES.items() if role.concerns != (PARAMETER,))


def delays_scales(policy: Policy) -> bool:
    """True if the scale of any cast under the policy follows from earlier magnitudes."""
    return any(isinstance(value, Cast) and isinstance(value.scale, Delayed) for value in _values(policy))


def takes_formats(policy: Policy) -> bool:
    """True if any result under the policy has the format of an operand."""
    return any(value == WIDEST for value in _values(policy))


def _values(policy: Policy) -> list[Any]:
    """Return all values of roles in the policy and its overrides."""
    values = [getattr(policy, role) for role in ROLES]
    return values + [value for override in policy.overrides for _, value in override.roles]


def _is_random(value: Any) -> bool:
    """True if a value of a role is random in any way."""
    if isinstance(value, Rounding):
        return value.is_stochastic
    if isinstance(value, Accumulator):
        return any(mode.is_stochastic for mode in value.roundings)
    return (
        value == "stochastic" or isinstance(value, Hadamard) or isinstance(value, Cast) and value.rounding.is_stochastic
    )


def is_written(policy: Policy) -> bool:
    """True if the policy or one of its overrides follows the dtypes of a program."""
    return bool(policy.written) or any(dict(each.roles).get("written") for each in policy.overrides)


@lru_cache(maxsize=1 << 8)
def keeps_upcasts(policy: Policy) -> bool:
    """True for mixed precision (FP32 weights, results in fewer bits), which keeps the upcasts of a program."""
    base = policy.recipe()
    is_narrow = isinstance(base.activations, Format) and base.activations.precision < FP32.precision
    return is_narrow and base.weights.precision >= FP32.precision and not base.written


@lru_cache(maxsize=1 << 8)
def policy_in_type(policy: Policy, format: Format) -> Policy:
    """Return the policy with FP32 replaced by `format`; for FP64, sums in FP32 are also replaced."""
    values = {name: getattr(policy, name) for name in ROLES}
    roles = {name: _in_type(value, format) for name, value in values.items()}
    rewritten = tuple(
        Override(each.path, each.operation, tuple((name, _in_type(value, format)) for name, value in each.roles))
        for each in policy.overrides
    )
    return replace(policy, **roles, overrides=rewritten)


def _in_type(value: Any, format: Format) -> Any:
    if value == FP32 or (format == FP64 and value == sequential(FP32)):
        return format if value == FP32 else sequential(format)
    return value
