"""Draw the error of scores by position, for each part in BF16."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import short
from experiments.experiment import drawn_as
from experiments.flash_attention.figures import one_scale
from experiments.measurement import table_over_seeds
from experiments.rotary_positions.findings import last
from experiments.rotary_positions.jobs import DISTANCE, FAR, NEAR
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_errors, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.studies import Result

#: Lines: the part in BF16, its label, and its style.
LINES = [
    ("positions", "positions in BF16", 2),
    ("frequencies", "frequencies in BF16", 3),
    ("angles", "angles in BF16", 6),
    ("tables and rotation", "tables and rotation in BF16", 4),
    ("nothing", "everything in FP32", 0),
]


@drawn_as("positions.png")
def draw_positions(results: list[Result], path: Path) -> None:
    """Draw a line for each part, for near keys and for all keys."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.2)
    titles = {NEAR: f"Keys less than {DISTANCE} positions before", FAR: "Keys at all distances"}
    ends: dict[tuple[str, str], float] = {}
    for place, (keys, title) in zip(axes, titles.items(), strict=True):
        lines = {
            part: Curve(label, *table_over_seeds(results, "error", "position", part=part, keys=keys), style)
            for part, label, style in LINES
        }
        ylabel = "relative error of scores" if keys == NEAR else ""
        draw_errors(place, list(lines.values()), xlabel="position", ylabel=ylabel, title=title)
        place.set_xscale("log", base=2)
        ends |= {(keys, part): 100 * float(np.mean(line.values[:, -1])) for part, line in lines.items()}
    one_scale(axes)
    angles, tables = ends[NEAR, "angles"], ends[NEAR, "tables and rotation"]
    text = f"BF16 angles err by {short(angles)} % of the scores, BF16 tables and rotation by {tables:.2f} %"
    add_title(figure, f"At position {last(results):,} {text}")
    add_legend(figure, axes[0], columns=3)
    save_figure(figure, path)
