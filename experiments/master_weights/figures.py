"""The figures: losses with unchanged weights below, and the gradients of weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import simfloat as sf
from experiments.curves import curves
from experiments.experiment import drawn_as
from experiments.master_weights.findings import gradients
from experiments.master_weights.problems import LR_EXPONENT
from simfloat.plots import COLUMN_WIDTH, FULL_WIDTH, add_legend, draw_curves, draw_exponents, new_figure, save_figure
from simfloat.studies import Result

#: Every variant has the same style in both panels.
STYLES = {"fp32": 0, "master": 1, "fp16-weights": 2}


@drawn_as("losses.png", kind="training")
def draw_losses(results: list[Result], path: Path) -> None:
    """Draw the held-out loss, and the share of weights that a nonzero update left unchanged."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.6, legend=0.2)
    draw_curves(left, curves(results, "loss", STYLES), xlabel="step", ylabel="held-out cross-entropy", log=True)
    draw_curves(right, curves(results, "unchanged", STYLES), xlabel="step", ylabel="share of weights unchanged")
    right.set_ylim(-0.03, 1.03)
    add_legend(figure, left, columns=3)
    save_figure(figure, path)


@drawn_as("gradients.png", given=False, kind="training")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the gradients of weights in FP32, with FP16's range for gradients multiplied by the learning rate."""
    figure, axes = new_figure(rows=1, columns=1, width=COLUMN_WIDTH, height=2.7, legend=0.2)
    figure.subplots_adjust(top=1 - 0.62 / 2.7)
    total: Counter[int | str] = Counter()
    for histogram in gradients(results):
        total.update(histogram)
    draw_exponents(axes, total, format=sf.FP16, scale=2.0**LR_EXPONENT, title="Gradients of weights", name="gradient")
    add_legend(figure, axes, columns=3)
    save_figure(figure, path)
