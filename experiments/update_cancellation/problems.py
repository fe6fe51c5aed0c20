"""The problems of the experiment."""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.digits import digits_problem
from experiments.problem import Problem
from experiments.training import Problems

#: Inputs of the noise-free problem are drawn again until |x|^2 is at most this: assumption A2 of the theorems.
MOST_NORM = 18.0

#: The paper's learning rate, for half the squared error.
ALPHA = 0.01

#: The gradient of the mean squared error is exactly twice that of its half; half the rate makes the same updates.
HALF = 0.5


def linear_model(features: int) -> sf.nn.Module:
    """Return least squares: no bias, started at zero."""
    model = sf.nn.Linear(features, 1, bias=False)
    model.weight.data = np.zeros(model.weight.shape)
    return model


class Synthetic(NamedTuple):
    """Inputs (2000, 10), labels (2000, 1), and the weights that made them (10, 1)."""

    x: NDArray
    y: NDArray
    optimum: NDArray


@cache
def synthetic_data(seed: int, noise: float) -> Synthetic:
    """Return the paper's data: x ~ N(0, I) in 10 dimensions, w* uniform in [0, 100), normal noise on the labels."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2000, 10)).astype(np.float32)
    if noise == 0:
        while (large := (x**2).sum(axis=1) > MOST_NORM).any():
            x[large] = rng.standard_normal((int(large.sum()), 10))
    optimum = rng.uniform(0, 100, (10, 1))
    return Synthetic(x, x @ optimum + noise * rng.standard_normal((2000, 1)), optimum)


def synthetic(seed: int, tiny: bool, noise: float = 0.5) -> Problem:
    """Fit least squares on synthetic data; the distance to w* is also measured."""
    x, y, optimum = synthetic_data(seed, noise)
    return Problem(
        x=x,
        y=y,
        model=partial(linear_model, x.shape[1]),
        loss=sf.nn.mse_loss,
        optimizer=partial(sf.optim.SGD, lr=HALF * ALPHA),
        batch=1,
        steps=100 if tiny else 800,
        measures=lambda model, output, y: {"distance": float(np.linalg.norm(model.state_dict()["weight"].T - optimum))},
    )


def diabetes(seed: int, tiny: bool) -> Problem:
    """Fit least squares on the diabetes data: 442 patients, 10 standardised features and a constant one."""
    x, y = datasets.diabetes()
    x = np.hstack([x, np.ones((len(x), 1))]).astype(np.float32)
    return Problem(
        x=x,
        y=y[:, np.newaxis],
        model=partial(linear_model, x.shape[1]),
        loss=sf.nn.mse_loss,
        optimizer=partial(sf.optim.SGD, lr=HALF * 0.003),
        batch=1,
        steps=100 if tiny else 1000,
    )


def digits(seed: int, tiny: bool) -> Problem:
    """Classify 1797 images of digits, 8 x 8; a quarter is held out."""
    return digits_problem(
        lambda: sf.nn.MLP([64, 32, 10], rng=seed),
        partial(sf.optim.SGD, lr=0.02),
        batch=32,
        steps=20 if tiny else 500,
        seed=seed,
    )


#: Every policy is compared on these; theorem 2 is about least squares without noise.
COMPARED: Problems = {"synthetic": synthetic, "diabetes": diabetes, "digits": digits}
PROBLEMS: Problems = {**COMPARED, "noise-free": partial(synthetic, noise=0.0)}
