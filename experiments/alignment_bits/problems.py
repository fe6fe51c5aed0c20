"""The problems: a GPT of one block in three widths, on the letters of Python's documentation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from experiments.block_scaling.problems import CONTEXT, gpt, letters
from experiments.models.gpt import GPT
from experiments.problem import Problem
from experiments.training import Problems

#: Widths of the model: contractions sum as many products, or four times as many.
WIDTHS = (32, 64, 128)

#: Steps of a run, and the number of evaluations.
STEPS, RECORDS = 60, 10


def wide_gpt(width: int, seed: int, tiny: bool) -> Problem:
    """Return a GPT with heads of 16 values; a tiny run always has the smallest width."""
    _, count = letters()
    width = WIDTHS[0] if tiny else width
    model = partial(GPT, count, CONTEXT, width, layers=1, heads=width // 16, seed=seed)
    return replace(gpt(seed, tiny), model=model, steps=1 if tiny else STEPS, records=RECORDS)


PROBLEMS: Problems = {f"width {width}": partial(wide_gpt, width) for width in WIDTHS}
