"""The figures: errors by the number of keys, and the bias by the gap between the maxima and the rest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.experiment import drawn_as
from experiments.flash_attention.jobs import BLOCKS, RISES
from experiments.measurement import table_over_seeds
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_curves, draw_errors, new_figure, save_figure
from simfloat.studies import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Lines of the first figure: the kernel, keys per block (0 for ordinary attention, which has none), and the style.
LINES = [
    ("ordinary", 0, 0),
    ("O in FP32", 64, 4),
    *(("O in BF16", block, style) for block, style in zip(BLOCKS, (2, 3, 6), strict=True)),
]

#: Lines of the second figure: the number of maxima, the remedy, and the style.
MAXIMA = [(1, "as it is", 6), (2, "as it is", 2), (4, "as it is", 3), (2, "maximum doubled", 4), (2, "P V in FP32", 0)]


@drawn_as("lengths.png", kind="online")
def draw_lengths(results: list[Result], path: Path) -> None:
    """Draw the error of each kernel for either kind of scores, on one scale."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.9, legend=0.4)
    for place, scores in zip(axes, RISES, strict=True):
        lines = []
        for kernel, block, style in LINES:
            chosen = {"block": block} if block else {}
            label = f"{kernel}, blocks of {block}" if block else kernel
            lines.append(
                Curve(label, *table_over_seeds(results, "error", "keys", scores=scores, kernel=kernel, **chosen), style)
            )
        draw_errors(
            place, lines, xlabel="keys", ylabel="relative error" if scores == "steady" else "", title=f"{scores} scores"
        )
        place.set_xscale("log", base=2)
    one_scale(axes)
    add_legend(figure, axes[0], columns=3)
    save_figure(figure, path)


@drawn_as("maxima.png", kind="maxima")
def draw_maxima(results: list[Result], path: Path) -> None:
    """Draw the mean errors of P V and of the output, by the gap between the maxima and the other scores."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.9, legend=0.4)
    for place, (key, title) in zip(axes, (("bias", "P V"), ("output", "output O / l")), strict=True):
        lines = [
            Curve(
                f"{repeats} {'maxima' if repeats > 1 else 'maximum'}, {cure}",
                *table_over_seeds(results, key, "gap", repeats=repeats, cure=cure),
                style,
            )
            for repeats, cure, style in MAXIMA
        ]
        draw_curves(place, lines, xlabel="mean of the other scores below the maximum", title=title)
        place.axhline(0, color="black", linewidth=0.8, zorder=0)
    one_scale(axes)
    axes[0].set_ylabel("mean error, away from zero (u)")
    add_legend(figure, axes[0], columns=3)
    save_figure(figure, path)


def one_scale(axes: Iterable[Axes]) -> None:
    """Set the same limits for all errors."""
    columns = list(axes)
    low, high = min(place.get_ylim()[0] for place in columns), max(place.get_ylim()[1] for place in columns)
    for place in columns:
        place.set_ylim(low, high)
