"""Digits by fully connected layers and by convolutions."""

from __future__ import annotations

from functools import partial

import simfloat as sf
from experiments.digits import digits_problem
from experiments.operation_lists.problems import convolutional
from experiments.problem import Problem
from experiments.training import Problems


def digits(seed: int, tiny: bool) -> Problem:
    """Classify digits by an MLP 64-32-32-10."""
    return digits_problem(
        lambda: sf.nn.MLP([64, 32, 32, 10], rng=seed),
        partial(sf.optim.SGD, lr=0.1),
        batch=8 if tiny else 32,
        steps=2 if tiny else 300,
        judged=20 if tiny else 200,
        seed=seed,
    )


PROBLEMS: Problems = {"digits": digits, "convolutional": convolutional}
