"""The curves of runs as figures take them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from experiments.measurement import select
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.studies import Result


def curves(results: list[Result], key: str, styles: Mapping[str, int], smooth: int = 1) -> list[Curve]:
    """A curve for each variant, with a row of values for each seed; `styles` are the numbers of the variants' styles.

    A variant that is not among them, as one that the user gave, has style 2.
    """
    found = []
    for variant in dict.fromkeys(result["variant"] for result in results):
        runs = select(results, variant=variant)
        values = np.array([run[key] for run in runs], np.float64)
        found.append(Curve(runs[0]["label"], np.array(runs[0]["iteration"]), values, styles.get(variant, 2), smooth))
    return found


def draw_losses(results: list[Result], titles: Mapping[str, tuple[str, str]], path: Path) -> None:
    """A figure with a column for each problem and a curve for each variant, which it draws into the file.

    titles has the title of a problem's column, and what its loss is called.
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
