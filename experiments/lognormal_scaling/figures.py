"""Draw losses, and the scale of every step under each rule with the largest scale that would have fitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import simfloat as sf
from experiments.curves import draw_beside
from experiments.experiment import drawn_as
from experiments.lognormal_scaling.jobs import VARIANTS
from experiments.measurement import select
from simfloat.plots import (
    FULL_WIDTH,
    SMALL,
    add_legend,
    draw_loss_scale,
    new_figure,
    save_figure,
)
from simfloat.plots.figure import GREY, add_title
from simfloat.studies import Result

#: The rules, from left to right.
RULES = {variant.key: variant.label for variant in VARIANTS if variant.scaler is not None}


@drawn_as("losses.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw the held-out loss under every rule, relative to FP32."""
    draw_beside(results, {"digits": "Digits"}, path)


@drawn_as("scales.png", given=False, kind="training")
def draw_scales(results: list[Result], path: Path) -> None:
    """Draw the scale of every step of the first seed, and the limit below which it had to stay."""
    figure, axes = new_figure(rows=1, columns=len(RULES), width=FULL_WIDTH, height=2.8)
    counts = []
    for side, (key, label) in zip(axes, RULES.items(), strict=True):
        trace = select(results, variant=key)[0]["trace"]
        largest = np.array(trace["largest"], np.float64)
        with np.errstate(divide="ignore"):
            fits = np.where(np.isfinite(largest) & (largest > 0), sf.FP16.max / largest, np.nan)
        side.plot(fits, color=GREY, linewidth=0.4, label="the largest that fits")
        draw_loss_scale(side, trace["scale"], trace["skipped"], title=label)
        side.set_ylim(0.5, 2.0**26)
        side.set_ylabel("loss scale" if side is axes[0] else "")
        side.locator_params(axis="x", nbins=4)
        skipped = int(np.sum(trace["skipped"]))
        side.text(0.97, 0.05, f"{skipped} skipped", transform=side.transAxes, ha="right", fontsize=SMALL)
        counts.append(f"{label} {skipped}")
        if skipped:
            side.lines[-1].set_label("skipped step")  # each panel has its number
    add_legend(figure, axes[0], columns=3)
    add_title(figure, f"Skipped steps of {len(trace['scale'])}: {'; '.join(counts)}")
    save_figure(figure, path)
