"""A policy as a table: what runs where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from simfloat.policy.operations import roles_of
from simfloat.policy.roles import PARAMETER, ROLES, Recipe
from simfloat.table import Table
from simfloat.table import table as aligned

#: The recipe in the layer, or of the parameter, at a path; for the operations that are named, if any.
Recipes = Callable[..., Recipe]
Row = tuple[str, ...]

#: The cell of a role that the row has no use for.
UNUSED = "-"


class Layered(Protocol):
    """A model: anything that names its modules and its parameters."""

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Pairs of path and module."""

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Pairs of path and parameter."""


def table(model: Layered, recipes: Recipes, operations: Iterable[str]) -> Table:
    """A row for each layer, and one for what runs in none of them; what differs there for parameters and operations.

    An operation's row stands below the layer where it differs from it, or at the end where it does so everywhere.
    """
    layers = {path: type(module).__name__ for path, module in model.named_modules() if module.is_layer}
    parameters: dict[str, list[str]] = {path: [] for path in layers}
    for path, _ in model.named_parameters():
        parameters.setdefault(path.rpartition(".")[0], []).append(path)
    places = layers if "" in layers else layers | {"": UNUSED}
    named = list(dict.fromkeys(operations))
    everywhere = [name for name in named if len({_operation_cells(path, name, recipes) for path in places}) == 1]
    rows: list[Row] = [("layer", "kind", *ROLES)]
    for path, kind in places.items():
        own = parameters.get(path, [])
        where = path or ("(model)" if "" in layers else "elsewhere")
        rows.append((where, kind, *_layer_cells(recipes(path), bool(own))))
        rows += [row for parameter in own for row in _parameter_row(parameter, path, recipes)]
        rows += [
            (where, *row) for name in named if name not in everywhere for row in _operation_row(path, name, recipes)
        ]
    rows += [("everywhere", *row) for name in everywhere for row in _operation_row("", name, recipes)]
    return aligned(rows)


def _layer_cells(recipe: Recipe, has_parameters: bool) -> Row:
    """A layer's cells: those that matter to parameters alone only if it has any."""
    return _cells(recipe, [role for role in ROLES if has_parameters or ROLES[role].concerns != (PARAMETER,)])


def _parameter_row(parameter: str, layer: str, recipes: Recipes) -> Iterator[Row]:
    """The row of a parameter, if its recipe differs from its layer's."""
    used = [name for name, role in ROLES.items() if PARAMETER in role.concerns]
    cells = _cells(recipes(parameter), used)
    if cells != _cells(recipes(layer), used):
        yield parameter, "parameter", *cells


def _operation_row(layer: str, operation: str, recipes: Recipes) -> Iterator[Row]:
    """The row of an operation but for its first cell, if its recipe differs from its layer's."""
    cells = _operation_cells(layer, operation, recipes)
    if cells != _cells(recipes(layer), roles_of(operation)):
        yield operation, *cells


def _operation_cells(layer: str, operation: str, recipes: Recipes) -> Row:
    return _cells(recipes(layer, operation), roles_of(operation))


def _cells(recipe: Recipe, used: Iterable[str]) -> Row:
    return tuple(str(getattr(recipe, role)) if role in used else UNUSED for role in ROLES)
