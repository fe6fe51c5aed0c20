"""The figures: loss and cancelled updates over the iterations, and the two theorems."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.experiment import Result
from experiments.runner import write_file
from experiments.update_cancellation.findings import theorem_2_bound
from experiments.update_cancellation.theorem1 import safe_radius
from simfloat.plots import Curve, draw_curves, new_figure, save_figure

LABELS = {
    "fp32": "fp32",
    "forward-backward-only": "bf16 forward and backward only",
    "bf16-standard": "bf16 standard",
    "update-only": "bf16 update only",
    "bf16-stochastic": "bf16 stochastic update",
    "bf16-kahan": "bf16 Kahan update",
    "bf16-fp32-weights": "bf16 with fp32 weights",
    "theorem-2": "bf16 forward and backward only",
}
TITLES = {
    "synthetic": ("Synthetic least squares", "half mean squared error"),
    "diabetes": ("Diabetes, least squares", "half mean squared error"),
    "digits": ("Digits, MLP 64-32-10", "held-out cross-entropy"),
}


def figures(results: list[Result], folder: Path) -> list[Path]:
    """Write the figures below the folder; returns their paths."""
    drawn = [draw_training([r for r in results if r["kind"] == "training"], folder / "update-cancellation.png")]
    distances = [r for r in results if r["kind"] == "distance"]
    return [*drawn, draw_theorems(distances, folder / "theorems.png")] if distances else drawn


def draw_training(results: list[Result], path: Path) -> Path:
    """A column for each problem: loss above, share of cancelled updates below."""
    figure, axes = new_figure(rows=2, columns=3, width=14, height=7.5, legend=0.6)
    for column, (problem, (title, loss)) in enumerate(TITLES.items()):
        runs = [r for r in results if r["problem"] == problem]
        # Five records are 10 % of a run: the smoothing of the paper's figure.
        draw_curves(axes[0][column], curves(runs, "loss", smooth=5), ylabel=loss, title=title, log=True)
        draw_curves(axes[1][column], curves(runs, "cancelled", smooth=5), ylabel="share of updates cancelled")
        axes[1][column].set(xlabel="iteration", ylim=(-0.03, 1.03))
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False)
    write_file(path, lambda temporary: save_figure(figure, temporary))
    return path


def draw_theorems(results: list[Result], path: Path) -> Path:
    """The distance to the optimum with nearest updates (theorem 1) and with exact ones (theorem 2)."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=11, height=4.5)
    first = [r for r in results if r["policy"] != "theorem-2"]
    second = [r for r in results if r["policy"] == "theorem-2"]
    radius = np.mean([safe_radius(r["lr"], r["L"], r["least_weight"]) for r in first])
    draw_curves(
        left, curves(first, "distance"), ylabel="|w - w*|", title="Theorem 1: nearest rounding of the update", log=True
    )
    left.axhline(radius, color="black", linestyle=":", label="safe radius: all updates cancelled inside")
    draw_curves(right, curves(second, "distance"), ylabel="|w - w*|", title="Theorem 2: exact updates", log=True)
    bound = np.sqrt(np.mean([theorem_2_bound(r) for r in second], axis=0))
    right.plot(second[0]["iteration"], bound, color="black", linestyle="--", label="bound of theorem 2")
    for axes in (left, right):
        axes.set_xlabel("iteration")
        axes.legend(frameon=False)
    write_file(path, lambda temporary: save_figure(figure, temporary))
    return path


def curves(results: list[Result], key: str, smooth: int = 1) -> list[Curve]:
    """A curve for each policy, in the order of LABELS, with a row of values for each seed."""
    found = []
    names = [*LABELS, *(name for name in dict.fromkeys(r["policy"] for r in results) if name not in LABELS)]
    for number, name in enumerate(names):
        runs = [r for r in results if r["policy"] == name]
        if runs:
            values = np.array([run[key] for run in runs])
            found.append(Curve(LABELS.get(name, name), np.array(runs[0]["iteration"]), values, number, smooth))
    return found
