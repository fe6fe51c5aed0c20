"""Draw errors of sums over their length, errors of policies, and the costs that an attribution found.

Errors of sums are drawn with the bounds of theory. A comparison has a row of points for each policy. An attribution has
a bar for each cost.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.analysis import theory
from simfloat.analysis.attribution.measure import Attribution
from simfloat.analysis.attribution.policy_comparison import PolicyComparison
from simfloat.analysis.theory.sum_errors import Data
from simfloat.common import as_rectangular_array
from simfloat.formats.catalog import FormatLike
from simfloat.plots.curves import (
    Curve,
    add_curve_legend,
    assign_styles,
    check_curves,
    draw_band,
    make_logarithmic,
    number_text,
    plain_label,
    title_or,
)
from simfloat.plots.figure import background, foreground, label_axes, project_style
from simfloat.sums import Accumulator
from simfloat.sums.sequential import as_accumulator

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Number of points on the line of a bound.
POINTS = 200

#: Characters in a line of a legend.
LEGEND_WIDTH = 30

#: The distance of a legend from lines and bands, and the largest part of the height that it may need, as shares of the
#: axes.
MARGIN, MOST_OF_AXES = 0.05, 0.6


@project_style()
def draw_errors(
    axes: Axes,
    curves: Sequence[Curve],
    *,
    unit_roundoff: float | None = None,
    factor: float = 1.0,
    xlabel: str = "length",
    ylabel: str = "relative error",
    title: str | None = None,
) -> None:
    """Draw errors over lengths on logarithmic axes: the mean over samples, and a band from the smallest to the
    largest::

        figure, axes = sf.plots.new_figure(1, 1, sf.plots.COLUMN_WIDTH, 2.4)
        sf.plots.draw_errors(axes, [sf.plots.Curve("FP16", lengths, errors)], unit_roundoff=sf.FP16.unit_roundoff)

    An error of zero counts in the mean, but has no place on a logarithmic axis. Bounds are drawn as far as they are
    below 1; they bound the error relative to the sum of the absolute values of the terms. The axes have a legend under
    the same conditions as in `draw_curves`; it also names the bounds.

    Parameters:
        axes: matplotlib's axes.
        curves: a list of `Curve`; x are lengths, values are errors (samples, lengths).
        unit_roundoff: if given, `deterministic_bound` and `probabilistic_bound` are drawn for it.
        factor: the factor of the probabilistic bound.
        xlabel, ylabel: labels of the axes.
        title: the title; by default the largest mean error.

    Raises:
        ValueError: if there are no curves; if a length is not positive or an error is negative; as in `draw_curves`,
            `deterministic_bound` and `probabilistic_bound`.
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
    label_axes(axes, xlabel=xlabel, ylabel=ylabel, title=title_or(title, lambda: _largest_error(curves, xlabel)))
    add_curve_legend(axes, curves, bounds=unit_roundoff is not None)
    if axes.get_legend() is not None:
        _clear_legend(axes)


def _largest_error(curves: Sequence[Curve], xlabel: str) -> str:
    """Return which curve has the largest mean error, and where."""
    means = [(np.atleast_2d(np.asarray(curve.values, np.float64)).mean(axis=0), curve) for curve in curves]
    errors = [(error, curve.label, n) for mean, curve in means for error, n in zip(mean, curve.x, strict=True)]
    finite = [each for each in errors if math.isfinite(each[0])]
    if not finite:
        return ""
    error, label, n = max(finite, key=lambda each: each[0])
    place = f"{error:.2g} ({xlabel} {number_text(n)})"
    kind = "mean error" if any(np.ndim(curve.values) > 1 and len(curve.values) > 1 for curve in curves) else "error"
    return f"{plain_label(label)} has the largest {kind}: {place}" if len(curves) > 1 else f"Largest {kind}: {place}"


def _clear_legend(axes: Axes) -> None:
    """Move the legend to the corner with the most room, and extend the logarithmic y axis if this room is too small.

    Matplotlib's "best" place ignores bands.
    """
    # Matplotlib computes limits when they are read, but not when points are transformed.
    (bottom, top), _ = np.log(axes.get_ylim()), axes.get_xlim()
    legend: Any = axes.get_legend()
    frame = axes.get_window_extent()
    size = legend.get_window_extent(axes.figure.canvas.get_renderer())  # type: ignore[attr-defined]
    width, height = size.width / frame.width + MARGIN, min(size.height / frame.height + MARGIN, MOST_OF_AXES)
    points = _drawn_points(axes)
    is_beside = {"left": points[:, 0] <= width, "right": points[:, 0] >= 1 - width}
    rooms = []
    for side, beside in is_beside.items():
        y = points[beside, 1]
        rooms.append((1 - y.max(initial=0), f"upper {side}"))
        rooms.append((y.min(initial=1), f"lower {side}"))
    room, place = max(rooms)
    legend.set_loc(place)
    if room < height:
        longer = (top - bottom) * (1 - room) / (1 - height)
        ends = (bottom, bottom + longer) if place.startswith("upper") else (top - longer, top)
        axes.set_ylim(*np.exp(ends))


def _drawn_points(axes: Axes) -> NDArray[np.float64]:
    """Return points of all lines and bands (points, 2), as shares of the axes."""
    paths = [line.get_xydata() for line in axes.lines]
    paths += [path.vertices for band in axes.collections for path in band.get_paths()]
    to_axes, steps = axes.transScale + axes.transLimits, np.linspace(0, 1, POINTS)[:, np.newaxis, np.newaxis]
    points = [np.zeros((0, 2))]
    for path in paths:
        with np.errstate(all="ignore"):
            ends = np.asarray(to_axes.transform(np.asarray(path, np.float64)))
        ends = np.where(np.isfinite(ends), ends, np.nan)
        points += [ends, (ends[:-1] + steps * (ends[1:] - ends[:-1])).reshape(-1, 2)]
    every = np.concatenate(points)
    return every[np.isfinite(every).all(axis=1)]


def _draw_bounds(axes: Axes, curves: Sequence[Curve], unit_roundoff: float, factor: float) -> None:
    """Draw both bounds over the lengths of all curves."""
    ends = [end for curve in curves for end in (float(np.min(curve.x)), float(np.max(curve.x)))]
    n = np.geomspace(min(ends), max(ends), POINTS)
    times = "" if factor == 1 else f"{factor:g}"
    for values, dashes, label in (
        (deterministic_bound(n, unit_roundoff), "--", "bound $\\gamma_n$"),
        (probabilistic_bound(n, unit_roundoff, factor), ":", f"likely bound ${times}\\sqrt{{n}}u$"),
    ):
        axes.plot(n, _below_one(values), color=foreground(), linestyle=dashes, linewidth=1, label=label)


def _below_one(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a bound with gaps at values of 1 and more, which say nothing."""
    return np.where(values < 1, values, np.nan)


@project_style()
def draw_bound(
    axes: Axes,
    accumulate: Accumulator | FormatLike,
    lengths: Sequence[int] = (10, 30, 100, 300, 1000),
    *,
    inputs: FormatLike | None = None,
    samples: int = 20,
    data: Data = theory.uniform_operands,
    factor: float = 1.0,
    seed: int = 0,
    title: str | None = None,
) -> NDArray[np.float64]:
    """Measure the errors of dot products, and draw them with the bounds of theory for the order of the accumulator::

        figure, axes = sf.plots.new_figure(1, 1, sf.plots.COLUMN_WIDTH, 2.4)
        errors = sf.plots.draw_bound(axes, sf.pairwise(sf.FP16))

    Errors are drawn as in `draw_errors`. Bounds of 1 and more are left out.

    Parameters:
        axes: matplotlib's axes.
        accumulate: an accumulator with a bound (`simfloat.theory.count_roundings` lists them), or a format.
        lengths: numbers of terms.
        inputs, samples, data, seed: as in `simfloat.theory.measure_errors`.
        factor: the factor of the probable bound.
        title: the title; by default the largest mean error.

    Returns:
        The errors (samples, lengths), relative to the sum of the magnitudes of the terms.

    Raises:
        ValueError: as in `simfloat.theory.measure_errors` and `simfloat.theory.probable_error_bound`.
    """
    bounds = [
        ([theory.error_bound(accumulate, n) for n in lengths], "--", "bound"),
        ([theory.probable_error_bound(accumulate, n, factor=factor) for n in lengths], ":", "probable bound"),
    ]
    errors = theory.measure_errors(accumulate, lengths, inputs=inputs, samples=samples, data=data, seed=seed)
    name = textwrap.fill(str(as_accumulator(accumulate)), LEGEND_WIDTH)
    draw_errors(axes, [Curve(name, np.asarray(lengths), errors)], title=title)
    for values, dashes, label in bounds:
        line = _below_one(np.array(values))
        # A marker shows a bound that is below 1 at one length only.
        axes.plot(lengths, line, color=foreground(), linestyle=dashes, marker=".", linewidth=1, label=label)
    axes.legend(framealpha=0.8)
    _clear_legend(axes)
    return errors


def deterministic_bound(lengths: ArrayLike, unit_roundoff: float) -> NDArray[np.float64]:
    """Return the bound gamma_n = n u / (1 - n u) on the relative error of n roundings.

    The error of a dot product of n terms, added one after the other, is at most gamma_n sum |a_i b_i|. For stochastic
    and directed rounding, pass 2 u.

    Parameters:
        lengths: numbers of terms, 0 or more, in an array of any shape.
        unit_roundoff: u, between 0 and 1, such as `simfloat.FP16.unit_roundoff`.

    Returns:
        A float64 array of the shape of `lengths`; infinity if n u is 1 or more.

    Raises:
        ValueError: if a length is negative, or if `unit_roundoff` is not between 0 and 1.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1.
    """
    return theory.gamma(lengths, unit_roundoff)


def probabilistic_bound(lengths: ArrayLike, unit_roundoff: float, factor: float = 1.0) -> NDArray[np.float64]:
    """Return exp((factor sqrt(n) u + n u^2) / (1 - u)) - 1, about factor sqrt(n) u: a likely bound on the error.

    The bound assumes that rounding errors are mean independent with mean zero. Stochastic rounding with many
    random bits has such errors; pass 2 u for it. Errors of rounding to nearest often behave similarly, but not if a sum
    stagnates.

    Parameters:
        lengths: numbers of terms, 0 or more, in an array of any shape.
        unit_roundoff: u, between 0 and 1.
        factor: a positive number; the bound is more likely to be valid for larger factors.

    Returns:
        A float64 array of the shape of `lengths`.

    Raises:
        ValueError: if `factor` is not positive; if a length or the unit roundoff is invalid.

    Source: Connolly, Higham and Mary, SIAM J. Sci. Comput. 43, 2021.
    """
    return theory.probable_gamma(lengths, unit_roundoff, factor)


GRADIENT, LOSS = "#0072b2", "#d55e00"


@project_style()
def draw_comparison(axes: Axes, comparison: PolicyComparison, *, title: str | None = None) -> None:
    """Draw the relative errors of loss and gradient under several policies, on a logarithmic axis.

    The policy with the smallest error of the gradient is at the top. Filled dots are errors of gradients, and hollow
    diamonds are errors of losses. An error of zero is drawn at the left edge, and an error that is not finite is an
    arrow at the right edge. Policies that could not be run are left out. A policy needs about 0.2 inches of height.

    Parameters:
        axes: matplotlib's axes.
        comparison: the result of `simfloat.compare`.
        title: the title; by default the policy with the smallest error of the gradient.

    Raises:
        ValueError: if `comparison` is not such a result, or if no error in it is finite and positive.
    """
    if not isinstance(comparison, PolicyComparison):
        raise ValueError(f"draw_comparison takes a result of simfloat.compare, got a {type(comparison).__name__}.")
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
    best = rows[0]
    label_axes(
        axes, xlabel=f"error relative to {plain_label(comparison.reference)}", ylabel="",
        title=title_or(
            title, lambda: f"{plain_label(best.policy)} has the smallest gradient error: {best.gradient_error:.2g}"
        ),
    )  # fmt: skip
    axes.legend(frameon=False, loc="upper right")


COST_COLOR = "#0072b2"

#: The height of a bar, and the distance of its name from its middle. Bars are 1 apart.
THICKNESS, ABOVE = 0.3, 0.2

#: The left limit of the axis is the smallest cost divided by this.
BELOW = 4


@project_style()
def draw_attribution(axes: Axes, attribution: Attribution, *, most: int = 10, title: str | None = None) -> None:
    """Draw the largest costs of an attribution as bars on a logarithmic axis, each below its name.

    A dashed line marks the error under the whole policy. The bar of an infinite cost ends at the right edge and is
    labelled as infinite; costs of zero are left out. A bar needs about 0.22 inches of height.

    Parameters:
        axes: matplotlib's axes.
        attribution: the result of `simfloat.attribute`.
        most: the largest number of bars, 1 or more.
        title: the title; by default the part with the largest cost.

    Raises:
        ValueError: if `attribution` is not such a result, or has no positive cost; if `most` is below 1.
    """
    if not isinstance(attribution, Attribution):
        raise ValueError(f"draw_attribution takes a result of simfloat.attribute, got a {type(attribution).__name__}.")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"most, the number of costs to draw, must be at least 1, got {most!r}.")
    costs = [cost for cost in attribution.costs if cost.error > 0][:most]
    if not costs:
        raise ValueError("No part of the policy costs the gradient anything: there is nothing to draw.")
    finite = [error for error in (attribution.total, *(cost.error for cost in costs)) if 0 < error < np.inf] or [1.0]
    least, greatest = min(finite) / BELOW, max(finite) * BELOW
    for row, cost in enumerate(costs):
        is_finite = np.isfinite(cost.error)
        width = (cost.error if is_finite else greatest) - least
        axes.barh(
            -row,
            width,
            THICKNESS,
            left=least,
            color=COST_COLOR,
            hatch="" if is_finite else "////",
            edgecolor=background(axes),
        )
        text = _cost_name(attribution, cost) + ("" if is_finite else "  (infinite)")
        axes.annotate(
            text, (least, -row + ABOVE), (2, 0), textcoords="offset points", fontsize="small", va="bottom", zorder=4
        )
    if 0 < attribution.total < np.inf:
        axes.axvline(attribution.total, color=foreground(), linestyle="--", linewidth=0.8, zorder=3)
        axes.annotate(
            "whole policy", (attribution.total, 0.6 - len(costs)), (2, 0), textcoords="offset points", rotation=90,
            fontsize="small", va="bottom",
        )  # fmt: skip
    axes.set(xlim=(least, greatest), ylim=(0.5 - len(costs), 0.9), yticks=[])
    make_logarithmic(axes, "x")
    largest = max(costs, key=lambda cost: cost.error)
    label_axes(
        axes, xlabel="relative error of the gradient", ylabel="",
        title=title_or(title, lambda: f"{_cost_name(attribution, largest)} costs most: {largest.error:.2g}"),
    )  # fmt: skip
    axes.spines["left"].set_visible(False)


def _cost_name(attribution: Attribution, cost: Any) -> str:
    """Return the fields of a cost, such as operation, layer and role, in one line."""
    return plain_label(" · ".join(getattr(cost, field) or "-" for field in attribution.by))
