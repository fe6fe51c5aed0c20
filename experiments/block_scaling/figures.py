"""The figures: errors of the rules, and losses of the policies relative to BF16."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.block_scaling.rules import FORMATS, RULES
from experiments.experiment import drawn_as
from experiments.measurement import final, over_seeds, select
from simfloat.plots import FULL_WIDTH, SMALL, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.figure import label_axes
from simfloat.studies import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Losses above BF16 by more than this percentage are written as a number, not drawn.
FAR = 10

#: A marker and a colour for each rule.
MARKS = {"floor": ("v", "#d55e00"), "ceil": ("^", "#56b4e9"), "rceil": ("o", "#000000"), "even": ("D", "#009e73")}


@drawn_as("rules.png", kind="rules")
def draw_rules(results: list[Result], path: Path) -> None:
    """Draw for every format and rule the share of blocks that saturate, and the error on either kind of values."""
    figure, columns = new_figure(rows=1, columns=3, width=FULL_WIDTH, height=2.5, legend=0.25)
    panels = (
        ("blocks", "normal", 100, "blocks that saturate (%)"),
        ("error", "normal", 100, "error (%), normal"),
        ("error", "heavy-tailed", 100, "error (%), heavy-tailed"),
    )
    for axes, (key, data, factor, title) in zip(columns, panels, strict=True):
        for number, rule in enumerate(RULES):
            marker, color = MARKS[rule]
            values = [factor * np.mean(over_seeds(results, key, data=data, format=name, rule=rule)) for name in FORMATS]
            places = np.arange(len(FORMATS)) + 0.16 * (number - 1.5)
            axes.plot(places, values, marker, color=color, markersize=4, markerfacecolor="none", label=rule)
        axes.set_xticks(range(len(FORMATS)), FORMATS)
        axes.set_ylim(bottom=-0.05 * axes.get_ylim()[1])
        label_axes(axes, xlabel="", ylabel="", title=title)
    add_legend(figure, columns[0], columns=4)
    save_figure(figure, path)


@drawn_as("training.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw loss curves on the left, and the final loss of every seed relative to BF16 on the right."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.9)
    figure.subplots_adjust(wspace=0.62)
    labels = {result["variant"]: result["label"] for result in results}
    shown = [variant for variant in labels if variant in ("bf16", "nvfp4", "mxfp4", "given")]
    styles = {"bf16": 0, "nvfp4": 4, "mxfp4": 2, "given": 6}
    curves = []
    for variant in shown:
        runs = select(results, variant=variant)
        values = np.array([run["loss"] for run in runs], np.float64)
        curves.append(Curve(labels[variant], np.array(runs[0]["iteration"]), values, styles[variant], 3))
    draw_curves(left, curves, xlabel="step", ylabel="held-out cross-entropy")
    left.legend(frameon=False, fontsize=SMALL)
    draw_excess(right, results, {variant: label for variant, label in labels.items() if variant != "bf16"})
    save_figure(figure, path)


def draw_excess(axes: Axes, results: list[Result], labels: dict[str, str]) -> None:
    """Draw a line for each policy: its loss relative to BF16 for every seed, and the mean; far ones as a number."""
    bf16 = final(results, "gpt", "bf16")
    for row, variant in enumerate(labels):
        excess = 100 * (final(results, "gpt", variant) / bf16 - 1)
        mean = float(np.mean(excess))
        if not abs(mean) < FAR:
            axes.text(0, row, f"{mean:+.0f} %", fontsize=SMALL, ha="center", va="center", backgroundcolor="white")
            continue
        axes.plot(excess, np.full(len(excess), row), "o", color="#0072b2", markersize=3.5, markerfacecolor="none")
        axes.plot([mean], [row], "|", color="black", markersize=11, markeredgewidth=1.6)
    axes.axvline(0, color="black", linewidth=0.8, linestyle=":", zorder=0)
    axes.set_yticks(range(len(labels)), labels.values())
    axes.set_ylim(len(labels) - 0.4, -0.6)
    label_axes(axes, xlabel="final loss over that of BF16 (%)", ylabel="", title="every seed, and the mean")
