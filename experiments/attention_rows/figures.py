"""Draw the shares of rows that meet the conditions of the bias, and the bias, by the factor of the scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.attention_rows.findings import REPEATED, last
from experiments.curves import short
from experiments.experiment import drawn_as
from experiments.measurement import table_over_seeds
from simfloat.plots import FULL_WIDTH, Curve, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

#: Lines of the left figure: the measure, its label, and its style.
SHARES = [("ones", "several weights are 1", 2), ("small", "little else (below 2⁻⁹)", 3), ("both", "both", 6)]


@drawn_as("rows.png")
def draw_rows(results: list[Result], path: Path) -> None:
    """Draw shares of rows and biases of the trained models over the factor of the scores."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.1)
    step = last(results)

    def curve(key: str, label: str, style: int, times: float) -> Curve:
        factors, values = table_over_seeds(results, key, "factor", step=step)
        return Curve(label, factors, times * values, style)

    shares = [curve(key, label, style, 100) for key, label, style in SHARES]
    draw_curves(left, shares, xlabel="factor of the scores", ylabel="rows (%)", title="Conditions of the bias")
    biases = [curve("bias", "P V", 4, 1), curve("output", "output O / l", 0, 1)]
    draw_curves(
        right, biases, xlabel="factor of the scores", ylabel="mean error (u)", title="Mean error, away from zero"
    )
    right.axhline(REPEATED, color=foreground(), linewidth=0.8, linestyle=":")
    right.annotate("two equal maxima, little else", (1, REPEATED), xytext=(0, -11), textcoords="offset points")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.legend(loc="center left")
    bias, both = (float(np.max(np.abs(each.values.mean(axis=0)))) for each in (biases[0], shares[2]))
    add_title(figure, f"At most {short(both)} % of rows meet both conditions; P V is biased by at most {short(bias)} u")
    save_figure(figure, path)
