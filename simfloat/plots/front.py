"""The result of a search: the loss of every policy beside its cost, and the front."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from simfloat.plots.curves import plain_label
from simfloat.plots.figure import COLUMN_WIDTH, SMALL, label_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FRONT_COLOR, OTHERS, ANSWER = "#0072b2", "#999999", "#d55e00"

#: Losses are drawn up to so many times as far from the reference's as they may be; what lies beyond is an arrow there.
REACH = 4.0


def front(search: Any, *, width: float = COLUMN_WIDTH, height: float = 2.8, title: str = "") -> Figure:
    """The figure of what `simfloat.search` found, of so many inches; `draw_front` says what it shows."""
    figure, axes = new_figure(rows=1, columns=1, width=width, height=height)
    draw_front(axes, search, title=title)
    return figure


def draw_front(axes: Axes, search: Any, *, title: str = "") -> None:
    """Draw the loss of every policy that a search tried, relative to the reference's, beside its cost.

    The front is filled and joined by steps, each of its points with its 95 % interval; others are hollow. The answer is
    a diamond, at its ratio on fresh seeds, with that interval, and its changes beside it. What lies inside the share is
    shaded; losses far beyond it, infinite ones among them, are arrows at the upper edge.

    Raises ValueError for what is no `Search`.
    """
    points = getattr(search, "points", None)
    if not points or not hasattr(search, "confirmation"):
        raise ValueError(f"draw_front takes what simfloat.search gives, got a {type(search).__name__}.")
    best = search.front
    confirmation, top = search.confirmation, 100 * search.within * REACH
    ends = [confirmation.low, *(point.low for point in best if point.seeds > 1), *(point.ratio for point in best)]
    low = max(-top, min(0.0, *(100 * (end - 1) for end in ends)))
    axes.axhspan(-2 * top, 100 * search.within, color="#009e73", alpha=0.12, linewidth=0)
    axes.axhline(0, color="black", linewidth=0.6)
    for point in points:
        if point not in best:
            _draw_point(axes, point, top, OTHERS, hollow=True)
    shown = [point for point in best if 100 * (point.ratio - 1) <= top]
    axes.step(
        [point.cost for point in shown], [100 * (point.ratio - 1) for point in shown], where="post", color=FRONT_COLOR,
        linewidth=0.8, zorder=2,
    )  # fmt: skip
    for point in best:
        _draw_point(axes, point, top, FRONT_COLOR, hollow=False)
    place, lower, upper = (100 * (ratio - 1) for ratio in (confirmation.ratio, confirmation.low, confirmation.high))
    reach = [[max(0.0, place - lower)], [max(0.0, upper - place)]]  # a rounded mean may pass an end
    axes.errorbar(
        [search.cost], [place], reach, fmt="D", color=ANSWER, markersize=5, linewidth=1.2,
        zorder=5,
    )  # fmt: skip
    axes.set_ylim(low - 0.1 * top, 1.08 * top)
    axes.margins(x=0.08)
    axes.annotate(
        f"within {100 * search.within:g} %", (1, 100 * search.within), (-2, 2), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="right", va="bottom", fontsize=SMALL, color="#00664b",
    )  # fmt: skip
    _name_policies(axes, search, place)
    label_axes(
        axes, xlabel="cost", ylabel=f"loss over {plain_label(search.reference)}'s, percent", title=plain_label(title)
    )


def _draw_point(axes: Axes, point: Any, top: float, color: str, *, hollow: bool) -> None:
    """A point with its interval, or an arrow at the upper edge."""
    place = 100 * (point.ratio - 1)
    if not place <= top:
        axes.plot(point.cost, top, "^", color=color, markersize=4, markerfacecolor="none", zorder=3)
        return
    if not hollow and point.seeds > 1 and math.isfinite(point.high):
        axes.plot(
            [point.cost] * 2, [100 * (point.low - 1), 100 * (point.high - 1)], color=color, linewidth=0.8, zorder=3
        )
    axes.plot(
        point.cost, place, "o", color=color, markersize=4.5, markerfacecolor="white" if hollow else color, zorder=4
    )


def _name_policies(axes: Axes, search: Any, place: float) -> None:
    """The answer and the reference by their names."""
    costs = np.array([point.cost for point in search.points])
    is_left = search.cost <= (costs.min() + costs.max()) / 2
    changes = plain_label(search.label).replace(", ", "\n")
    axes.annotate(
        changes, (search.cost, place), (7 if is_left else -7, 8), textcoords="offset points", fontsize=SMALL,
        ha="left" if is_left else "right", va="bottom", color=ANSWER,
    )  # fmt: skip
    if search.label != search.reference:
        axes.annotate(
            plain_label(search.reference), (search.reference_cost, 0), (0, 5), textcoords="offset points", fontsize=SMALL,
            ha="center",
        )  # fmt: skip
