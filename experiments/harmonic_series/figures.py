"""Draw the harmonic series, added in several ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import last
from experiments.experiment import drawn_as
from experiments.harmonic_series.jobs import FOLLOWED
from experiments.measurement import select, table_over_seeds
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.studies import Result

STYLES = {"recursive": 2, "Kahan": 4, "pairwise": 3}


@drawn_as("series.png")
def draw_series(results: list[Result], path: Path) -> None:
    """Draw sums over the number of terms; for stochastic ones the mean, with a band of one standard deviation."""
    figure, columns = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.0)
    found = []
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
        found.append(f"{last(curves[0]):.3g} in {name}")
    add_legend(figure, columns[0], columns=3)
    text = f"Rounded to nearest, one after the other, {exact[0][-1]:,} terms give {' and '.join(found)}"
    add_title(figure, f"{text}; exact {np.mean(exact[1][:, -1]):.3g}")
    save_figure(figure, path)
