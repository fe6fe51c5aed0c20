"""The data and the models of the experiment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets

#: Inputs of the noise-free problem are drawn again until |x|^2 is at most this: assumption A2 of the theorems.
MOST_NORM = 18.0


class Problem(NamedTuple):
    """Training data, data to evaluate on, and how to train: batches are drawn with replacement."""

    x: NDArray
    y: NDArray
    test_x: NDArray
    test_y: NDArray
    lr: float
    batch: int
    steps: int
    optimum: NDArray | None = None  # the weights that made the labels

    def batches(self, seed: int) -> Iterator[tuple[NDArray, NDArray]]:
        """The same batches for every policy."""
        rng = np.random.default_rng([seed, 1])
        for _ in range(self.steps):
            rows = rng.integers(0, len(self.x), self.batch)
            yield self.x[rows], self.y[rows]


def synthetic(seed: int, tiny: bool, noise: float = 0.5) -> Problem:
    """The paper's least squares: x ~ N(0, I) in 10 dimensions, w* uniform in [0, 100), label noise 0.5."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2000, 10)).astype(np.float32)
    if noise == 0:
        while (large := (x**2).sum(axis=1) > MOST_NORM).any():
            x[large] = rng.standard_normal((int(large.sum()), 10))
    optimum = rng.uniform(0, 100, (10, 1))
    y = x @ optimum + noise * rng.standard_normal((2000, 1))
    return Problem(x, y, x, y, lr=0.01, batch=1, steps=100 if tiny else 1200, optimum=optimum)


def diabetes(seed: int, tiny: bool) -> Problem:
    """Least squares on the diabetes data: 442 patients, 10 standardised features and a constant one."""
    x, y = datasets.diabetes()
    x, y = np.hstack([x, np.ones((len(x), 1))]).astype(np.float32), y[:, np.newaxis]
    return Problem(x, y, x, y, lr=0.003, batch=1, steps=100 if tiny else 1200)


def digits(seed: int, tiny: bool) -> Problem:
    """Classification of 1797 images of digits, 8 x 8; a quarter is held out."""
    x, y = datasets.digits()
    x = x.astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[: 3 * len(x) // 4], order[3 * len(x) // 4 :]
    return Problem(x[train], y[train], x[test], y[test], lr=0.2, batch=32, steps=20 if tiny else 240)


PROBLEMS = {"synthetic": synthetic, "diabetes": diabetes, "digits": digits}


def model_for(problem: str, seed: int) -> sf.nn.Module:
    """A linear model that starts at zero for least squares, a multilayer perceptron for digits."""
    if problem == "digits":
        return sf.nn.MLP([64, 32, 10], rng=seed)
    model = sf.nn.Linear(11 if problem == "diabetes" else 10, 1, bias=False)
    model.weight.data = np.zeros(model.weight.shape)
    return model


def loss_and_accuracy(problem: str, data: Problem, model: sf.nn.Module) -> tuple[float, float | None]:
    """Half the mean squared error, or cross-entropy and accuracy, on the evaluation data, in double precision."""
    state = {path: value.astype(np.float64) for path, value in model.state_dict().items()}
    if problem != "digits":
        return float(np.mean((_product(data.test_x, state["weight"]) - data.test_y) ** 2) / 2), None
    hidden = np.maximum(_product(data.test_x, state["hidden.0.weight"]) + state["hidden.0.bias"], 0)
    scores = _product(hidden, state["head.weight"]) + state["head.bias"]
    scores -= scores.max(axis=1, keepdims=True)
    chances = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    right = scores.argmax(axis=1) == data.test_y
    return float(-np.mean(chances[np.arange(len(scores)), data.test_y])), float(np.mean(right))


def _product(x: NDArray, weight: NDArray) -> NDArray:
    """x times the transpose of weight; not by BLAS, whose threads would get in the way of the other workers."""
    return sf.matmul(x, weight.T, accumulate=sf.FP64)
