"""The figures: the scale over the steps, and the tutorial's limits among the gradients."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from experiments.curves import draw_beside
from experiments.dynamic_scale.jobs import VARIANTS
from experiments.experiment import drawn_as
from experiments.gradients import as_histogram
from experiments.measurement import select
from simfloat import FP16
from simfloat.plots import (
    COLUMN_WIDTH,
    FULL_WIDTH,
    SMALL,
    add_legend,
    draw_exponents,
    draw_loss_scale,
    new_figure,
    save_figure,
)
from simfloat.studies import Result

TITLES = {"digits": "Digits, MLP 64-16-10"}

#: The number of steps of the trace with the short interval that are still distinguishable.
SHOWN = 300


@drawn_as("training.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw the held-out loss under every scale, and that of FP32."""
    draw_beside(results, TITLES, path)


@drawn_as("dynamic-scale.png", given=False, kind="training")
def draw_traces(results: list[Result], path: Path) -> None:
    """Draw the scale of one run under each rule."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(1, 3, FULL_WIDTH, 2.3)
    figure.subplots_adjust(wspace=0.3)
    for place, variant in zip(axes, VARIANTS[1:], strict=True):
        run = select(results, variant=variant.key)[0]
        end = SHOWN if variant.key == "interval-6" else None
        draw_loss_scale(place, run["trace"]["scale"][:end], run["trace"]["skipped"][:end])
        place.set_title(variant.label, fontsize=SMALL + 1, pad=4)
        low, high = place.get_ylim()
        place.set_ylim(low / (high / low) ** 0.4, high)  # space for the legend
        place.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        place.legend(loc="lower right", frameon=False, fontsize=SMALL)
    save_figure(figure, path)


@drawn_as("gradients.png", kind="statements")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the exponents of all gradients over the range of FP16, with the limits of the tutorial."""
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.6, legend=0.2)
    figure.subplots_adjust(top=0.84)
    total: Counter[str] = Counter()
    for result in results:
        total.update(result["exponents"])
    draw_exponents(axes, as_histogram(dict(total)), format=FP16, name="gradient")
    for exponent, height, side in ((-11, 0.98, "left"), (-14, 0.98, "right"), (-25, 0.8, "left")):
        axes.axvline(exponent, ymax=height, color="black", linestyle=":", linewidth=1)
        place = {"transform": axes.get_xaxis_transform(), "ha": side, "va": "top"}
        axes.text(exponent, height, f" $2^{{{exponent}}}$ ", fontsize=SMALL, **place)
    add_legend(figure, axes, columns=3)
    save_figure(figure, path)
