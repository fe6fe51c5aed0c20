"""The figure: the final loss of every policy relative to BF16."""

from __future__ import annotations

from pathlib import Path

from experiments.block_scaling.figures import draw_excess
from experiments.experiment import drawn_as
from simfloat.plots import FULL_WIDTH, new_figure, save_figure
from simfloat.studies import Result


@drawn_as("parts.png", kind="training")
def draw_parts(results: list[Result], path: Path) -> None:
    """Draw a line for each policy: every seed, and the mean."""
    labels = {result["variant"]: result["label"] for result in results if result["variant"] != "bf16"}
    figure, axes = new_figure(rows=1, columns=1, width=FULL_WIDTH, height=0.8 + 0.2 * len(labels))
    figure.subplots_adjust(left=0.32)
    draw_excess(axes, results, labels)
    save_figure(figure, path)
