"""Draw curves over iterations with their spread over seeds, the course of a loss scale, and rows of points.

A row shows the mean and the range of each group of values: for example, a row for each policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.common import as_rectangular_array
from simfloat.environment import in_usual_environment
from simfloat.plots.figure import background, check_drawable, foreground, label_axes, project_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Style(NamedTuple):
    """The colour, dashes and marker of a line."""

    color: str
    dashes: Any
    marker: str


#: The colour of the first style, for references. It is drawn in the colour of text, which dark styles make light.
TEXT = "black"

#: The colours of a loss scale and of the marks at skipped steps.
SCALE_COLOR, SKIPPED_COLOR = "#0072b2", "#d55e00"

#: Colours that colour-blind readers can distinguish on white and on black (Okabe and Ito 2008, a purple and a brown).
#: Lines of similar grey differ in dashes or marker.
STYLES = (
    Style(TEXT, "-", ""),
    Style("#56b4e9", (0, (1, 1)), "s"),
    Style("#d55e00", "-", "o"),
    Style("#e69f00", (0, (4, 1.5)), "v"),
    Style("#009e73", "-", "^"),
    Style("#cc79a7", (0, (4, 1.5)), "D"),
    Style("#0072b2", (0, (1, 1)), "x"),
    Style("#aa3377", "-", "*"),
    Style("#a0522d", (0, (1, 1)), "+"),
)


#: On a logarithmic axis: the smallest ratio of two values that matplotlib separates, and the smallest limit.
ALIKE_RATIO, TINIEST = 1 + 1e-9, 5e-324


class Curve(NamedTuple):
    """A line with a band: the mean over seeds, and the range from the smallest to the largest value of a seed.

    Parameters:
        label: the name in the legend: a string, a number or a format.
        x: array (points).
        values: array (seeds, points), or (points) for a single seed.
        style: number of the style, 0 or more; 0 is for a reference. By default, the next style that no other curve
            of the axes has.
        smooth: number of points in the moving mean, 1 (the default) or more; on a logarithmic axis the mean is
            geometric.
    """

    label: str
    x: NDArray
    values: NDArray
    style: int | None = None
    smooth: int = 1


@project_style()
def draw_curves(
    axes: Axes, curves: list[Curve], *, xlabel: str = "", ylabel: str = "", title: str = "", log: bool = False
) -> None:
    """Draw the mean over seeds of every curve, and a band from the smallest to the largest value of a seed.

    Values that are not finite leave a gap. The axes get a legend if there are several curves and one of them has no
    explicit style. For curves with explicit styles, which other axes may share, call `add_legend`.

    Parameters:
        axes: matplotlib's axes.
        curves: a list of `Curve`.
        xlabel, ylabel: labels of the axes; both may contain mathematics between dollar signs.
        title: the title of the axes; by default none.
        log: True for a logarithmic y axis.

    Raises:
        ValueError: if `curves` is not a list of curves; if a curve has no values, or values that do not fit its x; if
            a style or the number of points to smooth is invalid.
    """
    check_curves(curves)
    for number, curve in enumerate(assign_styles(curves)):
        values = smooth_values(curve, log)
        draw_band(axes, curve, values.mean(axis=0), values.min(axis=0), values.max(axis=0), (number, len(curves)))
    if log:
        make_logarithmic(axes)
    label_axes(axes, xlabel=xlabel, ylabel=ylabel, title=title)
    add_curve_legend(axes, curves)


def check_curves(curves: Any) -> None:
    """Raise ValueError if this is not a list of curves, or if one of them has invalid values, style or smoothing."""
    if isinstance(curves, Curve) or not isinstance(curves, list | tuple):
        raise ValueError(f"curves must be a list of simfloat.plots.Curve, got a {type(curves).__name__}.")
    for curve in curves:
        if not isinstance(curve, Curve):
            raise ValueError(f"curves must be a list of simfloat.plots.Curve, got one of {type(curve).__name__}.")
        x, values = np.shape(curve.x), np.shape(curve.values)
        if len(x) != 1 or len(values) not in (1, 2) or values[-1:] != x:
            raise ValueError(f"{curve.label!r} has x of shape {x} and values of shape {values}: a value for each x.")
        if not values[0]:
            raise ValueError(
                f"{curve.label!r} has no values: a curve has one for each x, or a row of them for each seed."
            )
        check_drawable(curve.label, curve.x, curve.values)
        for name, number, least in (("style", curve.style or 0, 0), ("smooth", curve.smooth, 1)):
            if not isinstance(number, int | np.integer) or number < least:
                raise ValueError(f"{name} of {curve.label!r} must be an integer of at least {least}, got {number!r}.")


def assign_styles(curves: Sequence[Curve]) -> list[Curve]:
    """Give each curve without a style the next style that no other curve has."""
    used_styles = {curve.style for curve in curves}
    free = (number for number in count() if number not in used_styles)
    return [curve if curve.style is not None else curve._replace(style=next(free)) for curve in curves]


def add_curve_legend(axes: Axes, curves: Sequence[Curve], *, bounds: bool = False) -> None:
    """Draw a legend for several curves, or for one and bounds, if `assign_styles` chose the style of any of them."""
    if (len(curves) > 1 or bounds) and any(curve.style is None for curve in curves):
        axes.legend(framealpha=0.8)


def draw_band(
    axes: Axes,
    curve: Curve,
    middle: NDArray,
    low: NDArray,
    high: NDArray,
    place: tuple[int, int] = (0, 1),
    width: float = 1.2,
) -> None:
    """Draw the line of a curve along `middle`, and a band from `low` to `high`.

    `place` is the index of the curve and the number of curves: markers of lines that coincide are staggered by it.
    """
    style, (number, curves) = STYLES[(curve.style or 0) % len(STYLES)], place
    color = line_color(style)
    every = max(1, len(curve.x) // 8)
    axes.plot(
        curve.x, middle, label=plain_label(curve.label), color=color, linestyle=style.dashes, linewidth=width,
        marker=style.marker, markersize=3.2, markerfacecolor="none", markeredgewidth=0.8,
        markevery=(number * every // curves, every),
    )  # fmt: skip
    axes.fill_between(curve.x, low, high, color=color, alpha=0.15, linewidth=0)


def line_color(style: Style) -> str:
    """Return the colour in which a style is drawn: the colour of text for the reference."""
    return foreground() if style.color == TEXT else style.color


def smooth_values(curve: Curve, log: bool) -> NDArray:
    """Return the moving mean of the values of every seed; the geometric mean if `log`."""
    forth, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
    values = np.atleast_2d(as_rectangular_array(curve.values, "values of a curve", np.float64))
    usable = np.isfinite(values) & (values > 0) if log else np.isfinite(values)
    rows = forth(np.where(usable, values, np.nan))
    return np.array([back(moving_mean(row, curve.smooth)) for row in rows])


@in_usual_environment
def moving_mean(values: NDArray, points: int) -> NDArray:
    """Return the mean of each value and its neighbours, with equally many neighbours on both sides.

    A NaN affects only the means that contain it.

    Parameters:
        values: array of one axis.
        points: number of values in a mean, 1 or more; near the ends there are fewer.

    Returns:
        An array of the shape of `values`.

    Raises:
        ValueError: if `points` is below 1.
    """
    if points < 1:
        raise ValueError(f"A mean takes one point or more, got {points!r}.")
    place = np.arange(len(values))
    reach = np.minimum(points // 2, np.minimum(place, len(values) - 1 - place))
    return np.array([np.mean(values[i - r : i + r + 1]) for i, r in zip(place, reach, strict=True)])


def make_logarithmic(axes: Axes, name: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic, with few ticks, labelled in plain decimal notation: 0.2, 5, 2000."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = set_log_scale(axes, name)
    axis = axes.xaxis if name == "x" else axes.yaxis
    decades = np.log10(high) - np.log10(low)
    # An axis of less than two decades has too few powers of ten for ticks.
    axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
    axis.set_minor_formatter(NullFormatter())


def set_log_scale(axes: Axes, name: Literal["x", "y"], base: int = 10) -> tuple[float, float]:
    """Make an axis logarithmic and return its limits, which are valid for any number of positive values."""
    get_limits, set_limits = getattr(axes, f"get_{name}lim"), getattr(axes, f"set_{name}lim")
    is_free = getattr(axes, f"get_autoscale{name}_on")()
    least, most = getattr(axes.dataLim, f"minpos{name}"), getattr(axes.dataLim, f"{name}1")
    if is_free and least <= most <= least * ALIKE_RATIO:  # matplotlib finds no limits for this
        set_limits(max(least / 2, TINIEST), most * 2)
    getattr(axes, f"set_{name}scale")("log", base=base)
    if get_limits()[0] <= 0:
        set_limits(0.1, 1.0)
    getattr(axes, f"set_autoscale{name}_on")(is_free)  # later lines may still change the limits
    return get_limits()


def tick_text(value: float) -> str:
    """Return the label of a tick; empty for zero, which matplotlib passes for values below the smallest float64."""
    if 1e-3 < value < 1e5:
        return f"{value:g}"
    return power_text(value) if value > 0 else ""


def number_text(value: float) -> str:
    """Return an integer with separators, and any other value with three digits."""
    if value >= 1e5:
        return power_text(float(f"{value:.2e}"))
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"


def power_text(value: float) -> str:
    """Return a value as a multiple of a power of ten, in the notation of matplotlib's mathematics."""
    digits, exponent = f"{value:.5e}".split("e")
    factor = "" if float(digits) == 1 else f"{float(digits):g}\\cdot "
    return f"${factor}10^{{{int(exponent)}}}$"


def plain_label(label: Any) -> str:
    """Return the text of a label so that matplotlib draws it literally.

    Dollar signs are escaped, and a leading underscore, which would hide the label in a legend, gets a space before it.
    The label may be any object with a text; None gives an empty label.
    """
    text = "" if label is None else str(label).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def title_or(title: str | None, finding: Callable[[], str]) -> str:
    """Return the title of the user, drawn literally; without one, the finding."""
    return finding() if title is None else plain_label(title)


def log2_text(value: float) -> str:
    """Return a power of two with its exponent, and any other value in decimals."""
    mantissa, exponent = math.frexp(value)
    return f"$2^{{{exponent - 1}}}$" if mantissa == 0.5 else f"{value:.3g}"


@project_style()
def draw_loss_scale(
    axes: Axes, scale: ArrayLike, skipped: ArrayLike | None = None, *, title: str | None = None
) -> None:
    """Draw the loss scale of every step on a logarithmic axis to base 2, with a mark at each skipped step.

    For the history of a training: ``draw_loss_scale(axes, history["scale"], history["skipped"])``.

    Parameters:
        axes: matplotlib's axes.
        scale: array (steps) of positive, finite scales.
        skipped: array (steps) of booleans, True for a step that was skipped; by default no step is marked.
        title: the title; by default the number of skipped steps and the last scale.

    Raises:
        ValueError: if a scale is not positive and finite, or if `scale` and `skipped` differ in length.
    """
    from matplotlib.ticker import MaxNLocator

    if isinstance(scale, Mapping):
        raise ValueError(f"scale must have one value per step, as history['scale'], got a {type(scale).__name__}.")
    factors = as_rectangular_array(scale, "scale", np.float64)
    if factors.ndim != 1 or not (np.isfinite(factors) & (factors > 0)).all():
        raise ValueError("Scales must be positive, finite and one for each step, such as history['scale'].")
    missed = np.zeros(len(factors), bool) if skipped is None else np.asarray(skipped, bool)
    check_drawable("loss scale", factors)
    if missed.shape != factors.shape:
        raise ValueError(f"{len(factors)} scales need as many values of skipped, got an array of {missed.shape}.")
    steps = np.arange(len(factors))
    axes.step(steps, factors, where="post", color=SCALE_COLOR, linewidth=1.2, label="loss scale")
    if missed.any():
        axes.plot(
            steps[missed], factors[missed], "x", color=SKIPPED_COLOR, markersize=4, markeredgewidth=1,
            label=f"skipped ({missed.sum()} of {len(missed)})",
        )  # fmt: skip
    set_log_scale(axes, "y", base=2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_axes(
        axes,
        xlabel="step",
        ylabel="loss scale",
        title=title_or(title, lambda: _scale_finding(factors, None if skipped is None else missed)),
    )


def _scale_finding(scales: NDArray, skipped: NDArray | None) -> str:
    """Return how many steps were skipped, if that is known, and how the scale ends."""
    if not len(scales):
        return ""
    if skipped is None:
        return f"Scale {log2_text(scales[0])} at the start, {log2_text(scales[-1])} at the end"
    count = f"{skipped.sum()} of {len(skipped)} steps skipped" if skipped.any() else "No step skipped"
    return f"{count}; last scale {log2_text(scales[-1])}"


@project_style()
def draw_points(
    axes: Axes,
    rows: Sequence[str],
    groups: Mapping[str, Sequence[ArrayLike]],
    *,
    xlabel: str = "",
    title: str = "",
    log: bool = True,
) -> None:
    """Draw the mean of each group in each row, and a line from its smallest to its largest value.

    Values that are not finite leave a gap. On a logarithmic axis the mean is geometric, and values that are not
    positive leave a gap.

    Parameters:
        axes: matplotlib's axes.
        rows: labels of the rows from top to bottom, such as policies.
        groups: for each label of a group, one array (seeds) for each row.
        xlabel: label of the x axis.
        title: the title; by default none.
        log: True (the default) for a logarithmic x axis.

    Raises:
        ValueError: if there are no rows or no groups; if a group does not have one array with values for each row.
    """
    if not rows or not groups:
        raise ValueError(f"draw_points takes rows and groups, got {len(rows)} and {len(groups)}.")
    for number, (label, arrays) in enumerate(groups.items()):
        values = [np.atleast_1d(as_rectangular_array(each, "values", np.float64)) for each in arrays]
        if len(values) != len(rows) or not all(each.size for each in values):
            sizes = [each.size for each in values]
            raise ValueError(f"{label!r} needs values for each of {len(rows)} rows, got arrays of {sizes}.")
        check_drawable(label, *values)
        style = STYLES[(number + 1) % len(STYLES)]
        places = np.arange(len(rows)) + 0.22 * (number - (len(groups) - 1) / 2)
        means, below, above = np.array([_extent(each, log) for each in values]).T
        axes.errorbar(
            means, places, xerr=(means - below, above - means), label=plain_label(label), color=style.color,
            linestyle="none", marker=style.marker, markersize=4, markerfacecolor=background(axes), elinewidth=1,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), map(plain_label, rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    if log:
        set_log_scale(axes, "x")
    label_axes(axes, xlabel=xlabel, ylabel="", title=title)


def _extent(values: NDArray, log: bool) -> tuple[float, float, float]:
    """Return the mean of the values, the least and the greatest; NaN if one of them cannot be drawn."""
    usable = np.where(np.isfinite(values) & ((values > 0) | (not log)), values, np.nan)
    mean, least, greatest = np.exp(np.mean(np.log(usable))) if log else np.mean(usable), np.min(usable), np.max(usable)
    return float(np.clip(mean, least, greatest)), float(least), float(greatest)  # a rounded mean may exceed them
