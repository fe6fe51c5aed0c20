"""What a sweep may vary, and its points: the values that are asked for on each axis of an experiment's grid."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simfloat.studies import Job, Result, check_count, combinations


@dataclass(frozen=True)
class Axis:
    """What a sweep may vary.

    `read` makes the value of its text, which is hashable, or raises ValueError saying what is expected. An axis that a
    sweep does not name has its `standard` values; without any, it is neither in the jobs nor in the table.
    """

    name: str
    meaning: str
    read: Callable[[str], Any]
    standard: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grid:
    """What an experiment lets a sweep do: every point is one job of the experiment and one row of the table."""

    axes: tuple[Axis, ...]
    job: Callable[[Mapping[str, Any], bool], Job]  # of a value on each axis, and whether it is tiny
    measures: Callable[[Result], dict[str, Any]]  # of the row, beside the point's levels
    check: Callable[[Sequence[Job]], None]  # ValueError for jobs that cannot run, before any of them does


class Level(NamedTuple):
    """A value on an axis, and how a table has it."""

    text: str
    value: Any  # hashable

    @property
    def label(self) -> str | int | float:
        """A number as it is, anything else as the text that the user wrote."""
        return self.value if isinstance(self.value, (int, float)) else self.text


#: Where in a grid: a level on each axis, by the axis's name.
Point = Mapping[str, Level]


def read_levels(axes: Sequence[Axis], assignments: Iterable[str]) -> dict[str, list[Level]]:
    """The levels on each axis, in the order of the axes, from texts such as ``"seed=1,2,3"``.

    Raises ValueError for an axis that there is not or that is given twice, and for values that are empty, given twice,
    or not of the axis.
    """
    given: dict[str, list[Level]] = {}
    for assignment in assignments:
        axis, texts = _assigned(axes, assignment)
        if axis.name in given:
            raise ValueError(f"The axis {axis.name} is given twice; give all its values at once: {axis.name}=a,b.")
        given[axis.name] = levels_on(axis, texts)
    for axis in axes:
        given.setdefault(axis.name, levels_on(axis, axis.standard))
    ordered = {axis.name: given[axis.name] for axis in axes if given[axis.name]}
    check_count(ordered)
    return ordered


def points(levels: Mapping[str, Sequence[Level]]) -> Sequence[Point]:
    """Every combination of levels, the last axis varying fastest."""
    return combinations(levels)


def levels_on(axis: Axis, texts: Sequence[str]) -> list[Level]:
    """The levels that the texts stand for."""
    found: dict[Hashable, Level] = {}
    for text in texts:
        try:
            value = axis.read(text)
        except ValueError as error:
            raise ValueError(f"The axis {axis.name} does not take {text!r}: {error}") from None
        if value in found:
            raise ValueError(f"The axis {axis.name} has the value {text!r} twice; every value is given once.")
        found[value] = Level(text, value)
    return list(found.values())


def split(text: str) -> list[str]:
    """The parts between commas, but for commas inside of brackets: ``"a,f(b, c)"`` has the parts a and f(b, c)."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _assigned(axes: Sequence[Axis], assignment: str) -> tuple[Axis, list[str]]:
    name, equals, text = assignment.partition("=")
    axis = next((axis for axis in axes if axis.name == name), None)
    if axis is None or not equals:
        known = "".join(f"\n  {axis.name}: {axis.meaning}" for axis in axes)
        near = difflib.get_close_matches(name, [axis.name for axis in axes], n=1)
        hint = f" Did you mean {near[0]!r}?" if near and near[0] != name else ""
        fault = f"Unknown axis {name!r}." if equals else f"{assignment!r} is not of the form AXIS=a,b,c."
        raise ValueError(f"{fault}{hint} Axes:{known}")
    texts = split(text)
    if "" in texts:
        raise ValueError(f"The axis {name} has an empty value in {assignment!r}; give it as {name}=a,b,c.")
    return axis, texts
