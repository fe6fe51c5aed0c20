"""Curves over iterations, with their spread over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours that stay apart for colour-blind readers (Okabe and Ito 2008), and dashes that stay apart in print.
COLORS = ("#000000", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#999999")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), "-", (0, (5, 2)), "-", (0, (5, 2)), (0, (1, 1)), "-")


class Curve(NamedTuple):
    """A line: its label, x (points), values (seeds, points), and its style's number.

    `smooth` is how many points its moving mean takes; on a logarithmic axis the mean is a geometric one.
    """

    label: str
    x: NDArray
    values: NDArray
    style: int = 0
    smooth: int = 1


def new_figure(rows: int, columns: int, width: float, height: float, legend: float = 0.0) -> tuple[Figure, Any]:
    """A figure of width x height inches with a grid of axes, drawn without a display; `legend` inches stay free."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns)
    # Margins in inches: matplotlib's own search for them takes as long as all the drawing.
    figure.subplots_adjust(
        left=0.8 / width, right=1 - 0.15 / width, bottom=(0.6 + legend) / height, top=1 - 0.4 / height,
        wspace=0.25, hspace=0.18,
    )  # fmt: skip
    return figure, axes


def draw_curves(axes: Axes, curves: list[Curve], *, ylabel: str, title: str = "", log: bool = False) -> None:
    """Draw the mean over seeds of every curve, and between the least and the greatest seed a band."""
    for curve in curves:
        color, dash = COLORS[curve.style % len(COLORS)], DASHES[curve.style % len(DASHES)]
        forth, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
        values = np.array([back(moving_mean(forth(row), curve.smooth)) for row in curve.values])
        axes.plot(curve.x, values.mean(axis=0), color=color, linestyle=dash, label=curve.label, linewidth=1.8)
        axes.fill_between(curve.x, values.min(axis=0), values.max(axis=0), color=color, alpha=0.12, linewidth=0)
    if log:
        axes.set_yscale("log")
    axes.set(ylabel=ylabel, title=title)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def moving_mean(values: NDArray, points: int) -> NDArray:
    """The mean of each value and its neighbours, `points` in all, as many on either side; fewer near the ends."""
    place = np.arange(len(values))
    reach = np.minimum(points // 2, np.minimum(place, len(values) - 1 - place))
    sums = np.cumsum(np.concatenate([[0.0], values]))
    return (sums[place + reach + 1] - sums[place - reach]) / (2 * reach + 1)


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure as a PNG file."""
    figure.savefig(path, format="png", dpi=130)
