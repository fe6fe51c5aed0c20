"""Draw the losses of every problem relative to FP32."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import short
from experiments.experiment import drawn_as
from experiments.measurement import final, select
from simfloat.plots import FULL_WIDTH, SMALL, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground, label_axes
from simfloat.studies import Result

#: Losses that differ from FP32 by more percent than this are written, not drawn.
FAR = 60


@drawn_as("rules.png", given=False, kind="training")
def draw_rules(results: list[Result], path: Path) -> None:
    """Draw a row for each policy of each problem: the final loss of every seed relative to FP32, and the mean."""
    figure, axes = new_figure(rows=1, columns=1, width=FULL_WIDTH, height=3.6)
    close = []
    lines = {(run["problem"], run["variant"]): f"{run['problem']}: {run['label']}" for run in results}
    drawn = [key for key in lines if key[1] not in ("fp32", "o0")]
    for row, (problem, variant) in enumerate(drawn):
        reference = "o0" if select(results, problem=problem, variant="o0") else "fp32"
        excess = 100 * (final(results, problem, variant) / final(results, problem, reference) - 1)
        mean = float(np.mean(excess))
        if not abs(mean) < FAR:
            text = f"{1 + mean / 100:,.0f} times the loss of FP32" if np.isfinite(mean) else "NaN"
            color = axes.get_facecolor()
            axes.text(0, row, text, fontsize=SMALL, ha="center", va="center", backgroundcolor=color)
            continue
        close.append(abs(mean))
        axes.plot(excess, np.full(len(excess), row), "o", color="#0072b2", markersize=3.5, markerfacecolor="none")
        axes.plot([mean], [row], "|", color=foreground(), markersize=9, markeredgewidth=1.6)
    axes.axvline(0, color=foreground(), linewidth=0.8, linestyle=":", zorder=0)
    axes.set_yticks(range(len(drawn)), [lines[key] for key in drawn])
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda value, place: f"{value:+g}" if value else "0")
    label_axes(axes, xlabel="final held-out loss above FP32 (%)", ylabel="", title="Every seed, and the mean (bar)")
    if close:
        text = f"{len(close)} of {len(drawn)} trainings end within {short(max(close))} % of FP32"
        add_title(figure, f"{text}, {len(drawn) - len(close)} fail" if len(drawn) > len(close) else text)
    save_figure(figure, path)
