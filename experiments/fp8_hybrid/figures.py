"""The figures: the loss with each format, and the effect of each on a gradient."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import draw_beside
from experiments.experiment import drawn_as
from experiments.fp8_hybrid.findings import measured
from experiments.fp8_hybrid.policies import VARIANTS
from experiments.fp8_hybrid.problems import PROBLEMS
from simfloat.plots import FULL_WIDTH, add_legend, draw_points, new_figure, save_figure
from simfloat.studies import Result

TITLES = {"digits": "MLP", "convolutional": "Convolutions and batch norm"}

#: The lines of the first figure: more would be indistinguishable.
DRAWN = ("fp32", "fp16", "hybrid", "e4m3", "hybrid-bare", "e4m3-bare", "e4m3-loss", "given")


@drawn_as("fp8-hybrid.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw the held-out loss with each format, and that of FP32."""
    draw_beside([run for run in results if run["variant"] in DRAWN], TITLES, path)


@drawn_as("gradients.png", kind="gradients")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the error of the gradient, and the share of gradients that became zero, under every policy."""
    figure, (left, right) = new_figure(1, 2, FULL_WIDTH, 3.3, legend=0.25)
    figure.subplots_adjust(left=0.27, wspace=0.08)
    variants = VARIANTS[1:]
    labels = [each.label for each in variants]
    errors = {name: [measured(results, name, each.key, "error") for each in variants] for name in PROBLEMS}
    lost = {name: [100 * measured(results, name, each.key, "lost") for each in variants] for name in PROBLEMS}
    draw_points(left, labels, errors, xlabel="relative error of the gradient")
    draw_points(right, labels, lost, xlabel="gradients lost as operands (%)", log=False)
    right.set_yticklabels([])
    add_legend(figure, left, columns=2)
    save_figure(figure, path)
