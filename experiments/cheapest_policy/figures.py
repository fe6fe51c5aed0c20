"""The figure: the policies that were tried for each problem, and the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import simfloat as sf
from experiments.cheapest_policy.jobs import USUAL
from experiments.experiment import drawn_as
from simfloat.plots import FULL_WIDTH, draw_front, new_figure, save_figure
from simfloat.studies import Confirmation, Result, Search, SearchPoint


@drawn_as("fronts.png")
def draw_fronts(results: list[Result], path: Path) -> None:
    """Draw a panel for each problem: cost and loss of all policies that the search tried."""
    first = {result["problem"]: result for result in reversed(results)}
    figure, axes = new_figure(rows=len(first), columns=1, width=FULL_WIDTH, height=2.4 * len(first))
    panels = np.atleast_1d(axes)
    for panel, problem in zip(panels, reversed(first), strict=True):
        draw_front(panel, search_in(first[problem]), title=problem)
    for panel in panels[:-1]:
        panel.set_xlabel("")  # all panels share the label of the last one; its space is needed for titles
    save_figure(figure, path)


def search_in(result: Result) -> Search:
    """Return the result of a search from the stored plain values."""
    answer, reference = sf.Policy.from_toml(result["answer_policy"]), sf.policies[USUAL[0]]
    points = tuple(SearchPoint(policy=answer, **point) for point in result["points"])
    confirmed = Confirmation(**{**result["confirmation"], "seeds": tuple(result["confirmation"]["seeds"])})
    return Search(
        policy=answer, label=result["label"], reference=str(reference.name), within=result["within"],
        cost=result["answer_cost"], reference_cost=points[0].cost, confirmation=confirmed, points=points,
        trainings=result["trainings"], combinations=result["combinations"],
    )  # fmt: skip
