"""The problem: the GPT of block-scaling, in fewer steps."""

from __future__ import annotations

from dataclasses import replace

from experiments.block_scaling.problems import gpt
from experiments.problem import Problem
from experiments.training import Problems

#: Steps of a run, and the number of evaluations.
STEPS, RECORDS = 150, 20


def shorter_gpt(seed: int, tiny: bool) -> Problem:
    """Predict letters of Python's documentation: one block, two heads, width and context of 32."""
    return replace(gpt(seed, tiny), steps=1 if tiny else STEPS, records=RECORDS)


PROBLEMS: Problems = {"gpt": shorter_gpt}
