"""Draw held-out losses relative to FP32, seed by seed."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import draw_beside
from experiments.experiment import drawn_as
from experiments.measurement import select
from experiments.real_size.problems import RATES, SMALL, task_of
from simfloat.studies import Result


@drawn_as("real-size.png")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw how far the held-out loss of every policy is above that of FP32."""
    draw_beside(results, {problem: task_of(problem).title for problem in RATES}, path)


@drawn_as("small-steps.png")
def draw_small_steps(results: list[Result], path: Path) -> None:
    """Draw the same losses at a tenth of the learning rate."""
    trained = [small for small in SMALL if select(results, problem=small)]
    draw_beside(results, {small: SMALL[small] for small in trained}, path)
