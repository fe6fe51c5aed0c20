"""Accuracy against cost: labelled points and their Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.checks import as_rectangular_array
from simfloat.plots.curves import make_logarithmic, plain_label
from simfloat.plots.figure import check_drawable, label_axes
from simfloat.plots.labels import Line, draw_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOR, FRONT = "#0072b2", "#999999"


class Point(NamedTuple):
    """A point: its label, what it costs, and its values (seeds,), or a single one."""

    label: str
    cost: float
    values: ArrayLike


def draw_trade_off(
    axes: Axes,
    points: Sequence[Point],
    *,
    higher_is_better: bool = True,
    log: bool = False,
    xlabel: str = "bytes per weight",
    ylabel: str = "accuracy",
    title: str = "",
) -> None:
    """Draw points of accuracy against memory, or of any value against any cost, each with its label beside it.

    A point stands at the mean of its values, with a line from the least to the greatest. Points that no other one beats
    in both are filled and joined by a line of steps; the rest are hollow. With `log` the costs have a logarithmic axis.

    Raises ValueError for what is no list of points, without any, for numbers that are not finite, and with
    `log` for costs that are not positive.
    """
    if isinstance(points, Point) or not all(isinstance(point, Point) for point in points):
        raise ValueError(f"Points come as a list of simfloat.plots.Point, got {points!r}.")
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
    means = np.array([np.clip(each.mean(), each.min(), each.max()) for each in values])  # however it is rounded
    best = unbeaten(costs, means if higher_is_better else -means)
    _draw_front(axes, costs[best], means[best])
    for cost, mean, each, filled in zip(costs, means, values, best, strict=True):
        axes.plot([cost, cost], [each.min(), each.max()], color=COLOR, linewidth=0.8)
        face, level = (COLOR, 4) if filled else ("white", 3)
        axes.plot(cost, mean, "o", color=COLOR, markersize=4.5, markerfacecolor=face, zorder=level)
    axes.margins(0.22, 0.12)  # room for labels
    if log:
        make_logarithmic(axes, "x")
    label_axes(axes, xlabel=xlabel, ylabel=ylabel, title=plain_label(title))
    spreads = [((cost, each.min()), (cost, each.max())) for cost, each in zip(costs, values, strict=True)]
    steps = _front_lines(costs[best], means[best])
    draw_labels(axes, costs, means, [plain_label(point.label) for point in points], [*spreads, *steps])


def unbeaten(costs: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell for each point whether no other one is at least as good in cost and value, and better in one of them."""
    cheaper, better = costs[:, None] <= costs, values[:, None] >= values
    strictly = (costs[:, None] < costs) | (values[:, None] > values)
    beaten = np.any(cheaper & better & strictly, axis=0)
    return np.logical_not(beaten)


def _draw_front(axes: Axes, costs: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    for (x0, y0), (x1, y1) in _front_lines(costs, values):
        axes.plot([x0, x1], [y0, y1], color=FRONT, linewidth=0.8, zorder=1)


def _front_lines(costs: NDArray[np.float64], values: NDArray[np.float64]) -> list[Line]:
    """The lines of the steps from each of these points to the next."""
    order = np.argsort(costs)
    points = [*zip(costs[order], values[order], strict=True)]
    steps = [((here[0], here[1]), (there[0], here[1]), there) for here, there in pairwise(points)]
    return [line for start, corner, end in steps for line in ((start, corner), (corner, end))]
