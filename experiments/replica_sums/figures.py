"""Draw errors over the number of replicas."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import last, short
from experiments.experiment import drawn_as
from experiments.measurement import table_over_seeds
from experiments.replica_sums.jobs import DATA, WAYS
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_errors, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.studies import Result

#: The names of the kinds of gradients.
NAMES = {"noise": "Gradients of noise", "alike": "Equal gradients"}

STYLES = {"ring": 2, "tree": 4, "ring, stochastic": 6, "ring in FP32": 0}


@drawn_as("replicas.png")
def draw_replicas(results: list[Result], path: Path) -> None:
    """Draw the error of each way for both kinds of data, on one scale."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.0)
    for place, data in zip(axes, DATA, strict=True):
        lines = [
            Curve(way, *table_over_seeds(results, "error", "replicas", data=data, way=way), STYLES[way]) for way in WAYS
        ]
        draw_errors(
            place,
            lines,
            xlabel="replicas",
            ylabel="relative error" if data == "noise" else "",
            title=NAMES.get(data, data),
        )
        place.set_xscale("log", base=2)
    low, high = (end(place.get_ylim()[k] for place in axes) for k, end in enumerate((min, max)))
    axes[1].sharey(axes[0])
    axes[0].set_ylim(low, high)
    add_legend(figure, axes[0], columns=4)
    errors = "; ".join(f"{line.label}: {short(last(line))}" for line in lines)
    add_title(figure, f"{NAMES.get(data, data)}, {lines[0].x[-1]:,} replicas – {errors}")
    save_figure(figure, path)
