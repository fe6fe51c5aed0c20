"""Draw the errors of the generations over the length of sums, and the effect of promotion."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import last, short
from experiments.experiment import drawn_as
from experiments.measurement import table_over_seeds
from experiments.operands import TITLES
from experiments.tensor_core_generations.units import EIGHT, GROUPS, INTERVAL
from simfloat.plots import (
    FULL_WIDTH,
    SMALL,
    Curve,
    add_legend,
    draw_curves,
    new_figure,
    save_figure,
)
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

LABELS = {
    "volta": "Volta",
    "turing": "Turing, Ampere, Ada",
    "hopper": "Hopper, Blackwell",
    "fp32": "FP32 FMA chain",
}
STYLES = {"volta": 3, "turing": 4, "hopper": 2, "fp32": 0, "promoted": 6, "blackwell": 5}


@drawn_as("generations.png", kind="fp16")
def draw_generations(results: list[Result], path: Path) -> None:
    """Draw the mean error of FP16 products over the length of the sums, for both kinds of data."""
    figure, columns = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.8)
    finding = ""
    for axes, (data, title) in zip(columns, TITLES.items(), strict=True):
        curves = [curve(results, first, LABELS[first], data) for first in GROUPS]
        ylabel = "mean error / sum |a b|" if data == "uniform" else ""
        draw_curves(axes, curves, xlabel="products a sum", ylabel=ylabel, title=title, log=True)
        axes.set_xscale("log", base=2)
        chain = last(curves[-1])
        ratios = ", ".join(f"{short(last(each) / chain)} ({each.label})" for each in curves[:-1])
        finding = finding or f"Error of {curves[0].x[-1]:,} one-signed products over that of FP32: {ratios}"
    add_legend(figure, columns[0], columns=4)
    add_title(figure, finding)
    save_figure(figure, path)


@drawn_as("promotion.png", kind="fp8")
def draw_promotion(results: list[Result], path: Path) -> None:
    """Draw the greatest error of FP8 products over the length of one-signed sums and the interval of promotion."""
    figure, (left, right) = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.8)
    curves = [curve(results, unit.key, unit.label, "uniform", "greatest") for unit in EIGHT]
    error = "greatest error / sum |a b|"
    draw_curves(left, curves, xlabel="products a sum", ylabel=error, title=TITLES["uniform"], log=True)
    both = [
        Curve(TITLES[data], *table_over_seeds(_promoted(results), "greatest", "interval", data=data), style)
        for data, style in (("uniform", 2), ("normal", 6))
    ]
    draw_curves(right, both, xlabel="products between promotions", title="Hopper, longest sums", log=True)
    right.axvline(INTERVAL, color=foreground(), linestyle=":", linewidth=1)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
    right.legend(loc="lower right", frameon=False, fontsize=SMALL)
    add_legend(figure, left, columns=4)
    plain, promoted = (short(last(each)) for each in curves[:2])
    add_title(figure, f"Promotion every {INTERVAL} products: greatest error {promoted} instead of {plain}")
    save_figure(figure, path)


def curve(results: list[Result], unit: str, label: str, data: str, key: str = "error") -> Curve:
    """Return the errors of a matrix unit over the length of sums."""
    lengths, values = table_over_seeds(_by_length(results), key, "length", data=data, unit=unit)
    return Curve(label, lengths, values, STYLES[unit])


def _by_length(results: list[Result]) -> list[Result]:
    """Return the results with the rows that vary the length."""
    return [{**result, "rows": [row for row in result["rows"] if "length" in row]} for result in results]


def _promoted(results: list[Result]) -> list[Result]:
    """Return the results with the rows that vary the interval of promotion."""
    return [{**result, "rows": [row for row in result["rows"] if "interval" in row]} for result in results]
