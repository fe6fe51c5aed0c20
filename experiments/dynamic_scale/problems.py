"""Digits, trained long enough for a loss scale to grow twice after 2000 steps each, and a model that needs a scale."""

from __future__ import annotations

from functools import partial

import simfloat as sf
from experiments.digits import digits_problem
from experiments.loss_scaling.problems import regression
from experiments.problem import Problem
from experiments.training import Problems


def digits(seed: int, tiny: bool) -> Problem:
    """Classify digits by an MLP 64-16-10."""
    return digits_problem(
        lambda: sf.nn.MLP([64, 16, 10], rng=seed),
        partial(sf.optim.SGD, lr=0.05),
        batch=16,
        steps=8 if tiny else 4400,
        judged=20 if tiny else None,
        seed=seed,
    )


PROBLEMS: Problems = {"digits": digits, "regression": regression}
