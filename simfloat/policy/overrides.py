"""Overrides: for which layers, parameters and operations which roles differ; and lists of operations.

`OPERATIONS` are the names that an override can have, and `roles_of` tells the roles that matter to each.

Lists of operations are narrowed, widened or left alone, as automatic mixed precision does. NVIDIA's guide calls these
lists allow, deny and infer: operations on the first run in the narrow format, those on the second in FP32, and all
others in the widest format of their operands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Protocol

from simfloat.arithmetic.catalog import kind_of, names
from simfloat.common import did_you_mean
from simfloat.formats import Format, as_format
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

#: Classes of operations. An override for a composite holds for all that happens inside, so composites are none.
CLASSES = (CONTRACTION, REDUCTION, POINTWISE, MOVEMENT)

#: What composites are made of, and what concerns them as such.
INSIDE = (REDUCTION, POINTWISE, MOVEMENT, COMPOSITE)

#: Composites that multiply matrices, too.
OF_CONTRACTIONS = ("scaled_dot_product_attention",)


#: Operations that only PyTorch models have, and that the lists of mixed precision name.
OF_PYTORCH = {
    "logit": COMPOSITE, "entropy": COMPOSITE, "logaddexp": COMPOSITE,
    "soft_margin_loss": COMPOSITE, "multi_margin_loss": COMPOSITE,
    "prod": POINTWISE, "exp2": POINTWISE,
}  # fmt: skip


def check_operation(name: str) -> None:
    """Raise ValueError unless `name` is an operation, a composite or a class of operations."""
    operations = list(dict.fromkeys([*names(), *OF_PYTORCH, *CLASSES]))
    if name not in operations:
        raise ValueError(
            f"Unknown operation {name!r}. Operations: {', '.join(sorted(operations))}.{did_you_mean(name, operations)}"
        )


def with_classes(operations: Iterable[str]) -> tuple[str, ...]:
    """The names of operations, and of the classes that they are of; an optimizer's update is of none."""
    all_names = tuple(operations)
    return (*all_names, *(kind for name in all_names if name != UPDATE and (kind := kind_of(name))))


def roles_of(operation: str) -> tuple[str, ...]:
    """The roles that matter to an operation, or to those of a class or inside a composite."""
    kind = UPDATE if operation == UPDATE else kind_of(operation) or OF_PYTORCH.get(operation)
    return _roles_of_kind(kind or operation, operation in OF_CONTRACTIONS)


@cache
def _roles_of_kind(kind: str, has_contractions: bool = False) -> tuple[str, ...]:
    """The roles that matter to operations of a kind."""
    kinds = INSIDE if kind == COMPOSITE else (kind,)
    kinds = (*kinds, CONTRACTION) if has_contractions else kinds
    return tuple(name for name, role in ROLES.items() if set(kinds).intersection(role.concerns))


#: Names that an error lists before it says how many more there are.
LISTED = 12


@dataclass(frozen=True)
class Override:
    """Roles that differ where a path matches a shell pattern, for an operation or a list of them, or for both.

    A role that is None goes back to the one that it follows. An operation that is named alone has to occur; a list, a
    tuple, names operations that a model may have. Raises ValueError for what is no pattern, no operation or no role,
    and for a role's value that it cannot have.
    """

    path: str | None
    operation: str | tuple[str, ...] | None
    roles: tuple[tuple[str, Any], ...]

    def __post_init__(self) -> None:
        if self.path is None and self.operation is None:
            raise ValueError("An override is for a path, an operation, or both; got neither.")
        if self.path is not None:
            check_text("The path of an override", self.path)
        if isinstance(self.operation, list):
            object.__setattr__(self, "operation", tuple(self.operation))
        if self.operation == ():
            raise ValueError("A list of operations in an override names at least one; got none.")
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
        """The operations that it names."""
        if self.operation is None:
            return ()
        return self.operation if isinstance(self.operation, tuple) else (self.operation,)

    @property
    def is_list(self) -> bool:
        """Whether it names operations that a model may have or not."""
        return isinstance(self.operation, tuple)

    def matches(self, path: str, operations: Collection[str]) -> bool:
        """Whether it holds for an operation (with its class and the composites around it) in the layer at `path`."""
        return (self.path is None or path_matches(self.path, path)) and (
            self.operation is None or any(name in operations for name in self.operations)
        )

    def check_effect(self, given_roles: Collection[str]) -> None:
        """Raise ValueError for a role that its operations have no use for; `given_roles` are set in the policy."""
        if self.operation is None:
            return
        used = [role for role in ROLES if any(role in roles_of(name) for name in self.operations)]
        changes = dict(self.roles)
        fixed = {role for role in {*given_roles, *changes} if changes.get(role, role) is not None}
        for role in changes:
            if followers_of(role, fixed).isdisjoint(used):
                hint = f" Parameters are told apart by path: override('*.weight', {role}=...)."
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
    """The value of a role as people read it: texts in quotes, formats by their names."""
    return repr(value) if isinstance(value, str) else str(value)


def check_text(what: str, value: Any) -> None:
    """Raise ValueError unless `value` is text that a file in UTF-8 can hold."""
    if not isinstance(value, str):
        raise ValueError(f"{what} must be text, got {value!r} of type {type(value).__name__}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text without lone surrogates, got {value!r}.") from None


def path_matches(pattern: str, path: str) -> bool:
    """Whether a shell pattern is, or matches, the path or that of a module around it, of which the root's is empty."""
    parts = path.split(".")
    around = ["", *(".".join(parts[:n]) for n in range(1, len(parts) + 1))]
    return pattern in around or any(fnmatchcase(one, pattern) for one in around)


def check_matched(overrides: Iterable[Override], paths: Iterable[str], operations: Iterable[str]) -> None:
    """Raise ValueError naming the first override that met nothing among `paths` and `operations`; see Policy."""
    places, names = list(paths), list(operations)
    # Steps of optimizers alone say nothing about the operations of a model, nor do gradients that are set to zero.
    seen = with_classes(names) if any(name not in (UPDATE, MOVEMENT) for name in names) else ()
    for override in overrides:
        path, operation = override.path, override.operation
        if path is not None and places and not any(path_matches(path, place) for place in places):
            what = f"Override {path!r} matches no layer and no parameter."
            raise ValueError(f"{what} {_list_names('Paths', places)}{did_you_mean(path, places)}")
        if isinstance(operation, str) and operation != UPDATE and seen and operation not in seen:
            what = f"The override for the operation {operation!r} met none."
            raise ValueError(f"{what} {_list_names('Operations', names)}{did_you_mean(operation, seen)}")


def check_tied(overrides: Iterable[Override], tied: Mapping[str, str]) -> None:
    """Raise ValueError where an override says how a parameter is stored, but not by the path under which it is."""
    for override in overrides:
        stored = [role for role, _ in override.roles if ROLES[role].concerns == (PARAMETER,)]
        path = tied.get(override.path or "")
        if stored and path is not None:
            raise ValueError(
                f"Override {override.path!r} gives {stored[0]}; the parameter is tied and stored once, as {path!r}: "
                f"name it so, override({path!r}, {stored[0]}=...)."
            )


def _list_names(what: str, names: list[str]) -> str:
    shown = list(dict.fromkeys(name for name in names if name))
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return f"{what}: {', '.join(shown[:LISTED]) or 'none'}{more}."


#: The roles of an operation's operands and of its sums, each after the one that it follows.
OPERANDS = ("compute", "compute_gradients", "compute_weights")
SUMS = ("accumulate", "accumulate_gradients", "reduce")


class ListedPolicy(Protocol):
    """A policy, as far as its lists need it."""

    def recipe(self, path: str = "", *operations: str) -> Recipe:
        """What an operation uses."""

    def given_roles(self, path: str, operations: Sequence[str]) -> dict[str, Any]:
        """The roles of an operation as they were given; None where one follows another."""


def roles_to_allow(policy: ListedPolicy, operations: Sequence[str], format: Any) -> dict[str, Any]:
    """The roles that bring operations back into a policy's own formats, or into `format`."""
    recipe = policy.recipe()
    target_roles = {role: getattr(recipe, role) for role in (*OPERANDS, *RESULTS, *SUMS, "rotation")}
    if format is not None:
        target_roles |= dict.fromkeys(OPERANDS, OPERAND.read(format))
    narrow = format_of(target_roles["compute"])
    # Results without a format of their own take that of the operands.
    target_roles |= {role: narrow for role in RESULTS if format is not None or target_roles[role] == WIDEST}
    return _fewest(policy, operations, target_roles)


def roles_to_deny(policy: ListedPolicy, operations: Sequence[str], format: Any) -> dict[str, Any]:
    """The roles with which operations are carried out in `format` throughout, forward and backward."""
    recipe, wide = policy.recipe(), as_format(format)
    sums = {role: _accumulator_in_format(getattr(recipe, role), wide) for role in SUMS}
    return _fewest(policy, operations, dict.fromkeys((*OPERANDS, *RESULTS), wide) | sums | {"rotation": None})


def roles_to_infer(policy: ListedPolicy, operations: Sequence[str]) -> dict[str, Any]:
    """The roles with which operations run in the widest of their operands' formats."""
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
    """The roles that have to be said so that all are as wanted, for the operations that use them."""
    _check(operations)
    explicit_roles = {name: policy.given_roles("", (name,)) for name in operations}
    recipes = {name: Recipe(**explicit) for name, explicit in explicit_roles.items()}
    roles: dict[str, Any] = {}
    for role, value in target_roles.items():
        users = [name for name in operations if role in roles_of(name)]
        # One role is always said, so that the list stands in the policy.
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
    """The accumulator if it sums in `format` or exactly, else the sum in this format, one product after the other."""
    fits = not accumulator.is_matrix_unit and accumulator.result in (None, format)
    return accumulator if fits else sequential(format)
