"""Draw the policies that were tried for each problem, and the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import simfloat as sf
from experiments.cheapest_policy.jobs import USUAL
from experiments.experiment import drawn_as
from simfloat.plots import FULL_WIDTH, draw_front, new_figure, save_figure
from simfloat.plots.trade_offs import front_finding
from simfloat.studies import Confirmation, Result, Search, SearchPoint

#: The cost of a policy, as the experiment counts it.
COST = "cost (bits of one value in each part of the policy, added)"


@drawn_as("fronts.png")
def draw_fronts(results: list[Result], path: Path) -> None:
    """Draw cost and loss of all policies that the search tried, in a panel for each problem."""
    first = {result["problem"]: result for result in reversed(results)}
    figure, axes = new_figure(rows=len(first), columns=1, width=FULL_WIDTH, height=2.4 * len(first))
    panels = np.atleast_1d(axes)
    for panel, problem in zip(panels, reversed(first), strict=True):
        found = search_in(first[problem])
        draw_front(panel, found, title=f"{problem}: {front_finding(found)}")
        panel.set_xlabel("")
    panels[-1].set_xlabel(COST)
    save_figure(figure, path)


def search_in(result: Result) -> Search:
    """Return the result of a search from the plain values that were stored."""
    answer, reference = sf.Policy.from_toml(result["answer_policy"]), sf.policies[USUAL[0]]
    points = tuple(SearchPoint(policy=answer, **point) for point in result["points"])
    confirmed = Confirmation(**{**result["confirmation"], "seeds": tuple(result["confirmation"]["seeds"])})
    return Search(
        policy=answer, label=result["label"], reference=str(reference.name), within=result["within"],
        cost=result["answer_cost"], reference_cost=points[0].cost, confirmation=confirmed, points=points,
        trainings=result["trainings"], combinations=result["combinations"],
    )  # fmt: skip
