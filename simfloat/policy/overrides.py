"""Overrides: for which layers, parameters and operations which roles differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from simfloat.checks import did_you_mean
from simfloat.policy.operation_roles import check_operation, roles_of, with_classes
from simfloat.policy.roles import MOVEMENT, PARAMETER, ROLES, UPDATE, followers_of

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
        """Raise ValueError for a role that its operations have no use for, in a policy in which roles are `given`."""
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
