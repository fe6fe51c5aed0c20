"""The parts of a policy that a search changes, their formats and default cost, and the result of a search.

The result contains its points, their Pareto front, the winner and its confirmation.
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

#: The roles of the whole model that a search changes by default; operands are changed layer by layer.
MODEL_ROLES = ("activations", "weights", "optimizer_state")
LAYER_ROLE = "compute"

#: The kinds of roles that have a format.
FORMATTED_KINDS = (OPERAND, RESULT, FORWARD_RESULT, STORAGE, SUM)

#: The bits that count for a value without a format, such as an exact sum.
UNBOUNDED_BITS = 64


class SearchPart(NamedTuple):
    """Roles that change together in the layers or parameters at a path; an empty path means the whole model."""

    path: str
    roles: tuple[str, ...]

    def __str__(self) -> str:
        roles = "+".join(self.roles)
        return roles if not self.path else self.path if roles == LAYER_ROLE else f"{self.path}: {roles}"

    def apply_to_policy(self, policy: Policy, value: Any) -> Policy:
        """Return the policy with this value in all roles of the part."""
        values = dict.fromkeys(self.roles, value)
        return policy.override(self.path, **values) if self.path else replace(policy, **values)

    def bits(self, policy: Policy) -> int:
        """Return the bits of one element, added over the roles of the part."""
        recipe = policy.recipe(self.path)
        values = [getattr(recipe, role) for role in self.roles]
        return sum(element_bits(recipe.weights if value == WIDEST else value) for value in values)


def with_explicit_roles(policy: Policy, parts: Iterable[SearchPart]) -> Policy:
    """Return the policy with explicit values for results, storage and the roles of parts.

    These roles then follow no other role.
    """
    recipe = policy.recipe()
    roles = dict.fromkeys([*MODEL_ROLES, *(role for part in parts for role in part.roles)])
    return replace(policy, **{role: getattr(recipe, role) for role in roles if getattr(policy, role) is None})


def element_bits(value: Any) -> int:
    """Return the bits of an element for the value of a role, without block scales.

    For an accumulator, they are the bits of its partial sum.
    """
    if isinstance(value, Accumulator):
        return value.result.bits if value.result is not None else UNBOUNDED_BITS
    return value.bits if isinstance(value, Format) else getattr(getattr(value, "format", None), "bits", UNBOUNDED_BITS)


def default_cost(parts: Sequence[SearchPart]) -> Callable[[Policy], float]:
    """Return the default cost: the bits of one element, added over all parts.

    Every part counts the same, whatever its number of elements. Results in the widest format of their operands count
    like the weights.
    """
    return lambda policy: float(sum(part.bits(policy) for part in parts))


def checked_cost(cost: Any) -> Callable[[Policy], float]:
    """Return the cost function with a check of its results; raise ValueError if it is not a function."""
    if not callable(cost):
        raise ValueError(
            "cost must be a function of a policy, such as lambda policy: work.cost(policy).bits_moved; "
            f"got a {type(cost).__name__}."
        )

    def price(policy: Policy) -> float:
        amount = cost(policy)
        if not isinstance(amount, Real) or not math.isfinite(amount):
            raise ValueError(f"cost(policy) must be a finite number, got {amount!r} for {policy.name or 'a policy'}.")
        return float(amount)

    return price


def checked_parts(parts: Iterable[Any]) -> list[SearchPart]:
    """Return the parts; raise ValueError if one is invalid or given twice."""
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        got = f"the text {parts!r}; give [{parts!r}]" if isinstance(parts, str) else repr(parts)
        raise ValueError(f"parts must be a list of parts, got {got}.")
    parts_list = [_as_part(part) for part in parts]
    twice = [part for part in parts_list if parts_list.count(part) > 1]
    if twice or not parts_list:
        raise ValueError(f"The part {twice[0]} is given twice." if twice else "parts is empty: nothing could change.")
    return parts_list


def _as_part(part: Any) -> SearchPart:
    """Return the part for a role, a layer's path, or a pair of a path and one or several roles."""
    if isinstance(part, str):
        return SearchPart("", _roles(part)) if part in ROLES else SearchPart(part, (LAYER_ROLE,))
    if not isinstance(part, tuple | list) or len(part) != 2 or not isinstance(part[0], str):
        raise ValueError(
            'A part is a role such as "activations", a layer such as "hidden.0", or both, ("hidden.0", "compute"); '
            f"got {part!r}."
        )
    return SearchPart(part[0], _roles(part[1]))


def _roles(roles: Any) -> tuple[str, ...]:
    """Return roles that have a format; raise ValueError for others, with the nearest names."""
    allowed = [name for name, role in ROLES.items() if role.kind in FORMATTED_KINDS]
    names = (roles,) if isinstance(roles, str) else tuple(roles)
    for role in names:
        if role not in allowed:
            near = did_you_mean(str(role), allowed)
            raise ValueError(f"{role!r} is not a role with a format. Roles: {', '.join(allowed)}.{near}")
    return names


def parts_of_places(places: Iterable[Sequence[str]]) -> list[SearchPart]:
    """Return the default parts after a watched training: operands of layers with contractions, and three roles."""
    pairs = [(path, operations) for path, *operations in places]
    parameters = {path for path, operations in pairs if UPDATE in operations}
    layers = dict.fromkeys(path for path, operations in pairs if any(map(_is_contraction, operations)))
    layers = {path: None for path in layers if path not in parameters}
    return [*(SearchPart(path, (LAYER_ROLE,)) for path in layers), *(SearchPart("", (role,)) for role in MODEL_ROLES)]


def _is_contraction(operation: str) -> bool:
    return kind_of(operation) == CONTRACTION


def watch_policy(policy: Policy, watch: bool = True) -> tuple[Policy, dict[tuple[str, ...], None]]:
    """Return a policy with the same recipes that records the path and operations of each request, and its record."""
    if not watch:
        return policy, {}
    notes: dict[tuple[str, ...], None] = {}

    class Watched(Policy):
        def given_roles(self, path: str, operations: Sequence[str]) -> dict[str, Any]:
            notes[path, *operations] = None
            return super().given_roles(path, operations)

        # Recipes are cached by policy. The hash of this object is new, so every request reaches the method above.
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return policy == other or self is other

    fields = {name: getattr(policy, name) for name in policy.__dataclass_fields__}
    return Watched(**fields), notes


class SearchOption(NamedTuple):
    """A value that a part can have, its label, and the cost that it saves if only this part changes."""

    value: Any
    label: str
    saving: float


def part_options(
    parts: Sequence[SearchPart], start: Policy, formats: Iterable[Any], cost: Callable[[Policy], float]
) -> list[list[SearchOption]]:
    """Return for each part the formats that it accepts and that are cheaper than its own, the cheapest first.

    Raises ValueError if no part has such a format, with the message for the first format that a part does not accept.
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
            except ValueError as error:  # the role does not accept this format
                refused = refused or f" {part} cannot have {label}: {error}"
                continue
            if saved > 0:
                options.append(SearchOption(value, label, saved))
        options_by_part.append(sorted(options, key=lambda option: -option.saving))
    if not any(options_by_part):
        raise ValueError(f"No part has a format that is cheaper than its own: there is nothing to search.{refused}")
    return options_by_part


#: The outcomes of a policy in a search.
REFERENCE, INSIDE, OUTSIDE, OPEN = "reference", "within", "not within", "inconclusive"
FAR, DIVERGED, REFUSED = "far", "diverged", "refused"


class SearchPoint(NamedTuple):
    """A policy that a search tried: its cost, and the ratio of its loss to the reference's, seed by seed.

    Parameters:
        label: the changes of the start, as text.
        policy: the policy.
        cost: its cost.
        ratio: the geometric mean of the ratios.
        low, high: the 95 % interval of the ratio; from 0 to infinity for a single seed, which is enough if the loss is
            far from the reference.
        seeds: the number of seeds.
        outcome: "reference", "within", "not within", "inconclusive", "far", "diverged" or "refused".
        refused: the message of the ValueError if the policy is impossible for the training.
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
    """The ratio of the winner on seeds that the search did not use.

    Parameters:
        ratio: the geometric mean of the ratios.
        low, high: the interval of the ratio.
        seeds: the seeds.
    """

    ratio: float
    low: float
    high: float
    seeds: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Search:
    """The result of `simfloat.search`; it prints as a table of all points with the answer.

    Parameters:
        policy: the cheapest policy that was found and confirmed.
        label: the differences between this policy and the start, as text.
        reference: the name of the reference.
        within: the allowed share of additional loss.
        cost, reference_cost: the costs of the policy and of the reference.
        confirmation: the ratio of the policy on fresh seeds.
        points: all policies that were tried, in order.
        trainings: the number of trainings.
        combinations: the number of all possible policies.
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
        """The Pareto front, cheapest first: each point has a lower loss than all cheaper ones."""
        finite_points = sorted((p for p in self.points if math.isfinite(p.ratio)), key=lambda p: (p.cost, p.ratio))
        best: list[SearchPoint] = []
        for point in finite_points:
            if not best or point.ratio < best[-1].ratio:
                best.append(point)
        return tuple(best)

    def table(self) -> Table:
        """Return all points by cost, with the ratio of the loss, its interval, the number of seeds and the outcome."""
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
        """The result in two sentences, and the reasons for refused policies, each once."""
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
