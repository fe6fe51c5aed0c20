"""Draw loss and unchanged weights over the iterations, and the two theorems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.curves import curves, last, short
from experiments.experiment import drawn_as
from experiments.measurement import select
from experiments.update_cancellation.findings import ratios_to_fp32
from experiments.update_cancellation.policies import VARIANTS
from experiments.update_cancellation.problems import ALPHA, synthetic_data
from experiments.update_cancellation.theorem1 import largest_input, safe_radius
from experiments.update_cancellation.theorem2 import bound
from simfloat.plots import FULL_WIDTH, SMALL, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

TITLES = {
    "synthetic": ("Synthetic least squares", "mean squared error"),
    "diabetes": ("Diabetes, least squares", "mean squared error"),
    "digits": ("Digits, MLP 64-32-10", "held-out cross-entropy"),
}

#: The style of each variant, in all figures.
STYLES = {variant.key: number for number, variant in enumerate(VARIANTS)} | {"theorem-2": 1}

CAPTION = """\
Below: share of weights that a nonzero update leaves unchanged. Under nearest rounding such an update is lost.
Stochastic rounding compensates for it by larger changes of other weights. Kahan summation keeps it for the next step.
Lines are means over seeds; bands reach from the least to the greatest seed."""


@drawn_as("update-cancellation.png")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw a column for each problem: loss above, share of unchanged weights below."""
    figure, axes = new_figure(rows=2, columns=3, width=FULL_WIDTH, height=5.2)
    for column, (problem, (title, loss)) in enumerate(TITLES.items()):
        runs = select(results, problem=problem)
        above, below = axes[0][column], axes[1][column]
        # Five records are 10 % of a run: the smoothing of the paper's figure.
        losses = curves(runs, "loss", STYLES, smooth=5)
        draw_curves(above, losses, ylabel=loss, title=title, log=True)
        share = "" if column else "share of weights\nunchanged by a step"
        draw_curves(below, curves(runs, "unchanged", STYLES, smooth=5), xlabel="iteration", ylabel=share)
        below.set_ylim(-0.03, 1.03)
    add_legend(figure, axes[0][0], columns=3, caption=CAPTION)
    ratios = _mean_ratios(results)
    if ratios and np.isfinite([ratio for ratio, *_ in ratios]).all():
        ratio, label, title = max(ratios)
        add_title(figure, f"{label} ends at {short(ratio)} times the loss of fp32 ({title})")
    save_figure(figure, path)


def _mean_ratios(results: list[Result]) -> list[tuple[float, str, str]]:
    """Return the mean ratio of the findings for each variant and problem, with the names of both."""
    ratios = []
    for problem, (title, _) in TITLES.items():
        labels = {run["variant"]: run["label"] for run in select(results, problem=problem)}
        for variant in labels.keys() - {"fp32"}:
            ratios.append((float(np.mean(ratios_to_fp32(results, problem, variant))), labels[variant], title))
    return ratios


@drawn_as("theorems.png", problem="noise-free")
def draw_theorems(results: list[Result], path: Path) -> None:
    """Draw the distance to the optimum with nearest updates (theorem 1) and with exact ones (theorem 2)."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.0)
    axes: Any = {"xlabel": "iteration", "ylabel": "|w - w*|", "log": True}
    second = select(results, variant="theorem-2")
    first = [result for result in results if result["variant"] != "theorem-2"]
    distances = curves(first, "distance", STYLES)
    draw_curves(left, distances, title="Theorem 1: nearest updates", **axes)
    radius = float(np.mean([safe_radius_of(result) for result in first]))
    left.axhline(radius, color=foreground(), linestyle=":", linewidth=1, label="safe radius of theorem 1")
    draw_curves(right, curves(second, "distance", STYLES), title="Theorem 2: exact updates", **axes)
    limit = np.sqrt(np.mean([bound(result) for result in second], axis=0))
    right.plot(
        second[0]["iteration"], limit, color=foreground(), linestyle="--", linewidth=1, label="bound of theorem 2"
    )
    for side, empty in ((left, "upper right"), (right, "lower left")):
        side.legend(loc=empty, frameon=False, fontsize=SMALL)
    found = "; ".join(f"{line.label}: {short(last(line))}" for line in distances)
    add_title(figure, f"Distance to the optimum at the end – {found}")
    save_figure(figure, path)


def safe_radius_of(result: Result) -> float:
    """Return the safe radius of a run on the noise-free problem."""
    data = synthetic_data(result["seed"], noise=0.0)
    return safe_radius(ALPHA, largest_input(data.x), float(np.abs(data.optimum).min()))
