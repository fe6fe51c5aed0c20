"""Draw the bits that sums need by their length, errors by chunk, and losses by bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.accumulator_width.dots import CHUNK, CHUNKED_BITS
from experiments.accumulator_width.findings import needed, of_chunks
from experiments.accumulator_width.training import BITS
from experiments.accumulator_width.training import CHUNK as TRAINED_CHUNK
from experiments.curves import last, short
from experiments.experiment import drawn_as
from experiments.measurement import final, select, table_over_seeds
from experiments.operands import DATA
from simfloat.plots import FULL_WIDTH, SMALL, Curve, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


STYLES = {("uniform", 0): 2, ("normal", 0): 6, ("uniform", CHUNK): 3, ("normal", CHUNK): 4}
SIGNS = {"uniform": "one sign", "normal": "both signs"}


@drawn_as("widths.png", kind="dots")
def draw_widths(results: list[Result], path: Path) -> None:
    """Draw the bits that sums need over their length, and the error over the chunk."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.6)
    curves = [
        Curve(f"{SIGNS[data]}{f', chunks of {chunk}' if chunk else ''}", *needed(results, data, chunk), style)
        for (data, chunk), style in STYLES.items()
    ]
    draw_curves(left, curves, xlabel="products a sum", ylabel="mantissa bits", title="Bits for an error of 5 %")
    chunks = [
        Curve(SIGNS[data], *table_over_seeds(of_chunks(results), "error", "only_chunk", data=data), STYLES[data, 0])
        for data in DATA
    ]
    title = f"Sums with {CHUNKED_BITS} mantissa bits"
    draw_curves(right, chunks, xlabel="products a chunk", ylabel="relative error", title=title, log=True)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.legend(frameon=False, fontsize=SMALL)
    whole, chunked = (curve for curve, (data, _) in zip(curves, STYLES, strict=True) if data == "uniform")
    add_title(
        figure, f"Sums of {whole.x[-1]:,} products of one sign need {short(last(whole))} mantissa bits, "
        f"in chunks of {CHUNK} only {short(last(chunked))}",
    )  # fmt: skip
    save_figure(figure, path)


@drawn_as("training.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw the final loss over the bits of the sums, or the curves of a given policy."""
    figure, axes = new_figure(rows=1, columns=1, width=FULL_WIDTH / 2, height=2.8)
    if select(results, variant="given"):
        draw_given(axes, results)
    else:
        bits = np.array(BITS)
        curves = [
            Curve(label, bits, np.array([final(results, "digits", f"{b}{key}") for b in BITS]).T, style)
            for label, key, style in (("one after the other", "", 2), (f"chunks of {TRAINED_CHUNK}", " chunked", 6))
        ]
        draw_curves(axes, curves, xlabel="mantissa bits of the sums", ylabel="held-out cross-entropy", log=True)
        axes.set_xticks(bits, bits)
        fp32 = final(results, "digits", "fp32").mean()
        axes.axhline(fp32, color=foreground(), linestyle=":", linewidth=1, label="FP32")
        plain, chunked = (short(np.mean(curve.values[:, 0])) for curve in curves)
        text = f"{bits[0]}-bit sums end at a loss of {plain}, in chunks at {chunked}; FP32 at {short(fp32)}"
        add_title(figure, text)
    axes.legend(frameon=False, fontsize=SMALL)
    save_figure(figure, path)


def draw_given(axes: Axes, results: list[Result]) -> None:
    """Draw the loss over the steps."""
    curves = []
    for variant, style in (("fp32", 0), ("given", 2)):
        runs = select(results, variant=variant)
        values = np.array([run["loss"] for run in runs], np.float64)
        curves.append(Curve(runs[0]["label"], np.array(runs[0]["iteration"]), values, style))
    draw_curves(axes, curves, xlabel="step", ylabel="held-out cross-entropy", log=True)
