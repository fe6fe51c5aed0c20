"""Draw errors over the number of keys, and the bias over the distance of the other scores from the maxima."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.curves import last, short
from experiments.experiment import drawn_as
from experiments.flash_attention.jobs import BLOCKS, RISES
from experiments.measurement import table_over_seeds
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_curves, draw_errors, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Lines of the first figure: the kernel, keys per block (0 for ordinary attention, which has none), and the style.
LINES = [
    ("ordinary", 0, 0),
    ("O in FP32", 64, 4),
    *(("O in BF16", block, style) for block, style in zip(BLOCKS, (2, 3, 6), strict=True)),
]

#: Lines of the second figure: number of maxima, the remedy, and the style.
MAXIMA = [(1, "as it is", 6), (2, "as it is", 2), (4, "as it is", 3), (2, "maximum doubled", 4), (2, "P V in FP32", 0)]


@drawn_as("lengths.png", kind="online")
def draw_lengths(results: list[Result], path: Path) -> None:
    """Draw the error of each kernel for both kinds of scores, on one scale."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.1)
    ratios = []
    for place, scores in zip(axes, RISES, strict=True):
        lines = []
        for kernel, block, style in LINES:
            chosen = {"block": block} if block else {}
            label = f"{kernel}, blocks of {block}" if block else kernel
            lines.append(
                Curve(label, *table_over_seeds(results, "error", "keys", scores=scores, kernel=kernel, **chosen), style)
            )
        draw_errors(
            place,
            lines,
            xlabel="keys",
            ylabel="relative error" if scores == "steady" else "",
            title=f"{scores.capitalize()} scores",
        )
        place.set_xscale("log", base=2)
        ratios += [(last(line) / last(lines[0]), line.label, scores) for line in lines[1:]]
    one_scale(axes)
    add_legend(figure, axes[0], columns=3)
    ratio, label, scores = max(ratios)
    text = f"{label} errs {short(ratio)} times as much as ordinary attention"
    add_title(figure, f"With {lines[0].x[-1]:,} keys, {text} ({scores} scores)")
    save_figure(figure, path)


@drawn_as("maxima.png", kind="maxima")
def draw_maxima(results: list[Result], path: Path) -> None:
    """Draw the mean error of P V and of the output over the distance of the other scores from the maxima."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.1)
    largest: dict[tuple[str, int, str], float] = {}
    for place, (key, title) in zip(axes, (("bias", "P V"), ("output", "Output O / l")), strict=True):
        lines = [
            Curve(
                f"{repeats} {'maxima' if repeats > 1 else 'maximum'}, {cure}",
                *table_over_seeds(results, key, "gap", repeats=repeats, cure=cure),
                style,
            )
            for repeats, cure, style in MAXIMA
        ]
        draw_curves(place, lines, xlabel="mean of the other scores below the maximum", title=title)
        place.axhline(0, color=foreground(), linewidth=0.8, zorder=0)
        for line, (repeats, cure, _) in zip(lines, MAXIMA, strict=True):
            largest[key, repeats, cure] = float(np.max(np.abs(line.values.mean(axis=0))))
    one_scale(axes)
    plain, doubled = (short(largest["bias", 2, cure]) for cure in ("as it is", "maximum doubled"))
    add_title(figure, f"Two maxima bias P V by up to {plain} u, with the maximum doubled by up to {doubled} u")
    axes[0].set_ylabel("mean error, away from zero (u)")
    add_legend(figure, axes[0], columns=3)
    save_figure(figure, path)


def one_scale(axes: Iterable[Axes]) -> None:
    """Give all axes the same limits of errors."""
    columns = list(axes)
    low, high = min(place.get_ylim()[0] for place in columns), max(place.get_ylim()[1] for place in columns)
    for place in columns:
        place.set_ylim(low, high)
