"""Draw the loss in each format, and the error of a gradient in each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import draw_beside, short
from experiments.experiment import drawn_as
from experiments.fp8_hybrid.findings import measured
from experiments.fp8_hybrid.policies import VARIANTS
from experiments.fp8_hybrid.problems import PROBLEMS
from simfloat.plots import FULL_WIDTH, add_legend, draw_points, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.studies import Result

TITLES = {"digits": "MLP", "convolutional": "Convolutions and batch norm"}

#: The variants of the first figure; more lines would run together.
DRAWN = ("fp32", "fp16", "hybrid", "e4m3", "hybrid-bare", "e4m3-bare", "e4m3-loss", "given")


@drawn_as("fp8-hybrid.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw the held-out loss in each format, relative to FP32."""
    draw_beside([run for run in results if run["variant"] in DRAWN], TITLES, path)


@drawn_as("gradients.png", kind="gradients")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the error of the gradient, and the share of gradients that became zero, under every policy."""
    figure, (left, right) = new_figure(1, 2, FULL_WIDTH, 3.4)
    variants = VARIANTS[1:]
    labels = [each.label for each in variants]
    errors = {name: [measured(results, name, each.key, "error") for each in variants] for name in PROBLEMS}
    lost = {name: [100 * measured(results, name, each.key, "lost") for each in variants] for name in PROBLEMS}
    draw_points(left, labels, errors, xlabel="relative error of the gradient")
    draw_points(right, labels, lost, xlabel="gradients lost as operands (%)", log=False)
    right.set_yticklabels([])
    add_legend(figure, left, columns=2)
    share, label, problem = max(
        (float(np.mean(values)), label, name)
        for name in PROBLEMS
        for label, values in zip(labels, lost[name], strict=True)
    )
    add_title(figure, f"{label} loses the most gradients: {short(share)} % ({problem})")
    save_figure(figure, path)
