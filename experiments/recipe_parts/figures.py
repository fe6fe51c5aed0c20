"""Draw the final loss of every policy relative to BF16."""

from __future__ import annotations

from pathlib import Path

from experiments.block_scaling.figures import draw_excess, largest_excess
from experiments.experiment import drawn_as
from simfloat.plots import FULL_WIDTH, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.studies import Result


@drawn_as("parts.png", kind="training")
def draw_parts(results: list[Result], path: Path) -> None:
    """Draw a row for each policy: every seed, and the mean."""
    labels = {result["variant"]: result["label"] for result in results if result["variant"] != "bf16"}
    figure, axes = new_figure(rows=1, columns=1, width=FULL_WIDTH, height=1.0 + 0.2 * len(labels))
    draw_excess(axes, results, labels)
    add_title(figure, largest_excess(results, labels))
    save_figure(figure, path)
