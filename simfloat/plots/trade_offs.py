"""Draw values over costs: the result of a search with its front, and any labelled points with theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.common import as_rectangular_array
from simfloat.plots.curves import make_logarithmic, plain_label, title_or
from simfloat.plots.figure import (
    COLUMN_WIDTH,
    GREY,
    Line,
    background,
    check_drawable,
    draw_labels,
    foreground,
    label_axes,
    new_figure,
    project_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FRONT_COLOR, OTHERS, ANSWER = "#0072b2", "#999999", "#d55e00"

#: The shade behind acceptable losses, and its name.
ACCEPTED = "#009e73"

#: The largest difference of losses that is drawn, as a multiple of the accepted one. Larger ones are arrows there.
REACH = 4.0


def front(search: Any, *, width: float = COLUMN_WIDTH, height: float = 2.8, title: str | None = None) -> Figure:
    """Return a figure of the result of a search, as drawn by `draw_front`.

    Parameters:
        search: the result of `simfloat.search`.
        width, height: the size of the figure in inches.
        title: the title; by default the cost and the loss of the answer.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if `search` is not such a result.
    """
    figure, axes = new_figure(rows=1, columns=1, width=width, height=height)
    draw_front(axes, search, title=title)
    return figure


@project_style()
def draw_front(axes: Axes, search: Any, *, title: str | None = None) -> None:
    """Draw the loss of every policy that a search tried over its cost, relative to the loss of the reference.

    Points of the front are filled and joined by steps, each with its 95 % interval; other points are hollow. The
    answer is a diamond at its loss on fresh seeds, with the interval there; its changes are written next to it.
    Accepted losses are shaded. Losses that are much larger, or infinite, are drawn as arrows at the upper edge.

    Parameters:
        axes: matplotlib's axes.
        search: the result of `simfloat.search`.
        title: the title; by default the cost and the loss of the answer.

    Raises:
        ValueError: if `search` is not such a result.
    """
    points = getattr(search, "points", None)
    if not points or not hasattr(search, "confirmation"):
        raise ValueError(f"draw_front takes a result of simfloat.search, got a {type(search).__name__}.")
    best = search.front
    confirmation, top = search.confirmation, 100 * search.within * REACH
    ends = [confirmation.low, *(point.low for point in best if point.seeds > 1), *(point.ratio for point in best)]
    low = max(-top, min(0.0, *(100 * (end - 1) for end in ends)))
    axes.axhspan(-2 * top, 100 * search.within, color=ACCEPTED, alpha=0.15, linewidth=0)
    axes.axhline(0, color=foreground(), linewidth=0.6)
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
    reach = [[max(0.0, place - lower)], [max(0.0, upper - place)]]  # a rounded mean may exceed an end
    axes.errorbar(
        [search.cost], [place], reach, fmt="D", color=ANSWER, markersize=5, linewidth=1.2,
        zorder=5,
    )  # fmt: skip
    axes.set_ylim(low - 0.1 * top, 1.08 * top)
    axes.margins(x=0.08)
    axes.annotate(
        f"within {100 * search.within:g} %", (1, 100 * search.within), (-2, 2), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="right", va="bottom", fontsize="small", color=ACCEPTED,
    )  # fmt: skip
    _name_policies(axes, search, place)
    label_axes(
        axes, xlabel="cost", ylabel=f"loss above that of {plain_label(search.reference)} (%)",
        title=title_or(title, lambda: front_finding(search)),
    )  # fmt: skip


def front_finding(search: Any) -> str:
    """Return the cost of the answer and its loss on fresh seeds, relative to the reference."""
    if search.label == search.reference:
        return f"No cheaper policy than {plain_label(search.reference)} was accepted"
    excess = 100 * (search.confirmation.ratio - 1)
    return f"Cost {search.cost:g} instead of {search.reference_cost:g}, loss {excess:+.1f} %"


def _draw_point(axes: Axes, point: Any, top: float, color: str, *, hollow: bool) -> None:
    """Draw a point with its interval, or an arrow at the upper edge."""
    place = 100 * (point.ratio - 1)
    if not place <= top:
        axes.plot(point.cost, top, "^", color=color, markersize=4, markerfacecolor="none", zorder=3)
        return
    if not hollow and point.seeds > 1 and math.isfinite(point.high):
        axes.plot(
            [point.cost] * 2, [100 * (point.low - 1), 100 * (point.high - 1)], color=color, linewidth=0.8, zorder=3
        )
    axes.plot(
        point.cost,
        place,
        "o",
        color=color,
        markersize=4.5,
        markerfacecolor=background(axes) if hollow else color,
        zorder=4,
    )


def _name_policies(axes: Axes, search: Any, place: float) -> None:
    """Write the changes of the answer and the name of the reference."""
    costs = np.array([point.cost for point in search.points])
    is_left = search.cost <= (costs.min() + costs.max()) / 2
    changes = plain_label(search.label).replace(", ", "\n")
    axes.annotate(
        changes, (search.cost, place), (7 if is_left else -7, 8), textcoords="offset points", fontsize="small",
        ha="left" if is_left else "right", va="bottom", color=ANSWER,
    )  # fmt: skip
    if search.label != search.reference:
        axes.annotate(
            plain_label(search.reference), (search.reference_cost, 0), (0, 5), textcoords="offset points",
            fontsize="small", ha="center",
        )  # fmt: skip


COLOR = "#0072b2"


class Point(NamedTuple):
    """A labelled point of a trade-off.

    Parameters:
        label: the text next to the point: a string, a number or a format.
        cost: a finite number, the place on the x axis.
        values: array (seeds) of finite values, or a single one.
    """

    label: str
    cost: float
    values: ArrayLike


@project_style()
def draw_trade_off(
    axes: Axes,
    points: Sequence[Point],
    *,
    higher_is_better: bool = True,
    log: bool = False,
    xlabel: str = "bytes per weight",
    ylabel: str = "accuracy",
    title: str | None = None,
) -> None:
    """Draw labelled points of a value over a cost, such as accuracy over memory, with their Pareto front.

    A point is drawn at the mean of its values, with a line from the smallest to the largest. Points of the Pareto front
    are filled and joined by steps: no other point is at least as good in both respects and better in one. The rest are
    hollow.

    Parameters:
        axes: matplotlib's axes.
        points: a list of `Point`.
        higher_is_better: True (the default) if large values are good, as for accuracies; False for losses.
        log: True for a logarithmic axis of costs.
        xlabel, ylabel: labels of the axes.
        title: the title; by default the labels of the Pareto front.

    Raises:
        ValueError: if `points` is not a list of points, or empty; if a cost or value is not finite; if `log` is True
            and a cost is not positive.
    """
    if isinstance(points, Point) or not all(isinstance(point, Point) for point in points):
        raise ValueError(f"points must be a list of simfloat.plots.Point, got {points!r}.")
    if not points:
        raise ValueError("draw_trade_off takes a list of points, got none.")
    costs = np.array([point.cost for point in points], np.float64)
    values = [np.atleast_1d(as_rectangular_array(point.values, "values of a point", np.float64)) for point in points]
    for point, cost, each in zip(points, costs, values, strict=True):
        if not np.isfinite(cost) or not each.size or not np.isfinite(each).all():
            raise ValueError(f"Costs and values must be finite numbers; those of {point.label!r} are not.")
        check_drawable(point.label, cost, each)
        if log and cost <= 0:
            raise ValueError(f"Costs must be positive on a logarithmic axis; {point.label!r} costs {point.cost!r}.")
    means = np.array(
        [np.clip(each.mean(), each.min(), each.max()) for each in values]
    )  # whatever the rounding of the mean
    best = unbeaten(costs, means if higher_is_better else -means)
    _draw_front(axes, costs[best], means[best])
    for cost, mean, each, filled in zip(costs, means, values, best, strict=True):
        axes.plot([cost, cost], [each.min(), each.max()], color=COLOR, linewidth=0.8)
        face, level = (COLOR, 4) if filled else (background(axes), 3)
        axes.plot(cost, mean, "o", color=COLOR, markersize=4.5, markerfacecolor=face, zorder=level)
    axes.margins(0.22, 0.12)  # room for labels
    if log:
        make_logarithmic(axes, "x")
    label_axes(axes, xlabel=xlabel, ylabel=ylabel, title=title_or(title, lambda: pareto_finding(points, best)))
    spreads = [((cost, each.min()), (cost, each.max())) for cost, each in zip(costs, values, strict=True)]
    steps = _front_lines(costs[best], means[best])
    draw_labels(axes, costs, means, [plain_label(point.label) for point in points], [*spreads, *steps])


def pareto_finding(points: Sequence[Point], best: NDArray[np.bool_]) -> str:
    """Return the labels of the Pareto front, or their number if there are many."""
    labels = [plain_label(point.label).strip() for point, is_best in zip(points, best, strict=True) if is_best]
    if len(labels) > 3:
        return f"Pareto front: {len(labels)} of {len(points)} points"
    return f"Pareto front: {', '.join(labels)}"


def unbeaten(costs: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return True for each point of the Pareto front.

    Such a point has no rival that is at least as good in cost and value, and better in one of them.
    """
    cheaper, better = costs[:, None] <= costs, values[:, None] >= values
    strictly = (costs[:, None] < costs) | (values[:, None] > values)
    beaten = np.any(cheaper & better & strictly, axis=0)
    return np.logical_not(beaten)


def _draw_front(axes: Axes, costs: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    """Join the points of the Pareto front by steps."""
    for (x0, y0), (x1, y1) in _front_lines(costs, values):
        axes.plot([x0, x1], [y0, y1], color=GREY, linewidth=0.8, zorder=1)


def _front_lines(costs: NDArray[np.float64], values: NDArray[np.float64]) -> list[Line]:
    """Return the horizontal and vertical lines from each of these points to the next."""
    order = np.argsort(costs)
    points = [*zip(costs[order], values[order], strict=True)]
    steps = [((here[0], here[1]), (there[0], here[1]), there) for here, there in pairwise(points)]
    return [line for start, corner, end in steps for line in ((start, corner), (corner, end))]
