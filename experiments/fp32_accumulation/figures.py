"""Draw errors of sums over their length, and the losses of the trainings."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import draw_beside, last, short
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
from simfloat.plots.figure import add_title
from simfloat.studies import Result

#: The style of each accumulator, in both panels.
ACCUMULATOR_STYLES = {name: style for name, style in zip(ACCUMULATORS, (0, 1, 3, 2), strict=True)}


@drawn_as("sums.png", kind="sums")
def draw_sums(results: list[Result], path: Path) -> None:
    """Draw the error of sums over their length, for both kinds of data."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.9)
    ratios = []
    for side, (data, title) in zip(axes, TITLES.items(), strict=True):
        lines = []
        for name, style in ACCUMULATOR_STYLES.items():
            lengths, errors = table_over_seeds(results, "error", "length", data=data, accumulator=name)
            lines.append(Curve(LABELS[name], lengths, errors, style))
        label = "error / sum |a b|" if side is axes[0] else ""
        draw_errors(side, lines, xlabel="products a sum", ylabel=label, title=title)
        ratios += [(last(line) / last(lines[0]), line.label, title) for line in lines[1:]]
    add_legend(figure, axes[0], columns=4)
    ratio, label, title = max(ratios)
    text = (
        f"Sums of {lines[0].x[-1]:,} products {title.split(':')[0]}: {label} errs {short(ratio)} times as much as FP32"
    )
    add_title(figure, text.replace("products all", "products"))
    save_figure(figure, path)


@drawn_as("segmentation.png", problem="segmentation")
@drawn_as("normalised.png", problem="normalised")
def draw_losses(results: list[Result], path: Path) -> None:
    """Draw the held-out loss of every variant of a problem, relative to FP32."""
    problem = results[0]["problem"]
    draw_beside(results, {problem: f"{problem.capitalize()} model"}, path)
