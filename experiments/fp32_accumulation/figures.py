"""The figures: errors of sums by their length, and the course of each training."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import draw_beside
from experiments.experiment import drawn_as
from experiments.fp32_accumulation.sums import ACCUMULATORS, LABELS
from experiments.measurement import table_over_seeds
from experiments.operands import TITLES
from simfloat.plots import (
    FULL_WIDTH,
    Curve,
    add_legend,
    draw_errors,
    new_figure,
    save_figure,
)
from simfloat.studies import Result

#: Every accumulator has the same style in both panels.
ACCUMULATOR_STYLES = {name: style for name, style in zip(ACCUMULATORS, (0, 1, 3, 2), strict=True)}


@drawn_as("sums.png", kind="sums")
def draw_sums(results: list[Result], path: Path) -> None:
    """Draw the error of sums by their length, for either kind of data."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.7, legend=0.2)
    for side, (data, title) in zip(axes, TITLES.items(), strict=True):
        lines = []
        for name, style in ACCUMULATOR_STYLES.items():
            lengths, errors = table_over_seeds(results, "error", "length", data=data, accumulator=name)
            lines.append(Curve(LABELS[name], lengths, errors, style))
        label = "error / sum |a b|" if side is axes[0] else ""
        draw_errors(side, lines, xlabel="products a sum", ylabel=label, title=title)
    add_legend(figure, axes[0], columns=4)
    save_figure(figure, path)


@drawn_as("segmentation.png", problem="segmentation")
@drawn_as("normalised.png", problem="normalised")
def draw_losses(results: list[Result], path: Path) -> None:
    """Draw the held-out loss of every variant of a problem, and that of FP32."""
    problem = results[0]["problem"]
    draw_beside(results, {problem: f"{problem.capitalize()} model"}, path)
