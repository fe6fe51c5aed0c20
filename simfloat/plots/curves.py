"""Curves over iterations, with their spread over seeds, the course of a loss scale, and groups of values in rows.

Rows show means and ranges of groups: a row for each policy, for example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.common import as_rectangular_array
from simfloat.environment import in_usual_environment
from simfloat.plots.figure import SMALL, check_drawable, label_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Style(NamedTuple):
    """How lines differ: in colour, dashes and marker."""

    color: str
    dashes: Any
    marker: str


#: Colours that colour-blind readers tell apart (Okabe and Ito 2008, and a wine red); dashes and markers differ where
#: greys do not.
STYLES = (
    Style("#000000", "-", ""),
    Style("#56b4e9", (0, (1, 1)), "s"),
    Style("#d55e00", "-", "o"),
    Style("#e69f00", (0, (4, 1.5)), "v"),
    Style("#009e73", "-", "^"),
    Style("#cc79a7", (0, (4, 1.5)), "D"),
    Style("#0072b2", (0, (1, 1)), "x"),
    Style("#882255", "-", "*"),
)


#: Numbers whose ratio is smaller are one on a logarithmic axis, which has none below the second.
ALIKE_RATIO, TINIEST = 1 + 1e-9, 5e-324


class Curve(NamedTuple):
    """A line: its label, x (points), values (seeds, points) or (points), and its style's number.

    A curve without a style takes the next one that no other curve of its axes has. `smooth` is how many points its
    moving mean takes; on a logarithmic axis the mean is a geometric one.
    """

    label: str
    x: NDArray
    values: NDArray
    style: int | None = None
    smooth: int = 1


def draw_curves(
    axes: Axes, curves: list[Curve], *, xlabel: str = "", ylabel: str = "", title: str = "", log: bool = False
) -> None:
    """Draw the mean over seeds of every curve, and between the least and the greatest seed a band.

    Values that are not finite leave a gap. Several curves without styles of their own have a legend in the axes; for
    those with styles, which other axes may share, `add_legend` puts one below.

    Raises ValueError for what is no list of curves, for a curve without values or whose values do not fit its x, and
    for a style or a number of points to smooth that is none.
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
    """Raise ValueError for what is no list of curves, and for a curve whose numbers, style or smoothing are none."""
    if isinstance(curves, Curve) or not isinstance(curves, list | tuple):
        raise ValueError(f"Curves come as a list of simfloat.plots.Curve, got a {type(curves).__name__}.")
    for curve in curves:
        if not isinstance(curve, Curve):
            raise ValueError(f"Curves come as a list of simfloat.plots.Curve, got one of {type(curve).__name__}.")
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
                raise ValueError(f"{name} of {curve.label!r} must be a whole number from {least} on, got {number!r}.")


def assign_styles(curves: Sequence[Curve]) -> list[Curve]:
    """The curves, each with a style: those without one take in turn what no other has."""
    used_styles = {curve.style for curve in curves}
    free = (number for number in count() if number not in used_styles)
    return [curve if curve.style is not None else curve._replace(style=next(free)) for curve in curves]


def add_curve_legend(axes: Axes, curves: Sequence[Curve], *, bounds: bool = False) -> None:
    """Draw a legend for several curves, or for one and bounds, if `assign_styles` chose the style of any of them."""
    if (len(curves) > 1 or bounds) and any(curve.style is None for curve in curves):
        axes.legend(fontsize=SMALL, handlelength=3, framealpha=0.8, edgecolor="none")


def draw_band(
    axes: Axes,
    curve: Curve,
    middle: NDArray,
    low: NDArray,
    high: NDArray,
    place: tuple[int, int] = (0, 1),
    width: float = 1.2,
) -> None:
    """Draw a curve's line along `middle` in its style, and a band from `low` to `high`; `place`: which of how many."""
    style, (number, curves) = STYLES[(curve.style or 0) % len(STYLES)], place
    # Lines on one another still show each its markers.
    every = max(1, len(curve.x) // 8)
    axes.plot(
        curve.x, middle, label=plain_label(curve.label), color=style.color, linestyle=style.dashes, linewidth=width,
        marker=style.marker, markersize=3.2, markerfacecolor="none", markeredgewidth=0.8,
        markevery=(number * every // curves, every),
    )  # fmt: skip
    axes.fill_between(curve.x, low, high, color=style.color, alpha=0.12, linewidth=0)


def smooth_values(curve: Curve, log: bool) -> NDArray:
    """The moving mean of every seed's values, of their logarithms if `log`."""
    forth, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
    values = np.atleast_2d(as_rectangular_array(curve.values, "values of a curve", np.float64))
    usable = np.isfinite(values) & (values > 0) if log else np.isfinite(values)
    rows = forth(np.where(usable, values, np.nan))
    return np.array([back(moving_mean(row, curve.smooth)) for row in rows])


@in_usual_environment
def moving_mean(values: NDArray, points: int) -> NDArray:
    """The mean of each value and its neighbours, `points` in all, as many on either side; fewer near the ends.

    A NaN makes those means NaN that contain it, and no others. Raises ValueError for a number of points below 1.
    """
    if points < 1:
        raise ValueError(f"A mean takes one point or more, got {points!r}.")
    place = np.arange(len(values))
    reach = np.minimum(points // 2, np.minimum(place, len(values) - 1 - place))
    return np.array([np.mean(values[i - r : i + r + 1]) for i, r in zip(place, reach, strict=True)])


def make_logarithmic(axes: Axes, name: Literal["x", "y"] = "y") -> None:
    """A logarithmic axis that labels few numbers, and each as people write it: 0.2, 5, 2000."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = set_log_scale(axes, name)
    axis = axes.xaxis if name == "x" else axes.yaxis
    decades = np.log10(high) - np.log10(low)
    # Over less than two decades powers of ten are too few.
    axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
    axis.set_minor_formatter(NullFormatter())


def set_log_scale(axes: Axes, name: Literal["x", "y"], base: int = 10) -> tuple[float, float]:
    """Make an axis logarithmic, also where nothing positive is drawn on it, or one number alone; its ends."""
    get_limits, set_limits = getattr(axes, f"get_{name}lim"), getattr(axes, f"set_{name}lim")
    is_free = getattr(axes, f"get_autoscale{name}_on")()
    least, most = getattr(axes.dataLim, f"minpos{name}"), getattr(axes.dataLim, f"{name}1")
    if is_free and least <= most <= least * ALIKE_RATIO:  # where matplotlib finds no limits
        set_limits(max(least / 2, TINIEST), most * 2)
    getattr(axes, f"set_{name}scale")("log", base=base)
    if get_limits()[0] <= 0:
        set_limits(0.1, 1.0)
    getattr(axes, f"set_autoscale{name}_on")(is_free)  # for what is drawn after this
    return get_limits()


def tick_text(value: float) -> str:
    """The label of a tick; none for the zero that matplotlib asks for below the smallest float64."""
    if 1e-3 < value < 1e5:
        return f"{value:g}"
    return power_text(value) if value > 0 else ""


def power_text(value: float) -> str:
    """A power of ten, or a multiple of one, as matplotlib writes exponents."""
    digits, exponent = f"{value:.5e}".split("e")
    factor = "" if float(digits) == 1 else f"{float(digits):g}\\cdot "
    return f"${factor}10^{{{int(exponent)}}}$"


def plain_label(label: Any) -> str:
    """A label that is drawn as it is: no mathematics between dollars, and none that hides for its underscore.

    It may be a number, a format or whatever else has a text; None is no label.
    """
    text = "" if label is None else str(label).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def draw_loss_scale(axes: Axes, scale: ArrayLike, skipped: ArrayLike | None = None, *, title: str = "") -> None:
    """Draw the scale of every step (steps,) on a logarithmic axis to base 2, with a mark where a step was skipped.

    As for the history of a training: ``draw_loss_scale(axes, history["scale"], history["skipped"])``.

    Raises ValueError for scales that are not positive and finite, and where there is not one of `skipped` for each.
    """
    from matplotlib.ticker import MaxNLocator

    if isinstance(scale, Mapping):
        raise ValueError(f"Scales come one for each step, as history['scale'], got a {type(scale).__name__}.")
    factors = as_rectangular_array(scale, "scale", np.float64)
    if factors.ndim != 1 or not (np.isfinite(factors) & (factors > 0)).all():
        raise ValueError("Scales must be positive, finite and one for each step, such as history['scale'].")
    missed = np.zeros(len(factors), bool) if skipped is None else np.asarray(skipped, bool)
    check_drawable("loss scale", factors)
    if missed.shape != factors.shape:
        raise ValueError(f"{len(factors)} scales need as many values of skipped, got an array of {missed.shape}.")
    steps = np.arange(len(factors))
    axes.step(steps, factors, where="post", color="#0072b2", linewidth=1.2, label="loss scale")
    if missed.any():
        axes.plot(
            steps[missed], factors[missed], "x", color="#d55e00", markersize=4, markeredgewidth=1,
            label=f"skipped ({missed.sum()} of {len(missed)})",
        )  # fmt: skip
    set_log_scale(axes, "y", base=2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_axes(axes, xlabel="step", ylabel="loss scale", title=plain_label(title))


def draw_points(
    axes: Axes,
    rows: Sequence[str],
    groups: Mapping[str, Sequence[ArrayLike]],
    *,
    xlabel: str = "",
    title: str = "",
    log: bool = True,
) -> None:
    """Draw for each row and group the mean of its values (seeds,), and a line from the least to the greatest.

    rows are labels from top to bottom, groups have an array for each row. On a logarithmic axis the mean is a geometric
    one, and values that are not positive leave a gap, as do values that are not finite.

    Raises ValueError without rows or groups, and for a group that has not an array with values for each row.
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
            linestyle="none", marker=style.marker, markersize=4, markerfacecolor="white", elinewidth=1,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), map(plain_label, rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    if log:
        set_log_scale(axes, "x")
    label_axes(axes, xlabel=xlabel, ylabel="", title=title)
    axes.tick_params(axis="y", labelsize=SMALL)


def _extent(values: NDArray, log: bool) -> tuple[float, float, float]:
    """The mean of the values, their least and their greatest; NaN if one is not to be drawn."""
    usable = np.where(np.isfinite(values) & ((values > 0) | (not log)), values, np.nan)
    mean, least, greatest = np.exp(np.mean(np.log(usable))) if log else np.mean(usable), np.min(usable), np.max(usable)
    return float(np.clip(mean, least, greatest)), float(least), float(greatest)  # which a rounded mean may pass
