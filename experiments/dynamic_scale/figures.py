"""Draw the scale over the steps, and the limits of the tutorial over a histogram of the gradients."""

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
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

TITLES = {"digits": "Digits, MLP 64-16-10", "regression": "Autoencoder"}

#: The rules whose scale is drawn over the steps. N = 3 is left out because it looks like N = 6.
TRACE_VARIANTS = [variant for variant in VARIANTS if variant.scaler and variant.key != "interval-3"]

#: The number of steps that is drawn for the short interval: more would run together.
SHOWN = 300


@drawn_as("training.png", problem="digits")
@drawn_as("from-one.png", problem="regression")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw the held-out loss of a problem under every scale, relative to FP32."""
    problem = results[0]["problem"]
    draw_beside(results, {problem: TITLES[problem]}, path)


@drawn_as("dynamic-scale.png", given=False, kind="training")
def draw_traces(results: list[Result], path: Path) -> None:
    """Draw the scale of one run under each rule."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(1, 3, FULL_WIDTH, 2.6)
    shares = []
    for place, variant in zip(axes, TRACE_VARIANTS, strict=True):
        run = select(results, variant=variant.key)[0]
        end = SHOWN if variant.key == "interval-6" else None
        skipped = run["trace"]["skipped"]
        draw_loss_scale(place, run["trace"]["scale"][:end], skipped[:end], title=variant.label)
        shares.append(f"{sum(skipped)}")
        low, high = place.get_ylim()
        place.set_ylim(low / (high / low) ** 0.4, high)  # space for the legend
        place.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        place.legend(loc="lower right", frameon=False, fontsize=SMALL)
    add_title(figure, f"Steps skipped of {len(skipped)}, from left to right: {', '.join(shares)}")
    save_figure(figure, path)


@drawn_as("gradients.png", kind="statements")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the exponents of all gradients over the range of FP16, with the limits that the tutorial gives."""
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.7)
    total: Counter[str] = Counter()
    for result in results:
        total.update(result["exponents"])
    draw_exponents(axes, as_histogram(dict(total)), format=FP16, name="gradient")
    for exponent, height, side in ((-11, 0.98, "left"), (-14, 0.98, "right"), (-25, 0.8, "left")):
        axes.axvline(exponent, ymax=height, color=foreground(), linestyle=":", linewidth=1)
        place = {"transform": axes.get_xaxis_transform(), "ha": side, "va": "top"}
        axes.text(exponent, height, f" $2^{{{exponent}}}$ ", fontsize=SMALL, **place)
    add_legend(figure, axes, columns=3)
    save_figure(figure, path)
