"""Draw the gradients that a scale brings into FP16, and the losses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import simfloat as sf
from experiments.curves import curves, last
from experiments.experiment import drawn_as
from experiments.loss_scaling.findings import gradients
from experiments.loss_scaling.jobs import SCALES
from experiments.measurement import select
from simfloat.plots import FULL_WIDTH, add_legend, draw_curves, draw_exponents, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.plots.formats import exponents_finding
from simfloat.studies import Result

TITLES = {"regression": "Autoencoder, mean squared error", "classification": "Classifier, cross-entropy"}

#: The style of each variant, in both panels.
STYLES = {"fp32": 0, "unscaled": 2, **{f"scale-{k}": style for k, style in zip(SCALES, (1, 4, 6), strict=True)}}

#: The scale that is compared with none.
SHOWN = 2.0**3


@drawn_as("gradients.png", given=False, kind="training")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the gradients of activations in FP32, and which of them FP16 keeps with and without a scale."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.1)
    findings = []
    for side, problem in zip(axes, TITLES, strict=True):
        total: Counter[int | str] = Counter()
        for histogram in gradients(results, problem):
            total.update(histogram)
        draw_exponents(side, total, format=sf.FP16, scale=SHOWN, title=TITLES[problem], name="gradient")
        findings.append(exponents_finding(total, sf.FP16, SHOWN, "gradient"))
    add_legend(figure, axes[0], columns=3)
    add_title(figure, f"{TITLES['regression'].split(',')[0]}: {findings[0]}")
    save_figure(figure, path)


@drawn_as("losses.png", kind="training")
def draw_losses(results: list[Result], path: Path) -> None:
    """Draw the held-out loss of every variant, in a panel for each problem."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.1)
    ends = {}
    for side, problem in zip(axes, TITLES, strict=True):
        runs = select(results, problem=problem)
        label = "" if side is axes[1] else "held-out loss"
        lines = curves(runs, "loss", STYLES, smooth=3)
        draw_curves(side, lines, xlabel="step", ylabel=label, title=TITLES[problem], log=True)
        ends[problem] = [f"{line.label}: {last(line):.3g}" for line in lines[:2]]
    add_legend(figure, axes[0], columns=3)
    add_title(figure, f"Final loss of the autoencoder – {'; '.join(ends['regression'])}")
    save_figure(figure, path)
