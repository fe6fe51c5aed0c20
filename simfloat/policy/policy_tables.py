"""Policies as tables: what runs where, and in what two of them differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import fill
from typing import Any, Protocol

from simfloat.policy.operation_roles import roles_of
from simfloat.policy.overrides import Override
from simfloat.policy.roles import PARAMETER, ROLES, Recipe
from simfloat.table import Table
from simfloat.table import table as aligned

#: The recipe in the layer, or of the parameter, at a path; for the operations that are named, if any.
Recipes = Callable[..., Recipe]
Row = tuple[str, ...]

#: Lines of the names of operations that share a row, and of overrides, have at most so many characters.
WIDTH, OVERRIDE_WIDTH = 28, 60

#: The cell of a role that the row has no use for.
UNUSED = "-"


class Layered(Protocol):
    """A model: anything that names its modules and its parameters."""

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Pairs of path and module."""

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Pairs of path and parameter."""


def check_model(model: Any) -> None:
    """Raise ValueError for what is no model of simfloat's."""
    if isinstance(model, type) or not hasattr(model, "named_modules"):
        raise ValueError(f"explain takes a model, a simfloat.nn.Module, got {model!r}.")
    if type(model).__module__.partition(".")[0] == "torch" or not hasattr(type(model), "is_layer"):
        raise ValueError(
            "explain takes a model of simfloat.nn; for one of PyTorch write simfloat.torch.explain(model, sample, "
            f"policy). Got a {type(model).__name__}."
        )


def table(model: Layered, recipes: Recipes, single: Iterable[str], listed: Iterable[str]) -> Table:
    """A row for each layer, and one for what runs in none of them; what differs there for parameters and operations.

    The row of a single operation stands below the layers where it differs from them, or at the end where it does so
    everywhere alike. Operations of lists share rows: at the end, and below the layers where they are not as there.
    """
    layers = {path: type(module).__name__ for path, module in model.named_modules() if module.is_layer}
    parameters: dict[str, list[str]] = {path: [] for path in layers}
    for path, _ in model.named_parameters():
        parameters.setdefault(path.rpartition(".")[0], []).append(path)
    places = layers if "" in layers else layers | {"": UNUSED}
    named = list(dict.fromkeys(single))
    lists = [name for name in dict.fromkeys(listed) if name not in named]
    everywhere = {
        name for name in (*named, *lists) if len({_operation_cells(path, name, recipes) for path in places}) == 1
    }
    varied = [name for name in lists if name not in everywhere]
    rows: list[Row] = [("layer", "kind", *ROLES)]
    for path, kind in places.items():
        its_parameters = parameters.get(path, [])
        where = path or ("(model)" if "" in layers else "elsewhere")
        rows.append((where, kind, *_layer_cells(recipes(path), bool(its_parameters))))
        rows += [row for parameter in its_parameters for row in _parameter_row(parameter, path, recipes)]
        other = [n for n in varied if _operation_cells(path, n, recipes) != _operation_cells("", n, recipes)]
        rows += _rows(where, path, [*([name] for name in named if name not in everywhere), other], recipes)
    rows += _rows("everywhere", "", [[name] for name in named if name in everywhere], recipes)
    rows += _rows("everywhere", "", [[name for name in lists if name in everywhere]], recipes)
    rows += _rows("elsewhere", "", [varied], recipes)
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


def _rows(where: str, layer: str, groups: Iterable[Sequence[str]], recipes: Recipes) -> Iterator[Row]:
    """The rows of operations whose recipes differ from their layer's; those of a group that are alike share one."""
    for group in groups:
        alike: dict[Row, list[str]] = {}
        for name in group:
            cells = _operation_cells(layer, name, recipes)
            if cells != _cells(recipes(layer), roles_of(name)):
                alike.setdefault(cells, []).append(name)
        for cells, names in alike.items():
            yield where, fill(" ".join(names), WIDTH, break_long_words=False), *cells


def _operation_cells(layer: str, operation: str, recipes: Recipes) -> Row:
    return _cells(recipes(layer, operation), roles_of(operation))


def _cells(recipe: Recipe, used: Iterable[str]) -> Row:
    return tuple(str(getattr(recipe, role)) if role in used else UNUSED for role in ROLES)


def difference(
    names: tuple[str, str], recipes: tuple[Recipe, Recipe], overrides: Sequence[Sequence[Override]]
) -> Table:
    """A row for each role with two values, and one for each override that only one of the policies has."""
    pairs = ((role, *(str(getattr(recipe, role)) for recipe in recipes)) for role in ROLES)
    rows: list[Row] = [("role", *names), *((role, mine, theirs) for role, mine, theirs in pairs if mine != theirs)]
    return aligned([*rows, *_overrides(*overrides)])


def _overrides(mine: Sequence[Override], theirs: Sequence[Override]) -> Iterator[Row]:
    for override in mine:
        if override not in theirs:
            yield "override", _broken(override), ""
    for override in theirs:
        if override not in mine:
            yield "override", "", _broken(override)


def _broken(override: Override) -> str:
    return fill(str(override), OVERRIDE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
