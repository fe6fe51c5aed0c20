"""The figure: the changes by rounding with Muon's coefficients, and the distances at which convergent ones stop."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.experiment import drawn_as
from experiments.measurement import table_over_seeds
from experiments.muon_bf16.iterations import STEPS
from simfloat.plots import FULL_WIDTH, SMALL, Curve, add_legend, draw_errors, new_figure, save_figure
from simfloat.studies import Result

#: Styles of the precisions.
STYLES = {"FP32": 0, "BF16 operands": 6, "BF16": 2, "E4M3 operands": 4}

#: Panels: the coefficients, the steps, the measurement and its name.
PANELS = (
    ("Muon's", STEPS[0], "change", "distance from float64's iteration"),
    ("converging", STEPS[-1], "error", "distance from orthogonal"),
)


@drawn_as("muon.png", kind="iterations")
def draw_distances(results: list[Result], path: Path) -> None:
    """Draw in each panel a line for each precision, by the size of the matrix."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=2.9, legend=0.25)
    for place, (name, steps, key, ylabel) in zip(axes, PANELS, strict=True):
        same = {"coefficients": name, "steps": steps}
        lines = [
            Curve(precision, *table_over_seeds(results, key, "size", **same, precision=precision), style)
            for precision, style in STYLES.items()
        ]
        draw_errors(place, lines, xlabel="rows", ylabel=ylabel, title=f"{name} coefficients, {steps} steps")
        place.set_xscale("log", base=2)
        place.set_ylim(1e-7, 1)
    sizes, errors = table_over_seeds(results, "error", "size", coefficients="Muon's", steps=STEPS[0], precision="FP32")
    axes[0].plot(sizes, errors.mean(axis=0), color="#777777", linestyle="--", linewidth=1)
    axes[0].text(sizes[-1], 0.3 * np.mean(errors[:, -1]), "FP32 from orthogonal: dashed", ha="right", fontsize=SMALL)
    add_legend(figure, axes[0], columns=4)
    save_figure(figure, path)
