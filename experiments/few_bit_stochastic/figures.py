"""The figure: bias, errors of sums and losses by the number of random bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.experiment import drawn_as
from experiments.few_bit_stochastic.bias import VARIANTS
from experiments.few_bit_stochastic.jobs import TRAINED
from experiments.measurement import measured_rows, over_seeds, select, table_over_seeds
from simfloat.plots import FULL_WIDTH, SMALL, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.studies import Result

#: Numbers of bits with a label on the axis.
TICKS = (1, 2, 4, 8, 16, 32)

STYLES = {"A": 2, "B": 4, "C": 6}


@drawn_as("few-bits.png")
def draw_few_bits(results: list[Result], path: Path) -> None:
    """Draw a panel each for the bias of one rounding, the errors of sums, and the loss of trainings."""
    figure, (left, middle, right) = new_figure(rows=1, columns=3, width=FULL_WIDTH, height=2.6, legend=0.25)
    label = "random bits"
    draw_curves(left, bias_curves(results), xlabel=label, title="mean bias / spacing")
    sums = select(results, kind="sums")
    errors = [Curve(f"variant {v}", *positions(sums, "error", v), STYLES[v]) for v in VARIANTS]
    draw_curves(middle, errors, xlabel=label, title="sums: relative error", log=True)
    training = select(results, kind="training")
    losses = [Curve(f"variant {v}", *positions(training, "loss", v), STYLES[v]) for v in TRAINED]
    draw_curves(right, losses, xlabel=label, title="digits: held-out loss")
    nearest = over_seeds(training, "loss", mode="nearest").mean()
    right.axhline(nearest, color="black", linestyle=":", linewidth=1)
    place = {"xycoords": right.get_yaxis_transform(), "textcoords": "offset points", "ha": "right", "va": "top"}
    right.annotate("to nearest", (0.97, nearest), (0, -3), fontsize=SMALL, **place)
    right.margins(y=0.08)
    for axes in (left, middle, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(TICKS, TICKS)
        axes.set_xlim(0.9, 36)
        axes.minorticks_off()
    add_legend(figure, left, columns=3)
    save_figure(figure, path)


def bias_curves(results: list[Result]) -> list[Curve]:
    """Return the mean bias for the largest number of additional bits that was tried."""
    bias = select(results, kind="bias")
    most = max(row["extra"] for result in bias for row in measured_rows(result))
    return [
        Curve(f"variant {v}", *table_over_seeds(bias, "bias", "bits", mode=v, extra=most), STYLES[v]) for v in VARIANTS
    ]


def bits_of(results: list[Result]) -> list[int]:
    """Return the numbers of bits that were tried."""
    return sorted({row["bits"] for result in results for row in measured_rows(result) if row.get("bits")})


def positions(results: list[Result], key: str, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of bits, and the measurement at each of them for every seed."""
    values = [over_seeds(results, key, mode=variant, bits=bits) for bits in bits_of(results)]
    return np.array(bits_of(results)), np.array(values).T
