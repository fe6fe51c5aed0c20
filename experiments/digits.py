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
    """1797 images of 64 grey values, of which a quarter is held out; beside the loss, the accuracy is measured.

    The model takes images of this shape; it is judged on the first `judged` of those that are held out, or on all.
    Which quarter that is follows the seed; without one it is the same for all runs.
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
    """The share of rows of the output (N, classes) whose largest number is that of the label's class."""
    return {"accuracy": float(np.mean(output.argmax(axis=1) == y))}
