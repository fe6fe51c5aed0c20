"""Classification of handwritten digits, for any model of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.problem import Problem, split_quarter


def digits_problem(
    model: Callable[[], sf.nn.Module],
    optimizer: Callable[[Iterable[sf.Parameter]], sf.optim.Optimizer],
    *,
    batch: int,
    steps: int,
    shape: tuple[int, ...] = (64,),
    judged: int | None = None,
    seed: int | None = None,
) -> Problem:
    """Return the problem of 1797 images of 64 grey values, with a quarter held out; it also measures the accuracy.

    The model receives images of `shape`. It is judged on the first `judged` held-out images, or on all. The seed
    chooses the held-out quarter; without a seed, it is the same for all runs.
    """
    images, y = datasets.digits()
    x = images.astype(np.float32).reshape(-1, *shape)
    train, test = split_quarter(len(x), seed)
    test = test[:judged]
    return Problem(
        x=x[train],
        y=y[train],
        model=model,
        loss=sf.nn.cross_entropy,
        optimizer=optimizer,
        batch=batch,
        steps=steps,
        test=(x[test], y[test]),
        measures=accuracy,
    )


def accuracy(model: sf.nn.Module, output: NDArray, y: NDArray) -> dict[str, float]:
    """Return the share of rows of the output (N, classes) in which the label's class has the largest value."""
    return {"accuracy": float(np.mean(output.argmax(axis=1) == y))}
