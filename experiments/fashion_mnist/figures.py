"""Draw held-out losses relative to FP32, seed by seed."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import draw_beside
from experiments.experiment import drawn_as
from simfloat.studies import Result

TITLES = {"clothes": "Learning rate 0.03", "small steps": "Learning rate 0.003"}


@drawn_as("fashion-mnist.png")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw how far the held-out loss of every policy is above that of FP32."""
    draw_beside(results, TITLES, path)
