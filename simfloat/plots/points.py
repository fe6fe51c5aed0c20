"""Means and ranges of groups of values, in rows: a row for each policy, for example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.checks import as_rectangular_array
from simfloat.plots.curves import STYLES, plain_label, set_log_scale
from simfloat.plots.figure import SMALL, check_drawable, label_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
            means, places, xerr=(means - below, above - means), label=plain_label(label), color=style.color, linestyle="none",
            marker=style.marker, markersize=4, markerfacecolor="white", elinewidth=1,
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
