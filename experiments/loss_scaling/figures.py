"""The figures: the gradients that a scale brings into FP16, and the course of the losses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import simfloat as sf
from experiments.curves import curves
from experiments.experiment import drawn_as
from experiments.loss_scaling.findings import gradients
from experiments.loss_scaling.jobs import SCALES
from experiments.loss_scaling.problems import PROBLEMS
from experiments.measurement import select
from simfloat.plots import FULL_WIDTH, add_legend, draw_curves, draw_exponents, new_figure, save_figure
from simfloat.studies import Result

TITLES = {"regression": "Autoencoder, mean squared error", "classification": "Classifier, cross-entropy"}

#: Every variant has the same style in both panels.
STYLES = {"fp32": 0, "unscaled": 2, **{f"scale-{k}": style for k, style in zip(SCALES, (1, 4, 6), strict=True)}}

#: The scale that is compared with no scale.
SHOWN = 2.0**3


@drawn_as("gradients.png", given=False, kind="training")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the gradients of activations in FP32, of both problems, with the ranges of FP16 without and with a scale."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.9, legend=0.2)
    figure.subplots_adjust(top=1 - 0.62 / 2.9)
    for side, problem in zip(axes, PROBLEMS, strict=True):
        total: Counter[int | str] = Counter()
        for histogram in gradients(results, problem):
            total.update(histogram)
        draw_exponents(side, total, format=sf.FP16, scale=SHOWN, title=TITLES[problem], name="gradient")
    add_legend(figure, axes[0], columns=3)
    save_figure(figure, path)


@drawn_as("losses.png", kind="training")
def draw_losses(results: list[Result], path: Path) -> None:
    """Draw the held-out loss of every variant, one panel per problem."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.9, legend=0.4)
    for side, problem in zip(axes, PROBLEMS, strict=True):
        runs = select(results, problem=problem)
        label = "" if side is axes[1] else "held-out loss"
        lines = curves(runs, "loss", STYLES, smooth=3)
        draw_curves(side, lines, xlabel="step", ylabel=label, title=TITLES[problem], log=True)
    add_legend(figure, axes[0], columns=3)
    save_figure(figure, path)
