"""Draw the saturated gains by step, and the final loss of every arm relative to FP32."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import signed
from experiments.experiment import drawn_as
from experiments.measurement import select
from experiments.norm_gains.findings import losses, values
from experiments.norm_gains.jobs import ARMS, STEPS, TINY_STEPS
from simfloat.plots import FULL_WIDTH, Curve, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground, label_axes
from simfloat.studies import Result

#: Lines of the left figure: the rule, its label, and its style.
LINES = [("floor", "floor", 2), ("even", "even", 3), ("rceil", "rceil", 0)]


@drawn_as("gains.png")
def draw_gains(results: list[Result], path: Path) -> None:
    """Draw saturated gains of the FP32 models by step, and a row of final losses for each arm."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.0)
    runs = select(results, arm="fp32")
    records = len(runs[0]["gain"])
    steps = np.linspace(0, TINY_STEPS if runs[0]["tiny"] else STEPS, records + 1)[1:]
    curves = [
        Curve(label, steps, 100 * np.array([run[f"saturated_{rule}"] for run in runs]), style)
        for rule, label, style in LINES
    ]
    draw_curves(left, curves, xlabel="step", ylabel="saturated gains (%)", title="Model trained in FP32, by rule")
    left.legend(loc="upper left")
    fp32, arms = losses(results, "fp32"), [arm for arm in ARMS if arm != "fp32"]
    for row, arm in enumerate(arms):
        excess = 100 * (losses(results, arm) / fp32 - 1)
        right.plot(excess, np.full(len(excess), row), "o", color="#0072b2", markersize=3.5, markerfacecolor="none")
        right.plot([excess.mean()], [row], "|", color=foreground(), markersize=9, markeredgewidth=1.6)
    right.axvline(0, color=foreground(), linewidth=0.8, linestyle=":", zorder=0)
    right.set_yticks(range(len(arms)), arms)
    right.set_ylim(len(arms) - 0.4, -0.6)
    label_axes(right, xlabel="held-out loss above FP32 (%)", ylabel="", title="MXFP8: every seed, and the mean (bar)")
    share = 100 * float(values(results, "saturated_floor").mean())
    gaps = [signed(100 * float(np.mean(losses(results, arm) / fp32 - 1))) for arm in ("floor", "rceil")]
    add_title(figure, f"Floor saturates {share:.0f} % of the gains: loss {gaps[0]} %, rceil {gaps[1]} %")
    save_figure(figure, path)
