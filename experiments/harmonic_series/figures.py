"""The figure: the harmonic series by every summation method."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.experiment import drawn_as
from experiments.harmonic_series.jobs import FOLLOWED
from experiments.measurement import select, table_over_seeds
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.studies import Result

STYLES = {"recursive": 2, "Kahan": 4, "pairwise": 3}


@drawn_as("series.png")
def draw_series(results: list[Result], path: Path) -> None:
    """Draw sums by the number of terms; for stochastic ones the mean, and a band of one standard deviation."""
    figure, columns = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.8, legend=0.4)
    series, random = (select(results, kind=kind) for kind in ("series", "stochastic"))
    for axes, name in zip(columns, FOLLOWED, strict=True):
        curves = [
            Curve(f"{way}, to nearest", *table_over_seeds(series, "sum", "length", format=name, way=way), style)
            for way, style in STYLES.items()
        ]
        lengths, mean = table_over_seeds(random, "mean", "length", format=name)
        _, deviation = table_over_seeds(random, "deviation", "length", format=name)
        band = np.concatenate([mean - deviation, mean + deviation])
        curves.append(Curve("recursive, stochastic", lengths, band, 6))
        exact = table_over_seeds(series, "exact", "length", format=name, way="Kahan")
        curves.append(Curve("exact", *exact, 0))
        ylabel = "sum of 1 / k" if axes is columns[0] else ""
        draw_curves(axes, curves, xlabel="terms", ylabel=ylabel, title=name)
        axes.set_xscale("log", base=2)
    add_legend(figure, columns[0], columns=3)
    save_figure(figure, path)
