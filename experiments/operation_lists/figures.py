"""Draw the error of a gradient under each list of operations, and the operations that cause it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import draw_beside, short
from experiments.experiment import drawn_as
from experiments.operation_lists.findings import errors
from experiments.operation_lists.policies import ALONE, EVERYTHING, INFER_NARROW, MIXED
from experiments.operation_lists.problems import PROBLEMS
from simfloat.plots import FULL_WIDTH, add_legend, draw_heat_map, draw_points, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.studies import Result

#: The names of the layers of the convolutional model.
LAYERS = {
    "0": "convolution 1", "1": "batch norm 1", "2": "ReLU 1", "3": "convolution 2", "4": "batch norm 2", "5": "ReLU 2",
    "6": "flatten", "7": "linear", "(model)": "loss",
}  # fmt: skip

#: Policies of the first figure, from top to bottom.
ROWS = [*ALONE, MIXED, INFER_NARROW, EVERYTHING]

TITLES = {
    "convolutional": "Convolutions and batch norm",
    "transformer": "Transformer",
    "regression": "Regression, large labels",
}


@drawn_as("operation-lists.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw the held-out loss of each problem, relative to FP32."""
    draw_beside(results, TITLES, path)


@drawn_as("gradient-errors.png", kind="gradients")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the error of the gradient under each policy, for a new model and for a half-trained one."""
    figure, axes = new_figure(1, 2, FULL_WIDTH, 3.1)
    for place, (stage, title) in enumerate((("start", "New model"), ("middle", "Half trained"))):
        groups = {name: [errors(results, name, row.key, stage) for row in ROWS] for name in PROBLEMS}
        draw_points(
            axes[place], [row.label for row in ROWS], groups, xlabel="relative error of the gradient", title=title
        )
    axes[1].set_yticklabels([])
    add_legend(figure, axes[0], columns=3)
    largest = {
        row.label: 100 * max(float(np.mean(values[index])) for values in groups.values())
        for index, row in enumerate(ROWS)
        if row in (MIXED, EVERYTHING)
    }
    found = ", ".join(f"{short(error)} % ({label})" for label, error in largest.items())
    add_title(figure, f"Largest gradient error of a half-trained model: {found}")
    save_figure(figure, path)


@drawn_as("attribution.png", kind="gradients")
def draw_attribution(results: list[Result], path: Path) -> None:
    """Draw the error that each operation in each layer causes alone, under AMP and with everything in FP16."""
    run = next(run for run in results if run["attribution"])
    figure, axes = new_figure(2, 1, FULL_WIDTH, 4.9)
    most = max(np.max(run["attribution"][variant.key]["values"]) for variant in (EVERYTHING, MIXED))
    for place, variant in enumerate((EVERYTHING, MIXED)):
        grid = run["attribution"][variant.key]
        rows, values = [LAYERS.get(row, row) for row in grid["rows"]], np.array(grid["values"])
        row, column = np.unravel_index(np.nanargmax(values), values.shape)
        worst = f"largest error: {rows[row]}, {grid['columns'][column]} ({short(values[row, column])})"
        draw_heat_map(
            axes[place],
            rows,
            grid["columns"],
            grid["values"],
            title=f"{variant.label[0].upper()}{variant.label[1:]} – {worst}",
            label="error of the gradient",
            most=float(most),
        )
    if run["attribution"][EVERYTHING.key]["columns"] == run["attribution"][MIXED.key]["columns"]:
        axes[0].set_xticklabels([])  # the same as below
    save_figure(figure, path)
