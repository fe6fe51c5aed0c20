"""The paths of a model's parts, found once and kept until a module somewhere gains or loses a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol
from weakref import ref

from simfloat.autodiff.owners import Owned, outermost_owner
from simfloat.simulation.context import TREES, Names

#: Under this name, which no attribute of a user's has, a module keeps what `names_of` found, and its path then; copies
#: and pickles leave it behind.
NAMES_KEY = "simfloat names"

#: Under this name a module notes that it was called by itself while it had no owner.
OUTERMOST = "simfloat is outermost"


class NamedParts(Protocol):
    """A module, as far as names go."""

    @property
    def path(self) -> str:
        """Where it is by way of its first owner."""

    def named_modules(self, path: str) -> Iterator[tuple[str, Any]]:
        """Pairs of path and module."""

    def named_parameters(self, path: str) -> Iterator[tuple[str, Any]]:
        """Pairs of path and parameter."""


def parts_changed() -> None:
    """Note that some module has gained or lost a part: what was found before may be wrong."""
    TREES.state = object()


def names_of(module: NamedParts) -> Names:
    """The paths of the module itself and of all modules and parameters inside, by identity.

    They begin with the path that the module has by way of its first owner. One that has none stays the outermost of
    its names: what is later built around it, to evaluate it for example, renames nothing.
    """
    path = module.path
    if not path:
        vars(module)[OUTERMOST] = True
    path_and_names: tuple[str, Names] | None = vars(module).get(NAMES_KEY)
    if path_and_names is not None and path_and_names[1].state is TREES.state and path_and_names[0] == path:
        return path_and_names[1]
    now = TREES.state  # before looking: what changes meanwhile makes it old
    parts = list(module.named_modules(path))
    link = ref(module)
    names = Names(
        {id(part): where for where, part in parts},
        {id(parameter): where for where, parameter in module.named_parameters(path)},
        now,
        lambda: None if (root := link()) is None else names_of(root),
        ref(outermost_owner(module)) if path else link,
    )
    for _, part in parts:
        _check_containers(part, names)
    vars(module)[NAMES_KEY] = path, names
    return names


def _check_containers(module: Any, names: Names) -> None:
    """Raise ValueError for modules and parameters in a list, a tuple or a dictionary, where they have no path."""
    for name, value in vars(module).items():
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        for part in inside:
            if isinstance(part, Owned) and id(part) not in names.modules and id(part) not in names.parameters:
                raise ValueError(
                    f"{type(module).__name__}.{name} is a {type(value).__name__} with a {type(part).__name__} inside, "
                    "which so has no path, and is not trained: hold modules in a simfloat.nn.ModuleList, or each part "
                    "as an attribute of its own."
                )
