"""Draw the errors of sums relative to their operands by length, and final losses by the width of the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.alignment_bits.findings import ratios, shares, trend
from experiments.alignment_bits.problems import WIDTHS
from experiments.alignment_bits.sums import DATA
from experiments.curves import short
from experiments.experiment import drawn_as
from simfloat.plots import FULL_WIDTH, SMALL, Curve, draw_errors, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground, label_axes
from simfloat.studies import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Styles of the kinds of products.
STYLES = {"both signs": 4, "one sign": 2}


@drawn_as("alignment.png", given=False)
def draw_alignment(results: list[Result], path: Path) -> None:
    """Draw the trends of sums on the left, and the training of every seed on the right."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.7)
    draw_trends(left, results)
    found = 100 * (ratios(results) - 1)
    for row in found:
        right.plot(np.log2(WIDTHS), row, "o-", color="#0072b2", linewidth=0.6, markersize=3.5, markerfacecolor="none")
    right.plot(np.log2(WIDTHS), found.mean(axis=0), color=foreground(), linewidth=1.6, label="mean")
    right.axhline(0, color=foreground(), linewidth=0.8, linestyle=":", zorder=0)
    right.set_xticks(np.log2(WIDTHS), WIDTHS)
    label_axes(
        right, xlabel="width", ylabel="loss over that with FP32 sums (%)", title="GPT: every seed, and the mean (thick)"
    )
    lengths, one_sign = shares(results, "one sign")
    _, both_signs = shares(results, "both signs")
    errors = [short(np.mean(found[:, -1])) for found in (one_sign, both_signs)]
    text = f"Error of {lengths[-1]:,}-term sums over that of operands: {errors[0]} for one sign, {errors[1]} for both"
    add_title(figure, text)
    save_figure(figure, path)


def draw_trends(axes: Axes, results: list[Result]) -> None:
    """Draw the errors of sums relative to those of operands, and the mean of the fitted powers."""
    lengths, _ = shares(results, "both signs")
    fit = f"power, fitted to {lengths[-2]}"
    draw_errors(
        axes,
        [Curve(data, *shares(results, data), STYLES[data]) for data in DATA],
        xlabel="products",
        ylabel="error of sums / of operands",
        title="Sums",
    )
    for number, data in enumerate(DATA):
        slopes, starts = trend(results, data)
        line = np.exp(np.mean(starts) + np.mean(slopes) * np.log(lengths))
        axes.plot(lengths, line, color=foreground(), linestyle="--", linewidth=0.9, label="" if number else fit)
    axes.axhline(1, color=foreground(), linewidth=0.8, linestyle=":", zorder=0)
    axes.legend(frameon=False, fontsize=SMALL)
