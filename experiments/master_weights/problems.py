"""The problem of the experiment: many small steps."""

from __future__ import annotations

from functools import partial

import simfloat as sf
from experiments.digits import digits_problem
from experiments.problem import Problem
from experiments.training import Problems

#: The exponent of the learning rate: so small that most steps change a weight by less than a thousandth.
LR_EXPONENT = -12


def digits(seed: int, tiny: bool) -> Problem:
    """Classify digits by an MLP, trained as the paper's speech models are, by SGD with Nesterov's momentum."""
    model, optimizer = partial(mlp, seed), partial(sf.optim.SGD, lr=2.0**LR_EXPONENT, momentum=0.9, nesterov=True)
    return digits_problem(model, optimizer, batch=32, steps=3 if tiny else 4000, seed=seed)


def mlp(seed: int) -> sf.nn.Module:
    """Return an MLP 64-32-10."""
    return sf.nn.MLP([64, 32, 10], rng=seed)


PROBLEMS: Problems = {"digits": digits}
