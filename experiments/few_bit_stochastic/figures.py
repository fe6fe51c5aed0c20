"""Draw bias, errors of sums and losses over the number of random bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import short
from experiments.experiment import drawn_as
from experiments.few_bit_stochastic.bias import VARIANTS
from experiments.few_bit_stochastic.jobs import TRAINED
from experiments.measurement import largest, measured_rows, over_seeds, select, table_over_seeds
from simfloat.plots import FULL_WIDTH, SMALL, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

#: The numbers of bits that have a tick.
TICKS = (1, 2, 4, 8, 16, 32)

STYLES = {"A": 2, "B": 4, "C": 6}


@drawn_as("few-bits.png")
def draw_few_bits(results: list[Result], path: Path) -> None:
    """Draw a panel each for the bias of one rounding, the errors of sums, and the loss of trainings."""
    figure, (left, middle, right) = new_figure(rows=1, columns=3, width=FULL_WIDTH, height=2.7)
    label = "random bits"
    biases = bias_curves(results)
    draw_curves(left, biases, xlabel=label, ylabel="mean bias / spacing", title="One rounding")
    sums = select(results, kind="sums")
    errors = [Curve(f"variant {v}", *positions(sums, "error", v), STYLES[v]) for v in VARIANTS]
    draw_curves(middle, errors, xlabel=label, ylabel="relative error", title="Sums", log=True)
    training = select(results, kind="training")
    losses = [Curve(f"variant {v}", *positions(training, "loss", v), STYLES[v]) for v in TRAINED]
    draw_curves(right, losses, xlabel=label, ylabel="held-out loss", title="Training on digits")
    nearest = over_seeds(training, "loss", mode="nearest").mean()
    right.axhline(nearest, color=foreground(), linestyle=":", linewidth=1)
    place = {"xycoords": right.get_yaxis_transform(), "textcoords": "offset points", "ha": "right", "va": "top"}
    right.annotate("to nearest", (0.97, nearest), (0, -3), fontsize=SMALL, **place)
    right.margins(y=0.08)
    for axes in (left, middle, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(TICKS, TICKS)
        axes.set_xlim(0.9, 36)
        axes.minorticks_off()
    add_legend(figure, left, columns=3)
    found = [f"{short(np.mean(np.atleast_2d(curve.values)[:, 0]))} ({curve.label})" for curve in biases]
    add_title(figure, f"Bias with {biases[0].x[0]} random bit, in units of the spacing: {', '.join(found)}")
    save_figure(figure, path)


def bias_curves(results: list[Result]) -> list[Curve]:
    """Return the mean bias of values with the largest number of additional bits that was tried."""
    bias = select(results, kind="bias")
    most = largest(bias, "extra")
    return [
        Curve(f"variant {v}", *table_over_seeds(bias, "bias", "bits", mode=v, extra=most), STYLES[v]) for v in VARIANTS
    ]


def bits_of(results: list[Result]) -> list[int]:
    """Return the numbers of random bits that were tried."""
    return sorted({row["bits"] for result in results for row in measured_rows(result) if row.get("bits")})


def positions(results: list[Result], key: str, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of bits, and the measurement at each of them for every seed."""
    values = [over_seeds(results, key, mode=variant, bits=bits) for bits in bits_of(results)]
    return np.array(bits_of(results)), np.array(values).T
