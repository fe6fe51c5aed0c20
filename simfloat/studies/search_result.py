"""The result of a search: its points, their front, the winner and its confirmation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from simfloat.policy import Policy
from simfloat.table import Table, table

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
