"""The figures: loss in each format, and what each does to a gradient."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from experiments.curves import draw_losses
from experiments.experiment import Drawing
from experiments.fp8_hybrid.findings import measured
from experiments.fp8_hybrid.policies import VARIANTS
from experiments.fp8_hybrid.problems import PROBLEMS
from experiments.measurement import select
from experiments.options import Options
from simfloat.plots import FULL_WIDTH, add_legend, draw_points, new_figure, save_figure
from simfloat.studies import Result

TRAINING, GRADIENTS = "fp8-hybrid.png", "gradients.png"

TITLES = {
    "digits": ("MLP", "held-out cross-entropy"),
    "convolutional": ("Convolutions and batch norm", "held-out cross-entropy"),
}

#: What the first figure has: more lines could not be told apart.
DRAWN = ("fp32", "fp16", "hybrid", "e4m3", "hybrid-bare", "e4m3-bare", "e4m3-loss", "given")


def figure_names(options: Options) -> tuple[str, ...]:
    """The files that `figures` draws."""
    return (TRAINING,) if options.policy is not None else (TRAINING, GRADIENTS)


def figures(results: list[Result]) -> dict[str, Drawing]:
    """What draws each file."""
    training = [run for run in select(results, kind="training") if run["variant"] in DRAWN]
    drawn: dict[str, Drawing] = {TRAINING: partial(draw_losses, training, TITLES)}
    gradients = select(results, kind="gradients")
    return drawn | ({GRADIENTS: partial(draw_gradients, gradients)} if gradients else {})


def draw_gradients(results: list[Result], path: Path) -> None:
    """The error of the gradient, and the share of gradients that became zero, under every policy."""
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
