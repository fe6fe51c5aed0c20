"""Digits, and digits with pixels that are not normalised."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import simfloat as sf
from experiments.digits import digits_problem
from experiments.problem import Problem
from experiments.training import Problems

#: The layer that is switched: the second of three, so that it receives gradients and passes them on.
LAYER = "hidden.1"


def digits(seed: int, tiny: bool) -> Problem:
    """Classify digits by an MLP 64-32-32-10."""
    return digits_problem(
        lambda: sf.nn.MLP([64, 32, 32, 10], rng=seed),
        partial(sf.optim.SGD, lr=0.1),
        batch=8 if tiny else 32,
        steps=6 if tiny else 400,
        seed=seed,
    )


def camera(seed: int, tiny: bool) -> Problem:
    """Classify images with pixels from 0 to 1023, as from a camera: the layer's inputs often exceed E4M3's 448."""
    problem = digits_problem(
        lambda: sf.nn.MLP([64, 32, 32, 10], rng=seed),
        partial(sf.optim.Adam, lr=1e-3),
        batch=8 if tiny else 32,
        steps=6 if tiny else 400,
        seed=seed,
    )
    x, y = problem.test or (problem.x, problem.y)
    return replace(problem, x=1023 * problem.x, test=(1023 * x, y))


PROBLEMS: Problems = {"digits": digits, "camera": camera}
