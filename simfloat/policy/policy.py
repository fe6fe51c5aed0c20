"""Policies: which layer and which operation computes in which formats.

The functions behind the class tell facts of a policy as a whole, for all layers and operations, and write a policy that
follows a program's own types for one of these types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from html import escape
from textwrap import fill
from typing import Any

from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.scaling import Hadamard
from simfloat.common import Table, did_you_mean
from simfloat.common import table as aligned
from simfloat.formats import FP32, FP64, Format, Rounding
from simfloat.policy import overrides, text
from simfloat.policy.overrides import Override, check_matched, check_text, role_text, with_classes
from simfloat.policy.roles import RESULTS, ROLES, WIDEST, Recipe, Roles
from simfloat.policy.text import LABELS, Layered, check_model, difference, table
from simfloat.sums import Accumulator, sequential


@dataclass(frozen=True, kw_only=True, repr=False)
class Policy(Roles):
    """The formats, accumulators and roundings of every role in training; what is left out follows its default.

    Formats may be given by name, and accumulators as a format, which means sequential. How operands are rounded is a
    format, which means to nearest even, or a `simfloat.cast`. `name` and `source` are for display and take no part in
    equality.

    Raises ValueError naming the role whose value it cannot be.

    The roles:

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
            raise ValueError(f"Overrides are made by Policy.override, got {self.overrides!r}.")
        set_roles = [role for role in ROLES if getattr(self, role) is not None]
        for override in self.overrides:
            override.check_effect(set_roles)

    def override(
        self, path: str | None = None, *, operation: str | Sequence[str] | None = None, **roles: Any
    ) -> Policy:
        """Return the policy with other `roles` where a path matches, for an operation, or for both.

        path is a shell pattern such as ``"hidden.*"`` for modules, or ``"*.weight"`` for parameters; it holds for
        everything inside a matching module. operation is the name of an operation (``"softmax"``) or a class
        (``"contraction"``, ``"reduction"``, ``"pointwise"``), or a list of them, ``("exp", "log")``. A role that is
        None goes back to its default, the role that it follows. Later overrides win. What matches nothing is refused
        where the model is known: a path in `explain`, a path or an operation at the end of a `simulate` block. Of a
        list no operation needs to occur.

        Raises ValueError for unknown roles and operations, and for roles that the operation has no use for.
        """
        target: Any = operation  # what it is not, Override refuses
        return replace(self, overrides=(*self.overrides, Override(path, target, tuple(roles.items()))))

    def allow(self, *operations: str, format: Format | Cast | str | None = None) -> Policy:
        """Return the policy with these operations on its allow list: they run in its own formats, or in `format`.

        Operands of contractions are rounded to `compute`; results to `activations`, or to the format of `compute` where
        these are ``"widest"``. Like `deny` and `infer` it is an override of a list, which `print` shows; later ones
        win. A model need not have the operations.

        Raises ValueError for an unknown operation, with the nearest names.
        """
        return self.override(operation=operations, **overrides.roles_to_allow(self, operations, format))

    def deny(self, *operations: str, format: Format | str = FP32) -> Policy:
        """Return the policy with these operations on its deny list: they run in `format` throughout.

        Operands, results and gradients have this format; sums run in it one after the other, unless they do already or
        are exact. Raises ValueError for an unknown operation, with the nearest names.
        """
        return self.override(operation=operations, **overrides.roles_to_deny(self, operations, format))

    def infer(self, *operations: str) -> Policy:
        """Return the policy with these operations in the widest of their operands' formats, and gradients in theirs.

        Raises ValueError for an unknown operation, and for one that rounds operands to a format of its own.
        """
        return self.override(operation=operations, **overrides.roles_to_infer(self, operations))

    def recipe(self, path: str = "", *operations: str) -> Recipe:
        """What the layer, or the parameter, at `path` uses for an operation, given with the composites around it.

        Inside a composite that is `fused`, results have the format of `reduce`. Raises ValueError for one whose sums
        are exact: they have no format.
        """
        roles = self.given_roles(path, operations)
        recipe = Recipe(**roles)
        if len(operations) < 2 or not self.recipe(path, *operations[:-1]).fused:
            return recipe
        if recipe.reduce.result is None:
            raise ValueError(
                f"A fused {operations[-2]} computes in the format of reduce, and exact sums have none; give reduce=, "
                "for example reduce=simfloat.FP32."
            )
        return Recipe(**roles | dict.fromkeys(RESULTS, recipe.reduce.result))

    def given_roles(self, path: str, operations: Sequence[str]) -> dict[str, Any]:
        """The roles that the policy and its overrides give there; None where one follows another."""
        names = with_classes(operations)
        roles = {role: getattr(self, role) for role in ROLES}
        for override in self.overrides:
            if override.matches(path, names):
                roles.update(override.roles)
        return roles

    def check_matched(self, paths: Iterable[str], operations: Iterable[str] = ()) -> None:
        """Raise ValueError naming the first override that met nothing, with the nearest name.

        `paths` are those of the modules and parameters that were seen, `operations` the names of operations and of
        composites. What was not seen at all is not judged: paths if there are none, and operations if there are none
        or no other than an optimizer's updates.
        """
        check_matched(self.overrides, paths, operations)

    def explain(self, model: Layered) -> Table:
        """The table of what runs where: a row for each layer of the model, and rows for what differs there.

        Parameters and operations that an override changes have rows of their own; operations of lists share a row where
        they are alike, once for the model and again below a layer that differs. A dash stands for a role that the row
        has no use for. The table is a str, which notebooks draw.

        Raises ValueError if an override's path matches no layer and no parameter.
        """
        check_model(model)
        paths = [path for path, _ in (*model.named_modules(), *model.named_parameters())]
        self.check_matched(paths)
        single = [name for entry in self.overrides if not entry.is_list for name in entry.operations]
        listed = [name for entry in self.overrides if entry.is_list for name in entry.operations]
        return table(model, self.recipe, single, listed)

    def diff(self, other: Policy | str) -> Table:
        """The table of what differs from another policy, or preset of this name: roles with the values of both, and
        overrides that one of them lacks.

        Where the same overrides stand in another order it shows none, although later ones win. Raises ValueError for
        what is no policy.
        """
        other = as_policy(other, "diff")
        names = self.name or "this", other.name or "other"
        return difference(names, (self.recipe(), other.recipe()), (self.overrides, other.overrides))

    def to_dict(self) -> dict[str, Any]:
        """The policy as text in plain dictionaries and lists, without what is left at its default.

        `from_dict` makes the same policy of it. Raises ValueError for an accumulator nested too deeply for a text.
        """
        return text.to_data(self._labels(), self._changed_roles(), self.overrides)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Policy:
        """The policy that `to_dict` described. Raises ValueError naming the key that is wrong."""
        policy = cls(**text.labels_and_roles(data))
        for path, operation, roles in text.read_overrides(data):
            policy = policy.override(path, operation=operation, **roles)
        return policy

    def to_toml(self) -> str:
        """The policy as the text of a TOML file with `to_dict`'s keys at top level."""
        return text.to_toml(self.to_dict())

    @classmethod
    def from_toml(cls, toml: str) -> Policy:
        """The policy in the text of a TOML file. Raises ValueError saying where it is wrong."""
        return cls.from_dict(text.from_toml(toml))

    def _changed_roles(self) -> list[tuple[str, Any]]:
        """The roles that are not at their default, and their values."""
        values = [(name, getattr(self, name)) for name in ROLES]
        return [(name, value) for name, value in values if value != ROLES[name].standard]

    def _labels(self) -> dict[str, str]:
        """The labels that it has."""
        return {label: getattr(self, label) for label in LABELS if getattr(self, label) is not None}

    def __repr__(self) -> str:
        return ".".join([self._call(repr), *map(repr, self.overrides)])

    def __str__(self) -> str:
        """The calls that make it, with short names of formats and an override a line."""
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


# The table has the words: help shows them, and the types that a call takes.
Policy.__doc__ = f"{Policy.__doc__}\n" + "\n".join(f"    * {name}: {role}" for name, role in ROLES.items())
Policy.__init__.__annotations__ |= {name: role.takes for name, role in ROLES.items()}


class Presets(Mapping[str, Policy]):
    """Policies by name, each made when it is first asked for; it prints as the table of their sources."""

    def __init__(self) -> None:
        self._makers: dict[str, tuple[Callable[[], Policy], str]] = {}
        self._made: dict[str, Policy] = {}

    def add(self, name: str, make: Callable[[], Policy], source: str) -> None:
        """Add the policy that `make` gives, under this name."""
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


#: Every preset by its name; `presets` has the table.
policies = Presets()


def as_policy(policy: Policy | str, taker: str) -> Policy:
    """The policy, or the preset of this name, that is given to `taker`.

    Raises ValueError with the nearest name for an unknown one, and for what is no policy.
    """
    if isinstance(policy, str):
        if policy not in policies:
            raise ValueError(unknown(policy))
        return policies[policy]
    if not isinstance(policy, Policy):
        raise ValueError(f"{taker} takes a simfloat.Policy or its name, got {policy!r}.")
    return policy


def unknown(name: object) -> str:
    """What is said of a name that no policy has."""
    read = " simfloat.Policy.from_toml takes the text of a file." if str(name).endswith(".toml") else ""
    return f"Unknown policy {name!r}. Policies: {', '.join(policies)}.{did_you_mean(name, policies)}{read}"


def draws_bits(policy: Policy) -> bool:
    """Whether any rounding under the policy is random: of results, in the steps of sums, of operands, in updates."""
    return any(map(_is_random, _values(policy)))


def takes_formats(policy: Policy) -> bool:
    """Whether any result under the policy takes the format of an operand."""
    return any(value == WIDEST for value in _values(policy))


def _values(policy: Policy) -> list[Any]:
    """What the roles are, anywhere."""
    values = [getattr(policy, role) for role in ROLES]
    return values + [value for override in policy.overrides for _, value in override.roles]


def _is_random(value: Any) -> bool:
    """Whether a role's value is random in any way."""
    if isinstance(value, Rounding):
        return value.is_stochastic
    if isinstance(value, Accumulator):
        return any(mode.is_stochastic for mode in value.roundings)
    return (
        value == "stochastic" or isinstance(value, Hadamard) or isinstance(value, Cast) and value.rounding.is_stochastic
    )


def is_written(policy: Policy) -> bool:
    """Whether a policy, or an override of it, is written for a program's own types."""
    return bool(policy.written) or any(dict(each.roles).get("written") for each in policy.overrides)


@lru_cache(maxsize=1 << 8)
def policy_in_type(policy: Policy, format: Format) -> Policy:
    """The policy with this format where it has FP32 as one; in FP64 sums of FP32 are such, too."""
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
