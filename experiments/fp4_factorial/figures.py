"""Draw the final loss of every arm relative to FP32."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import signed
from experiments.experiment import drawn_as
from experiments.fp4_factorial.findings import MX, NV, losses
from experiments.fp4_factorial.jobs import ARMS, name_of
from simfloat.plots import FULL_WIDTH, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground, label_axes
from simfloat.studies import Result

#: The color of each format.
COLORS = {MX: "#d55e00", NV: "#0072b2"}


@drawn_as("arms.png")
def draw_arms(results: list[Result], path: Path) -> None:
    """Draw a row for each arm: the excess of every seed, and the mean."""
    arms = [name for name, arm in ARMS.items() if arm is not None]
    figure, axes = new_figure(rows=1, columns=1, width=FULL_WIDTH, height=1.0 + 0.2 * len(arms))
    fp32, means = losses(results, "FP32"), {}
    for row, name in enumerate(arms):
        excess = 100 * (losses(results, name) / fp32 - 1)
        means[name] = float(excess.mean())
        color = COLORS[name.partition(",")[0]]
        axes.plot(excess, np.full(len(excess), row), "o", color=color, markersize=3.5, markerfacecolor="none")
        axes.plot([means[name]], [row], "|", color=foreground(), markersize=9, markeredgewidth=1.6)
    axes.axvline(0, color=foreground(), linewidth=0.8, linestyle=":", zorder=0)
    axes.set_yticks(range(len(arms)), arms)
    axes.set_ylim(len(arms) - 0.4, -0.6)
    label_axes(axes, xlabel="held-out loss above FP32 (%)", ylabel="", title="Every seed, and the mean (bar)")
    bare, whole = (
        " and ".join(f"{signed(means[name_of(format, *recipe)])} %" for format in (MX, NV))
        for recipe in ((False, False), (True, True))
    )
    add_title(figure, f"{MX} and {NV}, bare: {bare}; both stochastic and rotated: {whole}")
    save_figure(figure, path)
