"""The curves of runs for figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.measurement import select
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.studies import Result

#: If differences exceed this percentage, they are drawn on a scale that is logarithmic beyond one percent.
WIDE = 5


def curves(results: list[Result], key: str, styles: Mapping[str, int], smooth: int = 1) -> list[Curve]:
    """Return a curve for each variant, with a row of values for each seed.

    `styles` has the style numbers of the variants. A variant without one, such as the user's, has style 2.
    """
    found = []
    for variant in dict.fromkeys(result["variant"] for result in results):
        runs = select(results, variant=variant)
        values = np.array([run[key] for run in runs], np.float64)
        found.append(Curve(runs[0]["label"], np.array(runs[0]["iteration"]), values, styles.get(variant, 2), smooth))
    return found


def draw_beside(
    results: list[Result], titles: Mapping[str, str], path: Path, reference: str = "fp32", smooth: int = 3
) -> None:
    """Draw a column for each problem: by how many percent losses exceed those of the reference, seed by seed.

    Runs of one seed share everything that makes seeds differ, so differences show effects that bands around losses
    hide. All columns have one scale, which is logarithmic beyond one percent if differences are large. More than four
    columns are drawn in rows of three.
    """
    labels = {result["variant"]: result["label"] for result in results}
    styles = {variant: style for style, variant in enumerate(labels)}
    across = len(titles) if len(titles) <= 4 else 3
    down, rows = -(-len(titles) // across), -(-(len(styles) - 1) // 3)
    figure, grid = new_figure(down, across, FULL_WIDTH, 2.6 * down + 0.2 + 0.17 * rows, legend=0.05 + 0.17 * rows)
    figure.subplots_adjust(hspace=0.3)  # space for titles below the labels of another row
    axes, empty = np.split(np.atleast_1d(grid).ravel(), [len(titles)])
    for place in empty:
        place.set_axis_off()
    for number, (column, (problem, title)) in enumerate(zip(axes, titles.items(), strict=True)):
        lines = beside(select(results, problem=problem), reference, styles, smooth)
        ylabel = "" if number % across else f"held-out loss above {labels[reference]}'s (%)"
        draw_curves(column, lines, xlabel="iteration", ylabel=ylabel, title=title)
    one_scale(axes)
    add_legend(figure, max(axes, key=lambda column: len(column.lines)), columns=3)
    save_figure(figure, path)


def beside(results: list[Result], reference: str, styles: Mapping[str, int], smooth: int = 1) -> list[Curve]:
    """Return by how many percent the loss of every other variant exceeds that of the reference for the same seed."""
    losses = np.array([run["loss"] for run in select(results, variant=reference)], np.float64)
    others = curves([run for run in results if run["variant"] != reference], "loss", styles, smooth)
    return [curve._replace(values=100 * (curve.values / losses - 1)) for curve in others]


def one_scale(axes: Iterable[Any]) -> None:
    """Set the same limits for percentages in all columns, and draw a line at no difference."""
    columns = list(axes)
    low = min(column.get_ylim()[0] for column in columns)
    high = max(column.get_ylim()[1] for column in columns)
    for column in columns:
        column.axhline(0, color="black", linewidth=0.8, zorder=0)
        if max(-low, high) > WIDE:
            column.set_yscale("symlog", linthresh=1, linscale=0.6)
        column.set_ylim(low, high)
        column.yaxis.set_major_formatter(lambda value, place: f"{value:+g}" if value else "0")


def draw_losses(results: list[Result], titles: Mapping[str, tuple[str, str]], path: Path) -> None:
    """Draw a figure with a column for each problem and a curve for each variant into the file.

    `titles` has the title of each column and the name of its loss.
    """
    styles = {variant: style for style, variant in enumerate(dict.fromkeys(run["variant"] for run in results))}
    rows = -(-len(styles) // 3)
    figure, grid = new_figure(1, len(titles), FULL_WIDTH, 2.6 + 0.17 * rows, legend=0.05 + 0.17 * rows)
    axes = np.atleast_1d(grid)
    for column, (problem, (title, loss)) in zip(axes, titles.items(), strict=True):
        runs = curves(select(results, problem=problem), "loss", styles)
        draw_curves(column, runs, xlabel="iteration", ylabel=loss, title=title, log=True)
    add_legend(figure, max(axes, key=lambda column: len(column.lines)), columns=3)
    save_figure(figure, path)
