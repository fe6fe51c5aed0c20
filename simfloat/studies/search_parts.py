"""The parts of a policy that a search changes, their formats and default cost, and the result of a search.

The result has its points, their front, the winner and its confirmation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from numbers import Real
from typing import Any, NamedTuple

from simfloat.arithmetic.catalog import kind_of
from simfloat.common import Table, did_you_mean, table
from simfloat.formats import Format
from simfloat.policy import Policy
from simfloat.policy.roles import CONTRACTION, FORWARD_RESULT, OPERAND, RESULT, ROLES, STORAGE, SUM, UPDATE, WIDEST
from simfloat.policy.text import parse
from simfloat.studies.stored import label_of
from simfloat.sums import Accumulator

#: The roles of the whole model that a search changes where it is not told which: operands are changed layer by layer.
MODEL_ROLES = ("activations", "weights", "optimizer_state")
LAYER_ROLE = "compute"

#: The kinds of roles that have a format.
FORMATTED_KINDS = (OPERAND, RESULT, FORWARD_RESULT, STORAGE, SUM)

#: The bits of a number that no format bounds: of an exact sum.
UNBOUNDED_BITS = 64


class SearchPart(NamedTuple):
    """Roles that change together, in the layers or parameters whose path matches; in the whole model if it is empty."""

    path: str
    roles: tuple[str, ...]

    def __str__(self) -> str:
        roles = "+".join(self.roles)
        return roles if not self.path else self.path if roles == LAYER_ROLE else f"{self.path}: {roles}"

    def apply_to_policy(self, policy: Policy, value: Any) -> Policy:
        """The policy with this value in all of its roles."""
        values = dict.fromkeys(self.roles, value)
        return policy.override(self.path, **values) if self.path else replace(policy, **values)

    def bits(self, policy: Policy) -> int:
        """The bits of a number in each of its roles, together."""
        recipe = policy.recipe(self.path)
        values = [getattr(recipe, role) for role in self.roles]
        return sum(element_bits(recipe.weights if value == WIDEST else value) for value in values)


def with_explicit_roles(policy: Policy, parts: Iterable[SearchPart]) -> Policy:
    """Give the roles of results, of storage and of the parts values of their own, so that they follow no other role."""
    recipe = policy.recipe()
    roles = dict.fromkeys([*MODEL_ROLES, *(role for part in parts for role in part.roles)])
    return replace(policy, **{role: getattr(recipe, role) for role in roles if getattr(policy, role) is None})


def element_bits(value: Any) -> int:
    """The bits of the numbers that a role's value makes, without scales of blocks; of a sum, of its running total."""
    if isinstance(value, Accumulator):
        return value.result.bits if value.result is not None else UNBOUNDED_BITS
    return value.bits if isinstance(value, Format) else getattr(getattr(value, "format", None), "bits", UNBOUNDED_BITS)


def default_cost(parts: Sequence[SearchPart]) -> Callable[[Policy], float]:
    """The bits of one number in each part, added: every part counts the same, however many numbers it has.

    Results that have the widest format of their operands count as the weights do.
    """
    return lambda policy: float(sum(part.bits(policy) for part in parts))


def checked_cost(cost: Any) -> Callable[[Policy], float]:
    """The function of a policy; its results are finite numbers. Raises ValueError for what is none."""
    if not callable(cost):
        raise ValueError(
            "cost is a function of a policy, such as lambda policy: work.cost(policy).bits_moved; "
            f"got a {type(cost).__name__}."
        )

    def price(policy: Policy) -> float:
        amount = cost(policy)
        if not isinstance(amount, Real) or not math.isfinite(amount):
            raise ValueError(f"cost(policy) must be a finite number, got {amount!r} for {policy.name or 'a policy'}.")
        return float(amount)

    return price


def checked_parts(parts: Iterable[Any]) -> list[SearchPart]:
    """The parts that are meant. Raises ValueError for what is none, and for one that is given twice."""
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        got = f"the text {parts!r}; give [{parts!r}]" if isinstance(parts, str) else repr(parts)
        raise ValueError(f"parts is a list of parts, got {got}.")
    parts_list = [_as_part(part) for part in parts]
    twice = [part for part in parts_list if parts_list.count(part) > 1]
    if twice or not parts_list:
        raise ValueError(f"The part {twice[0]} is given twice." if twice else "parts is empty: nothing could change.")
    return parts_list


def _as_part(part: Any) -> SearchPart:
    """A role by its name, a layer by its path, or a pair of a path and one or several roles."""
    if isinstance(part, str):
        return SearchPart("", _roles(part)) if part in ROLES else SearchPart(part, (LAYER_ROLE,))
    if not isinstance(part, tuple | list) or len(part) != 2 or not isinstance(part[0], str):
        raise ValueError(
            'A part is a role such as "activations", a layer such as "hidden.0", or both, ("hidden.0", "compute"); '
            f"got {part!r}."
        )
    return SearchPart(part[0], _roles(part[1]))


def _roles(roles: Any) -> tuple[str, ...]:
    """Roles of formats and sums. Raises ValueError for others, with the nearest names."""
    allowed = [name for name, role in ROLES.items() if role.kind in FORMATTED_KINDS]
    names = (roles,) if isinstance(roles, str) else tuple(roles)
    for role in names:
        if role not in allowed:
            near = did_you_mean(str(role), allowed)
            raise ValueError(f"{role!r} is no role that has a format. Roles: {', '.join(allowed)}.{near}")
    return names


def parts_of_places(places: Iterable[Sequence[str]]) -> list[SearchPart]:
    """The parts of a training that was watched: operands of each layer with contractions, and roles of all layers."""
    pairs = [(path, operations) for path, *operations in places]
    parameters = {path for path, operations in pairs if UPDATE in operations}
    layers = dict.fromkeys(path for path, operations in pairs if any(map(_is_contraction, operations)))
    layers = {path: None for path in layers if path not in parameters}
    return [*(SearchPart(path, (LAYER_ROLE,)) for path in layers), *(SearchPart("", (role,)) for role in MODEL_ROLES)]


def _is_contraction(operation: str) -> bool:
    return kind_of(operation) == CONTRACTION


def watch_policy(policy: Policy, watch: bool = True) -> tuple[Policy, dict[tuple[str, ...], None]]:
    """A policy of the same recipes that notes for which path and operations it is asked, and its notes."""
    if not watch:
        return policy, {}
    notes: dict[tuple[str, ...], None] = {}

    class Watched(Policy):
        def given_roles(self, path: str, operations: Sequence[str]) -> dict[str, Any]:
            notes[path, *operations] = None
            return super().given_roles(path, operations)

        # Recipes are kept by the policy's hash: this one is asked anew.
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return policy == other or self is other

    fields = {name: getattr(policy, name) for name in policy.__dataclass_fields__}
    return Watched(**fields), notes


class SearchOption(NamedTuple):
    """A value that a part can have, its label, and what a policy costs less than `start` if this alone changes."""

    value: Any
    label: str
    saving: float


def part_options(
    parts: Sequence[SearchPart], start: Policy, formats: Iterable[Any], cost: Callable[[Policy], float]
) -> list[list[SearchOption]]:
    """For each part the formats that are cheaper than its own and that it can have, the cheapest first.

    Raises ValueError where there are none, with what was said of the first format that a part cannot have.
    """
    pairs = formats.items() if isinstance(formats, Mapping) else ((str(label_of(value)), value) for value in formats)
    named = [(label, parse(value) if isinstance(value, str) else value) for label, value in pairs]
    whole = cost(start)
    options_by_part, refused = [], ""
    for part in parts:
        options = []
        for label, value in named:
            try:
                saved = whole - cost(part.apply_to_policy(start, value))
            except ValueError as error:  # the role takes no such format
                refused = refused or f" {part} cannot have {label}: {error}"
                continue
            if saved > 0:
                options.append(SearchOption(value, label, saved))
        options_by_part.append(sorted(options, key=lambda option: -option.saving))
    if not any(options_by_part):
        raise ValueError(f"No part has a format that is cheaper than its own: there is nothing to search.{refused}")
    return options_by_part


#: What became of a policy in a search.
REFERENCE, INSIDE, OUTSIDE, OPEN = "reference", "within", "not within", "inconclusive"
FAR, DIVERGED, REFUSED = "far", "diverged", "refused"


class SearchPoint(NamedTuple):
    """A policy that was tried: what it costs, and its loss as a ratio to the reference's, seed by seed.

    `ratio` is the geometric mean over `seeds` pairs, its 95 % interval goes from `low` to `high`; one seed, which is
    enough where the loss is far from the reference's, has no interval: it goes from 0 to infinity. `refused` is what
    the ValueError said of a policy that the training cannot have.
    """

    label: str
    policy: Policy
    cost: float
    ratio: float
    low: float
    high: float
    seeds: int
    outcome: str
    refused: str = ""


class Confirmation(NamedTuple):
    """The winner's ratio on seeds that the search did not use: its mean, its interval, and which seeds they were."""

    ratio: float
    low: float
    high: float
    seeds: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Search:
    """What `simfloat.search` found.

    * policy: the cheapest policy that was found and confirmed, `cost` what it costs, beside `reference_cost`;
    * confirmation: its ratio on fresh seeds;
    * points: all policies that were tried, in their order, `front` those that no other one beats in cost and loss;
    * trainings: how many were made, and combinations: how many policies there would have been.
    """

    policy: Policy
    label: str
    reference: str
    within: float
    cost: float
    reference_cost: float
    confirmation: Confirmation
    points: tuple[SearchPoint, ...]
    trainings: int
    combinations: int

    @property
    def front(self) -> tuple[SearchPoint, ...]:
        """The points that no other one beats: those that cost as little have larger losses. The cheapest first."""
        finite_points = sorted((p for p in self.points if math.isfinite(p.ratio)), key=lambda p: (p.cost, p.ratio))
        best: list[SearchPoint] = []
        for point in finite_points:
            if not best or point.ratio < best[-1].ratio:
                best.append(point)
        return tuple(best)

    def table(self) -> Table:
        """All points by their cost: ratio of the loss to the reference's, interval, seeds and what became of them."""
        front = {point.label for point in self.front}
        head = ("policy", "outcome", "front", "cost", "ratio", "95 %", "seeds")
        rows = [self._line(point, front) for point in sorted(self.points, key=lambda p: (p.cost, p.ratio))]
        return table([head, *rows], number_columns=4)

    def _line(self, point: SearchPoint, front: set[str]) -> tuple[str, ...]:
        outcome = "the answer" if point.label == self.label else point.outcome
        interval = f"{point.low:.4g} to {point.high:.4g}" if point.seeds > 1 else ""
        texts = f"{point.cost:.6g}", f"{point.ratio:.4g}", interval, str(point.seeds)
        return point.label, outcome, "*" if point.label in front else "", *texts

    def __repr__(self) -> str:
        return f"{self.table()}\n{self.answer}"

    @property
    def answer(self) -> str:
        """The result in two sentences, and the reasons for which policies were refused, each once."""
        confirmation, whole = self.confirmation, self.reference_cost
        share = f"{self.cost / whole:.3g} of {self.reference}'s {whole:.6g}" if whole else f"{self.cost:.6g}"
        ratio = f"loss / {self.reference}'s on {len(confirmation.seeds)} fresh seeds: {confirmation.ratio:.4g}"
        return (
            f"{self.label} costs {share}; {ratio}, in [{confirmation.low:.4g}, {confirmation.high:.4g}]. "
            f"It took {self.trainings} trainings for {self.combinations} combinations.{self._refusals()}"
        )

    def _refusals(self) -> str:
        labels: dict[str, list[str]] = {}
        for point in self.points:
            if point.refused:
                labels.setdefault(point.refused, []).append(point.label)
        return "".join(f" Refused: {'; '.join(refused_labels)}: {reason}" for reason, refused_labels in labels.items())

    def _repr_html_(self) -> str:
        return f"{self.table()._repr_html_()}<p>{escape(self.answer)}</p>"
