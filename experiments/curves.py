"""Turn runs into the curves of figures, draw losses, and put findings into titles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.measurement import final_value, select
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.curves import plain_label, power_text
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

#: If differences exceed this percentage, they are drawn on a scale that is logarithmic beyond one percent.
WIDE = 5


def curves(results: list[Result], key: str, styles: Mapping[str, int], smooth: int = 1) -> list[Curve]:
    """Return a curve for each variant, with a row of values for each seed.

    `styles` has the number of the style of each variant. Other variants, such as the policy of the user, have style 2.
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
    """Draw a column for each problem: how many percent each loss is above that of the reference, seed by seed.

    Runs of one seed share the data and the initial weights, so their difference shows effects that bands around losses
    hide. All columns have one scale, which is logarithmic beyond one percent if there are large differences. More than
    four columns are drawn in rows of three. The title is the largest difference at the end.
    """
    labels = {result["variant"]: result["label"] for result in results}
    styles = {variant: style for style, variant in enumerate(labels)}
    across = len(titles) if len(titles) <= 4 else 3
    down, rows = -(-len(titles) // across), -(-(len(styles) - 1) // 3)
    figure, grid = new_figure(down, across, FULL_WIDTH, 2.6 * down + 0.4 + 0.17 * rows)
    axes, empty = np.split(np.atleast_1d(grid).ravel(), [len(titles)])
    for place in empty:
        place.set_axis_off()
    for number, (column, (problem, title)) in enumerate(zip(axes, titles.items(), strict=True)):
        lines = beside(select(results, problem=problem), reference, styles, smooth)
        ylabel = "" if number % across else f"held-out loss above {labels[reference]} (%)"
        draw_curves(column, lines, xlabel="iteration", ylabel=ylabel, title=title)
    one_scale(axes)
    add_legend(figure, max(axes, key=lambda column: len(column.lines)), columns=3)
    add_title(figure, _largest_difference(results, titles, reference, styles))
    save_figure(figure, path)


def _largest_difference(
    results: list[Result], titles: Mapping[str, str], reference: str, styles: Mapping[str, int]
) -> str:
    """Return the variant and problem with the largest mean difference over the last fifth of the run."""
    label = next(run["label"] for run in results if run["variant"] == reference)
    found = []
    for problem, title in titles.items():
        for curve in beside(select(results, problem=problem), reference, styles):
            value = float(np.mean([final_value(row) for row in curve.values]))
            found.append((value if np.isfinite(value) else np.inf, curve.label, title))
    if not found:
        return ""
    value, variant, title = max(found, key=lambda each: abs(each[0]))
    there = f" ({title})" if len(titles) > 1 else ""
    if not np.isfinite(value):
        return f"{plain_label(variant)} diverges{there}"
    return f"Largest difference from {label} at the end: {plain_label(variant)}, {signed(value)} %{there}"


def short(value: float | np.floating) -> str:
    """Return a value with two digits, as a power of ten if it is very large or small."""
    rounded = float(f"{value:.1e}")
    if rounded == 0 or 1e-3 <= abs(rounded) < 1e5:
        return f"{rounded:,g}" if abs(rounded) >= 1e4 else f"{rounded:g}"
    return power_text(rounded)


def signed(value: float) -> str:
    """Return a value with its sign and two digits."""
    return f"{float(f'{value:.1e}'):+g}"


def last(curve: Curve) -> float:
    """Return the mean over seeds of the last point of a curve."""
    return float(np.mean(np.atleast_2d(curve.values)[:, -1]))


def beside(results: list[Result], reference: str, styles: Mapping[str, int], smooth: int = 1) -> list[Curve]:
    """Return how many percent the loss of each other variant is above that of the reference, seed by seed."""
    losses = np.array([run["loss"] for run in select(results, variant=reference)], np.float64)
    others = curves([run for run in results if run["variant"] != reference], "loss", styles, smooth)
    return [curve._replace(values=100 * (curve.values / losses - 1)) for curve in others]


def one_scale(axes: Iterable[Any]) -> None:
    """Give all columns of percentages the same limits, and a line at zero."""
    columns = list(axes)
    low = min(column.get_ylim()[0] for column in columns)
    high = max(column.get_ylim()[1] for column in columns)
    for column in columns:
        column.axhline(0, color=foreground(), linewidth=0.8, zorder=0)
        if max(-low, high) > WIDE:
            column.set_yscale("symlog", linthresh=1, linscale=0.6)
        column.set_ylim(low, high)
        column.yaxis.set_major_formatter(lambda value, place: f"{value:+g}" if value else "0")


def draw_losses(results: list[Result], titles: Mapping[str, tuple[str, str]], path: Path) -> None:
    """Draw a column for each problem, with a curve of the loss for each variant.

    `titles` has the title of the column and the name of the loss of each problem. The title of the figure is the
    largest loss at the end, relative to the first variant.
    """
    styles = {variant: style for style, variant in enumerate(dict.fromkeys(run["variant"] for run in results))}
    rows = -(-len(styles) // 3)
    figure, grid = new_figure(1, len(titles), FULL_WIDTH, 2.8 + 0.17 * rows)
    axes, ratios = np.atleast_1d(grid), []
    for column, (problem, (title, loss)) in zip(axes, titles.items(), strict=True):
        runs = curves(select(results, problem=problem), "loss", styles)
        draw_curves(column, runs, xlabel="iteration", ylabel=loss, title=title, log=True)
        first, *others = runs
        ratios += [(last(curve) / last(first), curve.label, first.label, title) for curve in others]
    add_legend(figure, max(axes, key=lambda column: len(column.lines)), columns=3)
    if ratios and np.isfinite([each[0] for each in ratios]).all():
        ratio, label, first_label, title = max(ratios, key=lambda each: each[0])
        add_title(figure, f"{plain_label(label)} ends at {short(ratio)} times the loss of {first_label} ({title})")
    save_figure(figure, path)
