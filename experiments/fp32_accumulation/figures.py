"""The figures: errors of sums over their length, and the course of each training."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from experiments.curves import curves
from experiments.experiment import Drawing
from experiments.fp32_accumulation.jobs import KINDS, VARIANTS
from experiments.fp32_accumulation.problems import PROBLEMS
from experiments.fp32_accumulation.sums import ACCUMULATORS, LABELS
from experiments.measurement import select, table_over_seeds
from experiments.operands import TITLES
from experiments.options import Options
from simfloat.plots import (
    COLUMN_WIDTH,
    FULL_WIDTH,
    Curve,
    add_legend,
    draw_curves,
    draw_errors,
    new_figure,
    save_figure,
)
from simfloat.studies import Result

SUMS = "sums.png"

#: The figure of each problem's losses.
LOSSES = {problem: f"{problem}.png" for problem in PROBLEMS}

#: Every variant looks the same, as does every accumulator.
STYLES = {variant.key: number for number, variant in enumerate([*VARIANTS, *KINDS[2:]])}
ACCUMULATOR_STYLES = {name: style for name, style in zip(ACCUMULATORS, (0, 1, 3, 2), strict=True)}


def figure_names(options: Options) -> tuple[str, ...]:
    """The files that `figures` draws."""
    return tuple(LOSSES.values()) if options.policy is not None else (*LOSSES.values(), SUMS)


def figures(results: list[Result]) -> dict[str, Drawing]:
    """What draws each file."""
    losses = {name: partial(draw_losses, select(results, problem=problem)) for problem, name in LOSSES.items()}
    lengths = select(results, kind="sums")
    return {**losses, SUMS: partial(draw_sums, lengths)} if lengths else {**losses}


def draw_sums(results: list[Result], path: Path) -> None:
    """The error of sums over their length, for either kind of data."""
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


def draw_losses(results: list[Result], path: Path) -> None:
    """The held-out loss of every variant of a problem."""
    figure, axes = new_figure(rows=1, columns=1, width=COLUMN_WIDTH, height=2.9, legend=0.6)
    lines = curves(results, "loss", STYLES)
    draw_curves(axes, lines, xlabel="step", ylabel="held-out cross-entropy", log=True)
    add_legend(figure, axes, columns=2)
    save_figure(figure, path)
