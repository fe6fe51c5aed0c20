"""Policies: which layer and which operation computes in which formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

from simfloat.accumulate import Accumulator
from simfloat.accumulate.accumulator import as_accumulator
from simfloat.formats import FP32, Format, Rounding, as_format, nearest_even
from simfloat.policy.operations import CLASS_OF, check_operation
from simfloat.policy.recipe import UPDATES, Recipe

FORMAT_ROLES = (
    "compute",
    "compute_gradients",
    "weights",
    "activations",
    "activation_gradients",
    "weight_gradients",
    "gradients",
    "optimizer_state",
)
ROLES = (*FORMAT_ROLES, "accumulate", "rounding", "update")


class Override(NamedTuple):
    """Roles that differ for the layers whose path matches a shell pattern, for an operation, or for both."""

    path: str | None
    operation: str | None
    roles: tuple[tuple[str, Any], ...]

    def matches(self, path: str, operations: Iterable[str]) -> bool:
        """Whether it holds for an operation (with its class and the composites around it) in the layer at `path`."""
        return (self.path is None or path_matches(self.path, path)) and (
            self.operation is None or self.operation in operations
        )


class Layered(Protocol):
    """A model: anything that names its modules."""

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Pairs of path and module."""


def path_matches(pattern: str, path: str) -> bool:
    """Whether a shell pattern matches the path or one of the layers that contain it."""
    parts = path.split(".")
    return any(fnmatchcase(".".join(parts[:n]), pattern) for n in range(1, len(parts) + 1))


@dataclass(frozen=True, init=False)
class Policy:
    """The formats, accumulator and rounding of every role in training.

    Roles (a role left out takes its default):

    * compute: operands of forward contractions, and activation and weight operands of backward ones;
    * compute_gradients: gradient operands of backward contractions (default compute);
    * activations: the result of every forward operation (default compute);
    * gradients: the results of backward operations (default activations); activation_gradients and weight_gradients
      refine it;
    * weights: what parameters are stored and updated in (default compute); FP32 here with a narrow compute is the
      master copy;
    * optimizer_state: moments (default weights);
    * accumulate: the accumulator of every sum (a format means sequential; default FP32);
    * rounding: the mode of every rounding but that of operands and weights, which is nearest_even;
    * update: the optimizer's last addition, w + u: "nearest", "stochastic" or "kahan".

    Formats may be given by name. `name` and `source` are for display and take no part in equality.
    """

    compute: Format
    compute_gradients: Format | None
    weights: Format | None
    activations: Format | None
    activation_gradients: Format | None
    weight_gradients: Format | None
    gradients: Format | None
    accumulate: Accumulator
    rounding: Rounding
    update: str
    optimizer_state: Format | None
    name: str | None = field(compare=False)
    source: str | None = field(compare=False)
    overrides: tuple[Override, ...]

    def __init__(
        self,
        *,
        compute: Format | str,
        compute_gradients: Format | str | None = None,
        weights: Format | str | None = None,
        activations: Format | str | None = None,
        activation_gradients: Format | str | None = None,
        weight_gradients: Format | str | None = None,
        gradients: Format | str | None = None,
        accumulate: Accumulator | Format | str = FP32,
        rounding: Rounding = nearest_even,
        update: str = "nearest",
        optimizer_state: Format | str | None = None,
        name: str | None = None,
        source: str | None = None,
        overrides: tuple[Override, ...] = (),
    ) -> None:
        if compute is None:
            raise ValueError("A policy needs compute=, the format of the operands of contractions.")
        given = dict(locals())
        for role in ROLES:
            object.__setattr__(self, role, _checked(role, given[role]))
        for key in ("name", "source", "overrides"):
            object.__setattr__(self, key, given[key])

    def override(self, path: str | None = None, *, operation: str | None = None, **roles: Any) -> Policy:
        """The same policy with other `roles` for layers whose path matches, for an operation, or for both.

        path is a shell pattern such as ``"hidden.*"``; it holds for the layers inside a matching one. operation is
        the name of an operation (``"softmax"``) or a class (``"contraction"``, ``"reduction"``, ``"pointwise"``).
        Later overrides win. A path that matches nothing is refused where the model is known: in `explain`, and at
        the end of a `simulate` block.

        Raises ValueError for unknown roles and operations.
        """
        if path is None and operation is None:
            raise ValueError("An override is for a path, an operation, or both; got neither.")
        if operation is not None:
            check_operation(operation)
        unknown = [role for role in roles if role not in ROLES]
        if unknown or not roles:
            got = f"unknown role {unknown[0]!r}" if unknown else "no role"
            raise ValueError(f"An override changes roles; got {got}. Roles: {', '.join(ROLES)}.")
        checked = tuple((role, _checked(role, value)) for role, value in roles.items())
        return replace(self, overrides=(*self.overrides, Override(path, operation, checked)))

    def recipe(self, path: str = "", *operations: str) -> Recipe:
        """What the layer at `path` uses for an operation, given with the composites it is part of, if any."""
        names = (*operations, *(CLASS_OF[name] for name in operations if name in CLASS_OF))
        roles = {role: getattr(self, role) for role in ROLES}
        for override in self.overrides:
            if override.matches(path, names):
                roles.update(override.roles)
        return Recipe.with_defaults(**roles)

    def check_paths(self, paths: Iterable[str]) -> None:
        """Raise ValueError if the path pattern of an override matches none of the layers at `paths`."""
        layers = [path for path in paths if path]
        for override in self.overrides:
            if override.path is None or any(path_matches(override.path, path) for path in layers):
                continue
            from difflib import get_close_matches  # only a mistake needs it

            near = get_close_matches(override.path, layers, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"Override {override.path!r} matches no layer. Layers: {', '.join(layers) or 'none'}.{hint}"
            )

    def explain(self, model: Layered) -> str:
        """The table of what runs where: a line for each layer of the model, and one for each operation override.

        Raises ValueError if an override's path matches no layer.
        """
        from simfloat.policy.explain import explain

        return explain(self, model)

    def to_dict(self) -> dict[str, Any]:
        """The policy as text in plain dictionaries and lists, without what is left at its default."""
        from simfloat.policy.text import policy_to_dict

        return policy_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Policy:
        """The policy that `to_dict` described. Raises ValueError naming the key that is wrong."""
        from simfloat.policy.text import policy_from_dict

        return policy_from_dict(data)

    def to_toml(self) -> str:
        """The policy as the text of a TOML file with `to_dict`'s keys at top level."""
        from simfloat.policy.text import to_toml

        return to_toml(self.to_dict())

    @classmethod
    def from_toml(cls, text: str) -> Policy:
        """The policy in the text of a TOML file."""
        from simfloat.policy.text import from_toml

        return cls.from_dict(from_toml(text))

    def __repr__(self) -> str:
        given = [(f.name, getattr(self, f.name), f) for f in fields(self) if f.name != "overrides"]
        shown = [f"{name}={value!r}" for name, value, f in given if value is not None and not _is_default(name, value)]
        text = f"Policy({', '.join(shown)})"
        for override in self.overrides:
            target = [repr(override.path)] if override.path is not None else []
            target += [f"operation={override.operation!r}"] if override.operation is not None else []
            text += f".override({', '.join([*target, *(f'{role}={value!r}' for role, value in override.roles)])})"
        return text


def _is_default(name: str, value: Any) -> bool:
    return (name, value) in (("accumulate", as_accumulator(FP32)), ("rounding", nearest_even), ("update", "nearest"))


def _checked(role: str, value: Any) -> Any:
    """A role's value in its own type, or ValueError."""
    if role in FORMAT_ROLES:
        return None if value is None else as_format(value)
    if role == "accumulate":
        return as_accumulator(value)
    if role == "update" and value not in UPDATES:
        raise ValueError(f"update must be one of {', '.join(UPDATES)}; got {value!r}.")
    if role == "rounding" and not isinstance(value, Rounding):
        raise ValueError(f"rounding must be a simfloat.Rounding such as simfloat.nearest_even, got {value!r}.")
    return value
