"""Draw the errors of the rules for scales, and the losses of the policies relative to BF16."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.block_scaling.rules import FORMATS, RULES
from experiments.curves import short, signed
from experiments.experiment import drawn_as
from experiments.measurement import final, over_seeds, select
from simfloat.plots import FULL_WIDTH, SMALL, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.curves import plain_label
from simfloat.plots.figure import add_title, foreground, label_axes
from simfloat.studies import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Losses that differ from BF16 by more percent than this are written, not drawn.
FAR = 10

#: A marker and a colour for each rule.
MARKS = {"floor": ("v", "#d55e00"), "ceil": ("^", "#56b4e9"), "rceil": ("o", "#0072b2"), "even": ("D", "#009e73")}


@drawn_as("rules.png", kind="rules")
def draw_rules(results: list[Result], path: Path) -> None:
    """Draw the share of blocks that saturate, and the errors on both kinds of values, for every format and rule."""
    figure, columns = new_figure(rows=1, columns=3, width=FULL_WIDTH, height=2.8)
    panels = (
        ("blocks", "normal", 100, "blocks that saturate (%)"),
        ("error", "normal", 100, "error (%), normal values"),
        ("error", "heavy-tailed", 100, "error (%), heavy-tailed values"),
    )
    saturated = {
        rule: 100
        * max(np.mean(over_seeds(results, "blocks", data="normal", format=name, rule=rule)) for name in FORMATS)
        for rule in RULES
    }
    for axes, (key, data, factor, title) in zip(columns, panels, strict=True):
        for number, rule in enumerate(RULES):
            marker, color = MARKS[rule]
            values = [factor * np.mean(over_seeds(results, key, data=data, format=name, rule=rule)) for name in FORMATS]
            places = np.arange(len(FORMATS)) + 0.16 * (number - 1.5)
            axes.plot(places, values, marker, color=color, markersize=4, markerfacecolor="none", label=rule)
        axes.set_xticks(range(len(FORMATS)), FORMATS)
        axes.set_ylim(bottom=-0.05 * axes.get_ylim()[1])
        label_axes(axes, xlabel="format", ylabel=title, title="")
    add_legend(figure, columns[0], columns=4)
    shares = ", ".join(f"{rule} {short(share)} %" for rule, share in saturated.items())
    add_title(figure, f"Largest share of blocks that saturate: {shares}")
    save_figure(figure, path)


@drawn_as("training.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw loss curves on the left, and the final loss of every seed relative to BF16 on the right."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.0)
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
    others = {variant: label for variant, label in labels.items() if variant != "bf16"}
    draw_excess(right, results, others)
    add_title(figure, largest_excess(results, others))
    save_figure(figure, path)


def excess_of(results: list[Result], variant: str) -> NDArray[np.float64]:
    """Return how many percent the final loss of a policy is above that of BF16, for every seed."""
    return 100 * (final(results, "gpt", variant) / final(results, "gpt", "bf16") - 1)


def largest_excess(results: list[Result], labels: dict[str, str]) -> str:
    """Return the policy with the largest final loss relative to BF16."""
    means = {label: float(np.mean(excess_of(results, variant))) for variant, label in labels.items()}
    if not means or not np.isfinite([*means.values()]).all():
        return ""
    label = max(means, key=lambda each: means[each])
    return f"Largest loss relative to BF16: {plain_label(label)}, {signed(means[label])} %"


def draw_excess(axes: Axes, results: list[Result], labels: dict[str, str]) -> None:
    """Draw a row for each policy: its loss relative to BF16 for every seed, and the mean; large ones as a number."""
    for row, variant in enumerate(labels):
        excess = excess_of(results, variant)
        mean = float(np.mean(excess))
        if not abs(mean) < FAR:
            axes.text(
                0, row, f"{mean:+.0f} %", fontsize=SMALL, ha="center", va="center", backgroundcolor=axes.get_facecolor()
            )
            continue
        axes.plot(excess, np.full(len(excess), row), "o", color="#0072b2", markersize=3.5, markerfacecolor="none")
        axes.plot([mean], [row], "|", color=foreground(), markersize=11, markeredgewidth=1.6)
    axes.axvline(0, color=foreground(), linewidth=0.8, linestyle=":", zorder=0)
    axes.set_yticks(range(len(labels)), labels.values())
    axes.set_ylim(len(labels) - 0.4, -0.6)
    label_axes(axes, xlabel="final loss above BF16 (%)", ylabel="", title="Every seed, and the mean (bar)")
