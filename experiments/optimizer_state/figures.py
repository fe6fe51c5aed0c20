"""Draw the second moment compared with FP32, the share of its elements that stall, and losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.curves import last, short, signed
from experiments.experiment import drawn_as
from experiments.measurement import select
from experiments.optimizer_state.policies import VARIANTS
from experiments.optimizer_state.stall import DEFAULT
from simfloat.plots import FULL_WIDTH, SMALL, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

#: Losses that are more percent above FP32 than this are not drawn as a curve.
FAR = 100

STYLES = {variant.key: number for number, variant in zip((0, 2, 6, 4, 3, 5), VARIANTS, strict=True)} | {"given": 1}


@drawn_as("second-moment.png", kind="moment", beta2=DEFAULT)
def draw_moment(results: list[Result], path: Path) -> None:
    """Draw the mean second moment on the left, and the share of its elements that stall on the right."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.1)
    moments = moment_curves(results, "moment")
    draw_curves(left, moments, xlabel="step", ylabel="mean second moment", log=True)
    draw_curves(right, moment_curves(results, "stalled"), xlabel="step", ylabel="share of elements that stall")
    rows = results[0]["rows"]
    for axes in (left, right):
        axes.axvline(rows[len(rows) // 3 - 1]["step"], color=foreground(), linestyle=":", linewidth=1)
    right.set_ylim(-0.03, 1.03)
    add_legend(figure, left, columns=3)
    ends = {line.label: short(last(line)) for line in moments}
    shown = "; ".join(f"{label}: {end}" for label, end in ends.items() if label in ("FP32", "BF16", "BF16, stochastic"))
    add_title(figure, f"Mean second moment at the end – {shown}")
    save_figure(figure, path)


def moment_curves(results: list[Result], key: str) -> list[Curve]:
    """Return a curve for each format."""
    curves = []
    for variant in dict.fromkeys(result["variant"] for result in results):
        runs = select(results, variant=variant)
        steps = np.array([row["step"] for row in runs[0]["rows"]])
        values = np.array([[row[key] for row in run["rows"]] for run in runs])
        curves.append(Curve(runs[0]["label"], steps, values, STYLES[variant]))
    return curves


@drawn_as("training.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw how far the loss is above that with FP32 moments, for both values of beta2; runs that diverge are named."""
    titles = {"long-memory": "beta2 = 0.999", "short-memory": "beta2 = 0.95"}
    figure, columns = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.8)
    found = []
    for axes, (problem, title) in zip(columns, titles.items(), strict=True):
        curves, lost = excess_curves(select(results, problem=problem))
        ylabel = "loss above FP32 moments (%)" if axes is columns[0] else ""
        draw_curves(axes, curves, xlabel="step", ylabel=ylabel, title=title)
        axes.axhline(0, color=foreground(), linewidth=0.8)
        found += [(last(curve), curve.label, title) for curve in curves]
        if lost:
            text = f"diverge: {'; '.join(lost)}"
            axes.text(0.03, 0.95, text, transform=axes.transAxes, fontsize=SMALL, va="top")
    columns[1].set_ylim(columns[0].get_ylim())
    add_legend(figure, columns[0], columns=3)
    if found:
        value, label, title = max(found)
        add_title(figure, f"Largest loss of a run that converges: {label}, {signed(value)} % ({title})")
    save_figure(figure, path)


def excess_curves(results: list[Result]) -> tuple[list[Curve], list[str]]:
    """Return a curve for each format relative to FP32, and the labels of the formats that diverge."""
    losses = {variant: loss_of(results, variant) for variant in dict.fromkeys(result["variant"] for result in results)}
    fp32 = losses.pop("fp32")
    curves, lost = [], []
    for variant, values in losses.items():
        run = select(results, variant=variant)[0]
        excess = 100 * (values / fp32 - 1)
        if not np.mean(excess) < FAR:
            lost.append(run["label"])
            continue
        curves.append(Curve(run["label"], np.array(run["iteration"]), excess, STYLES[variant], 5))
    return curves, lost


def loss_of(results: list[Result], variant: str) -> NDArray[np.float64]:
    """Return the loss curves of a format (seeds, records)."""
    runs = sorted(select(results, variant=variant), key=lambda run: run["seed"])
    return np.array([run["loss"] for run in runs], np.float64)
