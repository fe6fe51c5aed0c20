"""Figures of errors and costs: of sums, of policies, of an attribution, of a search, and of a trade-off.

Errors of sums stand against their length, with the bounds of theory. The errors of a model's loss and gradient have a
line for each policy, and the costs that an attribution found have bars. The result of a search is the loss of every
policy beside its cost, with the front; a trade-off is accuracy against cost, with the Pareto front of labelled points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.analysis.attribution.measure import Attribution
from simfloat.analysis.attribution.policy_comparison import PolicyComparison
from simfloat.common import as_rectangular_array
from simfloat.environment import in_usual_environment
from simfloat.plots.curves import (
    Curve,
    add_curve_legend,
    assign_styles,
    check_curves,
    draw_band,
    make_logarithmic,
    plain_label,
)
from simfloat.plots.figure import COLUMN_WIDTH, SMALL, Line, check_drawable, draw_labels, label_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Points of a bound's line.
POINTS = 200


def draw_errors(
    axes: Axes,
    curves: Sequence[Curve],
    *,
    unit_roundoff: float | None = None,
    factor: float = 1.0,
    xlabel: str = "length",
    ylabel: str = "relative error",
    title: str = "",
) -> None:
    """Draw errors against lengths, both axes logarithmic: the mean over samples, and a band from the least to the most.

        figure, axes = sf.plots.new_figure(1, 1, sf.plots.COLUMN_WIDTH, 2.4)
        sf.plots.draw_errors(axes, [sf.plots.Curve("FP16", lengths, errors)], unit_roundoff=sf.FP16.unit_roundoff)

    Values of a curve are errors (samples, lengths). An error of zero counts in the mean, and has no place of its own on
    the axis. Given a unit roundoff, `deterministic_bound` and `probabilistic_bound` are drawn as far as they are below
    1; they bound the error relative to the sum of the absolute values of the terms. Styles and the legend are those of
    `draw_curves`; bounds have their names in it.

    Raises ValueError without curves, for a length or an error that is negative, and where `draw_curves` and the bounds
    do.
    """
    from matplotlib.ticker import NullLocator

    check_curves(curves)
    if not curves:
        raise ValueError("draw_errors takes a list of curves, got none.")
    for number, curve in enumerate(assign_styles(curves)):
        x = as_rectangular_array(curve.x, "x of a curve", np.float64)
        values = np.atleast_2d(as_rectangular_array(curve.values, "values of a curve", np.float64))
        if not (np.isfinite(x) & (x > 0)).all() or (values < 0).any():
            raise ValueError(f"Lengths are positive and errors not negative; those of {curve.label!r} are not.")
        mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
        middle, low, high = np.where(mean > 0, [mean, low, high], np.nan)
        draw_band(axes, curve, middle, low, high, (number, len(curves)))
    if unit_roundoff is not None:
        _draw_bounds(axes, curves, unit_roundoff, factor)
    for name in ("x", "y"):
        make_logarithmic(axes, name)
    axes.xaxis.set_minor_locator(NullLocator())
    label_axes(axes, xlabel=xlabel, ylabel=ylabel, title=plain_label(title))
    add_curve_legend(axes, curves, bounds=unit_roundoff is not None)


def _draw_bounds(axes: Axes, curves: Sequence[Curve], unit_roundoff: float, factor: float) -> None:
    """Both bounds, over the lengths of all curves."""
    ends = [end for curve in curves for end in (float(np.min(curve.x)), float(np.max(curve.x)))]
    n = np.geomspace(min(ends), max(ends), POINTS)
    times = "" if factor == 1 else f"{factor:g}"
    for values, dashes, label in (
        (deterministic_bound(n, unit_roundoff), "--", "bound $nu$"),
        (probabilistic_bound(n, unit_roundoff, factor), ":", f"likely bound ${times}\\sqrt{{n}}u$"),
    ):
        axes.plot(n, _below_one(values), color="#444444", linestyle=dashes, linewidth=1, label=label)


def _below_one(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A bound where it says something."""
    return np.where(values < 1, values, np.nan)


@in_usual_environment
def deterministic_bound(lengths: ArrayLike, unit_roundoff: float) -> NDArray[np.float64]:
    """gamma_n = n u / (1 - n u), which no error of n roundings exceeds; infinite where n u is 1 or more.

    The error of a dot product of n terms, added one after the other, is at most gamma_n sum |a_i b_i| (Higham, Accuracy
    and Stability of Numerical Algorithms, 2002, section 3.1). Under stochastic and directed rounding u counts twice.

    Raises ValueError for lengths that are negative, and for a unit roundoff that does not lie between 0 and 1.
    """
    n, u = _check_bound_arguments(lengths, unit_roundoff)
    return np.where(n * u < 1, n * u / np.where(n * u < 1, 1 - n * u, 1.0), np.inf)


@in_usual_environment
def probabilistic_bound(lengths: ArrayLike, unit_roundoff: float, factor: float = 1.0) -> NDArray[np.float64]:
    """exp((factor sqrt(n) u + n u^2) / (1 - u)) - 1, about factor sqrt(n) u; likelier to hold for larger factors.

    It takes rounding errors as mean independent with mean zero, which those of stochastic rounding are, with u counted
    twice, and those of rounding to nearest often resemble; not where a sum stagnates (Connolly, Higham and Mary, SIAM
    J. Sci. Comput. 43, 2021).

    Raises ValueError where `deterministic_bound` does, and for a factor that is not positive.
    """
    n, u = _check_bound_arguments(lengths, unit_roundoff)
    if isinstance(factor, bool) or not isinstance(factor, int | float | np.number) or not 0 < factor < math.inf:
        raise ValueError(f"factor must be a positive number, got {factor!r}.")
    with np.errstate(over="ignore"):
        return np.expm1((factor * np.sqrt(n) * u + n * u * u) / (1 - u))


def _check_bound_arguments(lengths: ArrayLike, unit_roundoff: float) -> tuple[NDArray[np.float64], float]:
    n = as_rectangular_array(lengths, "lengths", np.float64)
    if not (n >= 0).all():
        raise ValueError(f"Lengths must be zero or more, got {lengths!r}.")
    if not isinstance(unit_roundoff, float | np.floating) or not 0 < unit_roundoff < 1:
        raise ValueError(
            f"unit_roundoff must be a number between 0 and 1, such as simfloat.FP16.unit_roundoff, got "
            f"{unit_roundoff!r}."
        )
    return n, float(unit_roundoff)


GRADIENT, LOSS = "#0072b2", "#d55e00"


def draw_comparison(axes: Axes, comparison: PolicyComparison, *, title: str = "") -> None:
    """Draw the relative errors that `simfloat.compare` found, the least error of the gradient above.

    Errors of gradients are filled dots, those of losses hollow diamonds, on a logarithmic axis; an error of zero is at
    its left edge, and one that is not finite an arrow at its right. Policies that were refused are left out. About 0.2
    inches of height are needed for a policy; `fit_figure` makes room for long names.

    Raises ValueError for what is no comparison, and for one without errors.
    """
    if not isinstance(comparison, PolicyComparison):
        raise ValueError(f"draw_comparison takes what simfloat.compare gives, got a {type(comparison).__name__}.")
    rows = sorted((row for row in comparison.rows if not row.refused), key=lambda row: row.gradient_error)
    errors = [error for row in rows for error in (row.loss_error, row.gradient_error) if 0 < error < math.inf]
    if not errors:
        raise ValueError("No policy has an error that is finite and not zero: there is nothing to draw.")
    least, greatest = min(errors) / 4, max(errors) * 4
    kinds = (("gradient", GRADIENT, "o", "gradient_error", GRADIENT), ("loss", LOSS, "D", "loss_error", "none"))
    for name, color, marker, field, face in kinds:
        for place, row in enumerate(rows):
            error = getattr(row, field)
            axes.plot(
                min(max(error, least), greatest), -place, marker=marker if error < math.inf else ">", color=color,
                markerfacecolor=face, markersize=4.5, linestyle="none", label=name if place == 0 else None,
                clip_on=False, zorder=3,
            )  # fmt: skip
    axes.set(xlim=(least, greatest), ylim=(0.6 - len(rows), 0.6))
    axes.set_yticks([-place for place in range(len(rows))], [plain_label(row.policy) for row in rows])
    make_logarithmic(axes, "x")
    label_axes(
        axes, xlabel=f"error relative to {plain_label(comparison.reference)}", ylabel="", title=plain_label(title)
    )
    axes.legend(fontsize=SMALL, frameon=False, loc="upper right")


COST_COLOR = "#0072b2"

#: A bar's height, and how far above its middle its name begins; bars are 1 apart.
THICKNESS, ABOVE = 0.3, 0.2

#: Bars begin so much below the smallest of them.
BELOW = 4


def draw_attribution(axes: Axes, attribution: Attribution, *, most: int = 10, title: str = "") -> None:
    """Draw the largest costs that `simfloat.attribute` found as bars on a logarithmic axis, each below its name.

    A dashed line stands at the error under the whole policy. An infinite cost reaches over all others and says so;
    costs of zero are left out. About 0.22 inches of height are needed for a bar.

    Raises ValueError for what is no attribution, one without costs, and a `most` that is below 1.
    """
    if not isinstance(attribution, Attribution):
        raise ValueError(f"draw_attribution takes what simfloat.attribute gives, got a {type(attribution).__name__}.")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"most is how many costs are drawn, 1 or more, got {most!r}.")
    costs = [cost for cost in attribution.costs if cost.error > 0][:most]
    if not costs:
        raise ValueError("No part of the policy costs the gradient anything: there is nothing to draw.")
    finite = [error for error in (attribution.total, *(cost.error for cost in costs)) if 0 < error < np.inf] or [1.0]
    least, greatest = min(finite) / BELOW, max(finite) * BELOW
    for row, cost in enumerate(costs):
        is_finite = np.isfinite(cost.error)
        width = (cost.error if is_finite else greatest) - least
        axes.barh(
            -row, width, THICKNESS, left=least, color=COST_COLOR, hatch="" if is_finite else "////", edgecolor="white"
        )
        name = " · ".join(getattr(cost, field) or "-" for field in attribution.by)
        text = plain_label(name) + ("" if is_finite else "  (infinite)")
        axes.annotate(
            text, (least, -row + ABOVE), (2, 0), textcoords="offset points", fontsize=SMALL, va="bottom", zorder=4
        )
    if 0 < attribution.total < np.inf:
        axes.axvline(attribution.total, color="black", linestyle="--", linewidth=0.8, zorder=3)
        axes.annotate(
            "whole policy", (attribution.total, 0.6 - len(costs)), (2, 0), textcoords="offset points", rotation=90,
            fontsize=SMALL, va="bottom",
        )  # fmt: skip
    axes.set(xlim=(least, greatest), ylim=(0.5 - len(costs), 0.9), yticks=[])
    make_logarithmic(axes, "x")
    label_axes(axes, xlabel="relative error of the gradient", ylabel="", title=plain_label(title))
    axes.spines["left"].set_visible(False)


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
            plain_label(search.reference), (search.reference_cost, 0), (0, 5), textcoords="offset points",
            fontsize=SMALL, ha="center",
        )  # fmt: skip


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
