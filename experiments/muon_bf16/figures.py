"""Draw the effect of rounding on Muon's iteration, and the error at which converging coefficients stop."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import last, short
from experiments.experiment import drawn_as
from experiments.measurement import table_over_seeds
from experiments.muon_bf16.iterations import STEPS
from simfloat.plots import FULL_WIDTH, SMALL, Curve, add_legend, draw_errors, new_figure, save_figure
from simfloat.plots.figure import GREY, add_title
from simfloat.studies import Result

#: Styles of the precisions.
STYLES = {"FP32": 0, "BF16 operands": 6, "BF16": 2, "E4M3 operands": 4}

#: The panels: coefficients, steps, the quantity, and its name.
PANELS = (
    ("Muon's", STEPS[0], "change", "distance from the float64 iteration"),
    ("converging", STEPS[-1], "error", "distance from orthogonal"),
)


@drawn_as("muon.png", kind="iterations")
def draw_distances(results: list[Result], path: Path) -> None:
    """Draw a line for each precision over the size of the matrix, in a panel for each kind of coefficients."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.1)
    changes: list[str] = []
    for place, (name, steps, key, ylabel) in zip(axes, PANELS, strict=True):
        same = {"coefficients": name, "steps": steps}
        lines = [
            Curve(precision, *table_over_seeds(results, key, "size", **same, precision=precision), style)
            for precision, style in STYLES.items()
        ]
        draw_errors(
            place, lines, xlabel="rows", ylabel=ylabel, title=f"{name.capitalize()} coefficients, {steps} steps"
        )
        place.set_xscale("log", base=2)
        place.set_ylim(1e-7, 1)
        changes = changes or [f"{line.label} {short(100 * last(line))} %" for line in lines[1:]]
    sizes, errors = table_over_seeds(results, "error", "size", coefficients="Muon's", steps=STEPS[0], precision="FP32")
    axes[0].plot(sizes, errors.mean(axis=0), color=GREY, linestyle="--", linewidth=1)
    axes[0].text(sizes[-1], 0.3 * np.mean(errors[:, -1]), "FP32 from orthogonal: dashed", ha="right", fontsize=SMALL)
    add_legend(figure, axes[0], columns=4)
    add_title(figure, f"Change of Muon's iteration with {sizes[-1]} rows: {', '.join(changes)}")
    save_figure(figure, path)
