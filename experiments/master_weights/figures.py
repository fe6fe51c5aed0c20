"""Draw losses, the share of unchanged weights, and the gradients of weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import simfloat as sf
from experiments.curves import curves, last
from experiments.experiment import drawn_as
from experiments.master_weights.findings import gradients
from experiments.master_weights.problems import LR_EXPONENT
from simfloat.plots import COLUMN_WIDTH, FULL_WIDTH, add_legend, draw_curves, draw_exponents, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.plots.formats import percent_text
from simfloat.studies import Result
from simfloat.telemetry.ranges import count_in_range, format_binades

#: The style of each variant, in both panels.
STYLES = {"fp32": 0, "master": 1, "fp16-weights": 2}


@drawn_as("losses.png", kind="training")
def draw_losses(results: list[Result], path: Path) -> None:
    """Draw the held-out loss, and the share of weights that a nonzero update left unchanged."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.8)
    draw_curves(left, curves(results, "loss", STYLES), xlabel="step", ylabel="held-out cross-entropy", log=True)
    unchanged = curves(results, "unchanged", STYLES)
    draw_curves(right, unchanged, xlabel="step", ylabel="share of weights unchanged")
    right.set_ylim(-0.03, 1.03)
    add_legend(figure, left, columns=3)
    most = max(unchanged, key=last)
    add_title(figure, f"{most.label}: the last step leaves {100 * last(most):.0f} % of the weights unchanged")
    save_figure(figure, path)


@drawn_as("gradients.png", given=False, kind="training")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the gradients of weights in FP32, and which of them FP16 keeps times the learning rate."""
    figure, axes = new_figure(rows=1, columns=1, width=COLUMN_WIDTH, height=2.9)
    total: Counter[int | str] = Counter()
    for histogram in gradients(results):
        total.update(histogram)
    kept = percent_text(count_in_range(total, format_binades(sf.FP16).shift(LR_EXPONENT)).share)
    title = f"Times a learning rate of 2^{LR_EXPONENT}, FP16 keeps {kept} of the gradients of weights"
    draw_exponents(axes, total, format=sf.FP16, scale=2.0**LR_EXPONENT, title=title, name="gradient")
    add_legend(figure, axes, columns=3)
    save_figure(figure, path)
