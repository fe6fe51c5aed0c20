"""The problem: the largest gradient changes from step to step, and in the long run."""

from __future__ import annotations

from functools import partial

import simfloat as sf
from experiments.digits import digits_problem
from experiments.problem import Problem
from experiments.training import Problems


def digits(seed: int, tiny: bool) -> Problem:
    """Classify digits by an MLP in small batches: gradients vary, and shrink as the model learns."""
    model, optimizer = partial(mlp, seed), partial(sf.optim.SGD, lr=0.05)
    return digits_problem(model, optimizer, batch=8, steps=10 if tiny else 2000, seed=seed)


def mlp(seed: int) -> sf.nn.Module:
    """Return an MLP 64-32-10."""
    return sf.nn.MLP([64, 32, 10], rng=seed)


PROBLEMS: Problems = {"digits": digits}
