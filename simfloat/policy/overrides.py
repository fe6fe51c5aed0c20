"""Overrides: roles that differ for layers, parameters and operations; and lists of operations.

`OPERATIONS` are the names that an override can have; `roles_of` returns the roles that an operation uses.

Lists of operations make operations narrower or wider, as in automatic mixed precision. NVIDIA's guide calls these
lists allow, deny and infer: operations on the first list run in the narrow format, operations on the second in FP32,
and all others in the widest format of their operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Protocol

from simfloat.arithmetic.catalog import kind_of, names
from simfloat.common import did_you_mean
from simfloat.formats import Format, as_format
from simfloat.policy.flash_attention import FlashAttention
from simfloat.policy.roles import (
    COMPOSITE,
    CONTRACTION,
    MOVEMENT,
    OPERAND,
    PARAMETER,
    POINTWISE,
    REDUCTION,
    RESULTS,
    ROLES,
    UPDATE,
    WIDEST,
    Recipe,
    followers_of,
    format_of,
)
from simfloat.sums import Accumulator, sequential

#: Classes of operations. An override for a composite applies to everything inside, so composites are not a class.
CLASSES = (CONTRACTION, REDUCTION, POINTWISE, MOVEMENT)

#: Kinds of operations inside a composite, and of the composite itself.
INSIDE = (REDUCTION, POINTWISE, MOVEMENT, COMPOSITE)

#: Composites that also contain contractions.
OF_CONTRACTIONS = ("scaled_dot_product_attention",)


#: Functions that PyTorch composes of other operations. They are composites if a policy names them.
COMPOSED = (
    "l1_loss", "kl_div", "margin_ranking_loss", "hinge_embedding_loss", "cosine_embedding_loss", "poisson_nll_loss",
    "triplet_margin_loss", "cosine_similarity",
)  # fmt: skip

#: Operations that only PyTorch models contain and that the lists of mixed precision name.
OF_PYTORCH = {
    "logit": COMPOSITE, "entropy": COMPOSITE, "logaddexp": COMPOSITE,
    "soft_margin_loss": COMPOSITE, "multi_margin_loss": COMPOSITE,
    "prod": POINTWISE, "interpolate": POINTWISE,
    **dict.fromkeys(("nansum", "trace", "logcumsumexp", "bilinear", *COMPOSED), COMPOSITE),
}  # fmt: skip


def check_operation(name: str) -> None:
    """Raise ValueError unless `name` is an operation, a composite or a class of operations."""
    operations = list(dict.fromkeys([*names(), *OF_PYTORCH, *CLASSES]))
    if name not in operations:
        raise ValueError(
            f"Unknown operation {name!r}. Operations: {', '.join(sorted(operations))}.{did_you_mean(name, operations)}"
        )


def with_classes(operations: Iterable[str]) -> tuple[str, ...]:
    """Return the names of operations and of their classes; the update of an optimizer has no class."""
    all_names = tuple(operations)
    return (*all_names, *(kind for name in all_names if name != UPDATE and (kind := kind_of(name))))


def roles_of(operation: str) -> tuple[str, ...]:
    """Return the roles that an operation, a class of operations or the inside of a composite uses."""
    kind = UPDATE if operation == UPDATE else kind_of(operation) or OF_PYTORCH.get(operation)
    return _roles_of_kind(kind or operation, operation in OF_CONTRACTIONS)


@cache
def _roles_of_kind(kind: str, has_contractions: bool = False) -> tuple[str, ...]:
    """Return the roles that operations of a kind use."""
    kinds = INSIDE if kind == COMPOSITE else (kind,)
    kinds = (*kinds, CONTRACTION) if has_contractions else kinds
    return tuple(name for name, role in ROLES.items() if set(kinds).intersection(role.concerns))


#: The characters of a shell pattern that match others.
WILDCARD = re.compile(r"[*?[]")

#: Number of names that an error lists; further names are only counted.
LISTED = 12


@dataclass(frozen=True)
class Override:
    """Roles that differ for matching paths, for an operation or a list of operations, or for both.

    `path` is a shell pattern. A role that is None follows its default again. A single operation must occur in the
    model; operations in a tuple need not occur. Raises ValueError if the pattern, an operation, a role or the value
    of a role is invalid.
    """

    path: str | None
    operation: str | tuple[str, ...] | None
    roles: tuple[tuple[str, Any], ...]

    def __post_init__(self) -> None:
        if self.path is None and self.operation is None:
            raise ValueError("An override needs a path, an operation, or both; got neither.")
        if self.path is not None:
            check_text("The path of an override", self.path)
        if isinstance(self.operation, list):
            object.__setattr__(self, "operation", tuple(self.operation))
        if self.operation == ():
            raise ValueError("A list of operations in an override must not be empty.")
        for name in self.operations:
            check_operation(name)
        unknown = [role for role, _ in self.roles if role not in ROLES]
        if unknown or not self.roles:
            got, hint = (
                (f"unknown role {unknown[0]!r}", did_you_mean(unknown[0], ROLES)) if unknown else ("no role", "")
            )
            raise ValueError(f"An override changes roles; got {got}. Roles: {', '.join(ROLES)}.{hint}")
        object.__setattr__(self, "roles", tuple((role, ROLES[role].read(value)) for role, value in self.roles))

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations of the override."""
        if self.operation is None:
            return ()
        return self.operation if isinstance(self.operation, tuple) else (self.operation,)

    @property
    def is_list(self) -> bool:
        """True if the override names a list of operations, which a model need not contain."""
        return isinstance(self.operation, tuple)

    def matches(self, path: str, operations: Collection[str]) -> bool:
        """True if the override applies to an operation in the layer at `path`.

        `operations` are the operation, its class and the composites around it.
        """
        return (self.path is None or path_matches(self.path, path)) and (
            self.operation is None or any(name in operations for name in self.operations)
        )

    def may_distinguish(self, path: str, operations: Collection[str]) -> bool:
        """True if the override may apply to some of these operations in the layer at `path`, and not to others.

        An override of the layer also applies to the parameters of the layer.
        """
        if self.operation is not None and not any(name in operations for name in self.operations):
            return False
        if self.path is None or path_matches(self.path, path):
            return self.operation is not None
        start, below = WILDCARD.split(self.path, maxsplit=1)[0], f"{path}." if path else ""
        return start.startswith(below) or start != self.path and below.startswith(start)

    def check_effect(self, given_roles: Collection[str]) -> None:
        """Raise ValueError for a role that has no effect on the operations; `given_roles` are set in the policy."""
        if self.operation is None:
            return
        used = [role for role in ROLES if any(role in roles_of(name) for name in self.operations)]
        changes = dict(self.roles)
        if isinstance(changes.get("fused"), FlashAttention) and not set(self.operations).intersection(OF_CONTRACTIONS):
            raise ValueError(
                f"fused=flash_attention(...) is a kernel of {OF_CONTRACTIONS[0]}, not of {self.operation!r}: write "
                "fused=True."
            )
        fixed = {role for role in {*given_roles, *changes} if changes.get(role, role) is not None}
        for role in changes:
            if followers_of(role, fixed).isdisjoint(used):
                hint = f" Parameters are selected by path: override('*.weight', {role}=...)."
                what = "operations" if self.is_list else "operation"
                uses = "which use" if self.is_list else "which uses"
                raise ValueError(
                    f"{role} has no effect on the {what} {self.operation!r}, {uses} {', '.join(used)}."
                    f"{hint if ROLES[role].concerns == (PARAMETER,) else ''}"
                )

    def __repr__(self) -> str:
        return self._call(repr)

    def __str__(self) -> str:
        return self._call(role_text)

    def _call(self, write: Callable[[Any], str]) -> str:
        target = [] if self.path is None else [repr(self.path)]
        target += [] if self.operation is None else [f"operation={self.operation!r}"]
        return f"override({', '.join([*target, *(f'{role}={write(value)}' for role, value in self.roles)])})"


def role_text(value: Any) -> str:
    """Return the value of a role for display: texts in quotes, formats by name."""
    return repr(value) if isinstance(value, str) else str(value)


def check_text(what: str, value: Any) -> None:
    """Raise ValueError unless `value` is text that UTF-8 can encode."""
    if not isinstance(value, str):
        raise ValueError(f"{what} must be text, got {value!r} of type {type(value).__name__}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text without lone surrogates, got {value!r}.") from None


def path_matches(pattern: str, path: str) -> bool:
    """True if a shell pattern equals or matches the path, or the path of a module around it; the path of the root is
    empty.
    """
    parts = path.split(".")
    around = ["", *(".".join(parts[:n]) for n in range(1, len(parts) + 1))]
    return pattern in around or any(fnmatchcase(one, pattern) for one in around)


def check_matched(overrides: Iterable[Override], paths: Iterable[str], operations: Iterable[str]) -> None:
    """Raise ValueError for the first override without a match among `paths` and `operations`; see
    Policy.check_matched.
    """
    places, names = list(paths), list(operations)
    # A run that contains only optimizer steps and zeroed gradients does not show the operations of the model.
    seen = with_classes(names) if any(name not in (UPDATE, MOVEMENT) for name in names) else ()
    for override in overrides:
        path, operation = override.path, override.operation
        if path is not None and places and not any(path_matches(path, place) for place in places):
            what = f"Override {path!r} matches no layer and no parameter."
            raise ValueError(f"{what} {_list_names('Paths', places)}{did_you_mean(path, places)}")
        if isinstance(operation, str) and operation != UPDATE and seen and operation not in seen:
            what = f"The override for the operation {operation!r} matches no operation that ran."
            raise ValueError(f"{what} {_list_names('Operations', names)}{did_you_mean(operation, seen)}")


def check_tied(overrides: Iterable[Override], tied: Mapping[str, str]) -> None:
    """Raise ValueError if an override sets the storage of a tied parameter by a path under which it is not stored."""
    for override in overrides:
        stored = [role for role, _ in override.roles if ROLES[role].concerns == (PARAMETER,)]
        path = tied.get(override.path or "")
        if stored and path is not None:
            raise ValueError(
                f"Override {override.path!r} sets {stored[0]}, but the parameter is tied and stored once, as {path!r}: "
                f"use this path, override({path!r}, {stored[0]}=...)."
            )


def _list_names(what: str, names: list[str]) -> str:
    shown = list(dict.fromkeys(name for name in names if name))
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return f"{what}: {', '.join(shown[:LISTED]) or 'none'}{more}."


#: The roles of the operands and of the sums of an operation; each one comes after the role that it follows.
OPERANDS = ("compute", "compute_gradients", "compute_weights")
SUMS = ("accumulate", "accumulate_gradients", "reduce")


class ListedPolicy(Protocol):
    """The methods of a policy that the lists use."""

    def recipe(self, path: str = "", *operations: str) -> Recipe:
        """Return the roles of an operation."""

    def given_roles(self, path: str, operations: Sequence[str]) -> dict[str, Any]:
        """Return the roles of an operation as given; None for a role that follows another one."""


def roles_to_allow(policy: ListedPolicy, operations: Sequence[str], format: Any) -> dict[str, Any]:
    """Return the roles with which operations run in the formats of the policy, or in `format`."""
    recipe = policy.recipe()
    target_roles = {role: getattr(recipe, role) for role in (*OPERANDS, *RESULTS, *SUMS, "rotation")}
    if format is not None:
        target_roles |= dict.fromkeys(OPERANDS, OPERAND.read(format))
    narrow = format_of(target_roles["compute"])
    # Results without their own format take the format of the operands.
    target_roles |= {role: narrow for role in RESULTS if format is not None or target_roles[role] == WIDEST}
    return _fewest(policy, operations, target_roles)


def roles_to_deny(policy: ListedPolicy, operations: Sequence[str], format: Any) -> dict[str, Any]:
    """Return the roles with which operations run entirely in `format`, forward and backward."""
    recipe, wide = policy.recipe(), as_format(format)
    sums = {role: _accumulator_in_format(getattr(recipe, role), wide) for role in SUMS}
    return _fewest(policy, operations, dict.fromkeys((*OPERANDS, *RESULTS), wide) | sums | {"rotation": None})


def roles_to_infer(policy: ListedPolicy, operations: Sequence[str]) -> dict[str, Any]:
    """Return the roles with which operations run in the widest format of their operands."""
    _check(operations)
    for name in operations:
        if "compute" in roles_of(name):
            raise ValueError(
                f"infer leaves operations in the formats of their operands, but {name!r} rounds its operands to "
                "`compute`; allow or deny it."
            )
    explicit_roles = [policy.given_roles("", (name,)) | {"activations": WIDEST} for name in operations]
    roles: dict[str, Any] = {"activations": WIDEST}
    for role in RESULTS[1:]:
        if any(getattr(Recipe(**explicit), role) != WIDEST for explicit in explicit_roles):
            roles[role] = None
            explicit_roles = [explicit | {role: None} for explicit in explicit_roles]
    return roles


def _fewest(policy: ListedPolicy, operations: Sequence[str], target_roles: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest set of roles that gives the operations the target roles, among the roles that they use."""
    _check(operations)
    explicit_roles = {name: policy.given_roles("", (name,)) for name in operations}
    recipes = {name: Recipe(**explicit) for name, explicit in explicit_roles.items()}
    roles: dict[str, Any] = {}
    for role, value in target_roles.items():
        users = [name for name in operations if role in roles_of(name)]
        # Set at least one role, so that the list is part of the policy.
        is_first = role == "activations" and users and not roles
        if is_first or any(getattr(recipes[name], role) != value for name in users):
            roles[role] = value
            recipes = {name: Recipe(**explicit | roles) for name, explicit in explicit_roles.items()}
    return roles or {"gradients": target_roles["gradients"]}


def _check(operations: Sequence[str]) -> None:
    if not operations:
        raise ValueError("Name the operations, such as 'softmax'; got none.")
    for name in operations:
        check_operation(name)
        if name == UPDATE:
            raise ValueError(
                "An optimizer's update runs in the roles weights and optimizer_state of its parameter; override them, "
                "for example by override('*.weight', weights=simfloat.FP32)."
            )


def _accumulator_in_format(accumulator: Accumulator, format: Format) -> Accumulator:
    """Return the accumulator if it sums in `format` or exactly, otherwise the sequential sum in `format`."""
    fits = not accumulator.is_matrix_unit and accumulator.result in (None, format)
    return accumulator if fits else sequential(format)
