"""Draw training curves, the share of cancelled updates, and accuracy over memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.bfloat16_models.policies import FP32, FP32_WEIGHTS, KAHAN, STANDARD, STOCHASTIC, TRADE_OFF
from experiments.bfloat16_models.problems import PROBLEMS, TASKS
from experiments.curves import curves, last, one_scale, short
from experiments.experiment import drawn_as
from experiments.measurement import final, final_value, select
from simfloat.plots import (
    COLUMN_WIDTH,
    FULL_WIDTH,
    SMALL,
    Curve,
    Point,
    add_legend,
    draw_curves,
    draw_trade_off,
    new_figure,
    save_figure,
)
from simfloat.plots.curves import plain_label
from simfloat.plots.figure import add_title
from simfloat.studies import Result

#: Every variant has the same style as in the figures of update cancellation.
STYLES = {FP32.key: 0, STANDARD.key: 2, STOCHASTIC.key: 4, KAHAN.key: 5, FP32_WEIGHTS.key: 6}


@drawn_as("training.png")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw how much worse the training data are fitted than in 32 bits: Figures 1, 3 and 5 of the paper."""
    figure, axes = new_figure(rows=2, columns=3, width=FULL_WIDTH, height=4.4)
    worst = []
    *places, corner = axes.flat
    handles: dict[str, Any] = {}
    for place, (problem, task) in zip(places, TASKS.items(), strict=True):
        runs = [run for run in select(results, problem=problem) if run["variant"] in {*STYLES, "given"}]
        key = f"train_{task.measure}"
        fp32 = np.array([run[key] for run in select(runs, variant=FP32.key)], np.float64)
        others = curves([run for run in runs if run["variant"] != FP32.key], key, STYLES)
        lines = [curve._replace(values=task.shortfall(curve.values, fp32), smooth=2) for curve in others]
        worst += [(np.mean([final_value(row) for row in line.values]), line.label, task.title) for line in lines]
        worse = f"{task.name} below" if task.is_share else f"{task.name} above"
        draw_curves(place, lines, xlabel="iteration", ylabel=f"{worse} 32-bit (%)", title=task.title)
        handles |= dict(zip(*reversed(place.get_legend_handles_labels()), strict=True))
    one_scale(places)
    corner.set_axis_off()
    corner.legend(handles.values(), handles, loc="center", frameon=False, fontsize=SMALL + 1, handlelength=3)
    if np.isfinite([each[0] for each in worst]).all():
        value, label, title = max(worst, key=lambda each: each[0])
        add_title(figure, f"Largest gap to 32-bit at the end: {plain_label(label)}, {short(value)} % ({title})")
    save_figure(figure, path)


@drawn_as("cancelled.png", given=False)
def draw_cancelled(results: list[Result], path: Path) -> None:
    """Draw the share of weights that an update leaves unchanged under the standard algorithm, for each problem."""
    figure, axes = new_figure(rows=1, columns=1, width=COLUMN_WIDTH, height=3.2)
    lines = []
    for style, problem in enumerate(PROBLEMS):
        runs = select(results, problem=problem, variant=STANDARD.key)
        done = 100 * np.array(runs[0]["iteration"]) / runs[0]["iteration"][-1]
        lines.append(Curve(TASKS[problem].title, done, 100 * np.array([run["unchanged"] for run in runs]), style))
    draw_curves(axes, lines, xlabel="percent of the run", ylabel="weights left unchanged (%)")
    axes.set_ylim(0, 100)
    add_legend(figure, axes, columns=2)
    least, most = min(lines, key=last), max(lines, key=last)
    shares = f"{last(least):.0f} % ({least.label}) to {last(most):.0f} % ({most.label})"
    add_title(figure, f"At the end, {shares} of the weights stay unchanged")
    save_figure(figure, path)


@drawn_as("memory.png", given=False)
def draw_memory(results: list[Result], path: Path) -> None:
    """Draw the AUC of DLRM over the memory of its weights: Figure 4 of the paper."""
    figure, axes = new_figure(rows=1, columns=1, width=COLUMN_WIDTH, height=2.8)
    reference = 100 * final(results, "clicks", FP32.key, "auc")
    points = []
    for variant in TRADE_OFF:
        run = select(results, problem="clicks", variant=variant.key)[0]
        gain = 100 * final(results, "clicks", variant.key, "auc") - reference
        points.append(Point(variant.label, run["weight_bytes"] + run["kahan_bytes"], gain))
    draw_trade_off(axes, points, xlabel="bytes per weight", ylabel="AUC above 32-bit (points)")
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    save_figure(figure, path)
