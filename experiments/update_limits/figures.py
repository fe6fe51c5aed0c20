"""Draw the distance at which updates stop, by step size, precision and size of the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import short
from experiments.experiment import drawn_as
from experiments.update_limits.findings import distances
from experiments.update_limits.jobs import ALPHAS, BITS, WIDTHS
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.studies import Result

#: The ticks of distances in all panels.
TICKS = (0.01, 0.1, 1, 10, 100)


@drawn_as("limits.png")
def draw_limits(results: list[Result], path: Path) -> None:
    """Draw the distance to the optimum in three panels, on one scale."""
    figure, axes = new_figure(rows=1, columns=3, width=FULL_WIDTH, height=2.8)
    panels = (
        ("alpha", "alpha", ALPHAS, "step size", "BF16: step size", 2),
        ("bits", "bits", BITS, "mantissa bits", "Precision", 2),
        ("floating", "width", WIDTHS, "largest weight", "Size of the weights", 2),
    )
    for place, (varied, field, points, xlabel, title, style) in zip(axes, panels, strict=True):
        kinds = ["floating", "fixed"] if varied == "floating" else [varied]
        lines = [
            Curve(
                "fixed point" if kind == "fixed" else "floating point",
                np.array(points),
                np.array([distances(results, kind, **{field: point}) for point in points]).T,
                6 if kind == "fixed" else style,
            )
            for kind in kinds
        ]
        draw_curves(place, lines, xlabel=xlabel, title=title, log=True)
        if varied != "bits":
            place.set_xscale("log")
        place.set_xticks(points, [f"{point:g}" for point in points])
        place.minorticks_off()
    low = min(place.get_ylim()[0] for place in axes)
    high = max(place.get_ylim()[1] for place in axes)
    for place in axes:
        place.set_ylim(low, high)
        place.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes[0].set_ylabel("distance to the optimum")
    add_legend(figure, axes[2], columns=2)
    least, most = (short(float(np.mean(distances(results, "alpha", alpha=alpha)))) for alpha in (ALPHAS[0], ALPHAS[-1]))
    text = f"BF16 stops at a distance of {least} with a step size of {ALPHAS[0]:g}, of {most} with {ALPHAS[-1]:g}"
    add_title(figure, text)
    save_figure(figure, path)
