"""The axes and points of a sweep: the requested values on each axis of an experiment's grid."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simfloat.studies import Job, Result, check_count, combinations


@dataclass(frozen=True)
class Axis:
    """An axis of a sweep.

    `read` converts text to a hashable value, or raises ValueError that says what is expected. If a sweep does not name
    an axis, it has its `standard` values; without any, the axis is neither in the jobs nor in the table.
    """

    name: str
    meaning: str
    read: Callable[[str], Any]
    standard: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grid:
    """The sweeps that an experiment supports: every point is one job of the experiment and one row of the table."""

    axes: tuple[Axis, ...]
    job: Callable[
        [Mapping[str, Any], bool], Job
    ]  # makes the job from a value on each axis, and from whether it is tiny
    measures: Callable[[Result], dict[str, Any]]  # the measurements of the row, after its levels
    check: Callable[[Sequence[Job]], None]  # raises ValueError before any job runs if a job cannot run


class Level(NamedTuple):
    """A value on an axis, and its form in a table."""

    text: str
    value: Any  # hashable

    @property
    def label(self) -> str | int | float:
        """The value in a table: a number unchanged, anything else as the text of the user."""
        return self.value if isinstance(self.value, (int, float)) else self.text


#: A point of a grid: a level on each axis, by the name of the axis.
Point = Mapping[str, Level]


def read_levels(axes: Sequence[Axis], assignments: Iterable[str]) -> dict[str, list[Level]]:
    """Return the levels on each axis, in the order of the axes, from texts such as ``"seed=1,2,3"``.

    Raises ValueError if an axis is unknown or repeated, or if values are empty, repeated or invalid for the axis.
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
    """Return every combination of levels; the last axis varies fastest."""
    return combinations(levels)


def levels_on(axis: Axis, texts: Sequence[str]) -> list[Level]:
    """Return the levels for the texts of one axis."""
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
    """Split a text at commas outside of brackets: ``"a,f(b, c)"`` has the parts a and f(b, c)."""
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
