"""Two policies side by side: in what they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from simfloat.policy.overrides import Override
from simfloat.policy.roles import ROLES, Recipe
from simfloat.table import Table
from simfloat.table import table as aligned

#: Overrides are broken into lines of so many characters.
WIDTH = 60

Row = tuple[str, str, str]


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
    return fill(str(override), WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
