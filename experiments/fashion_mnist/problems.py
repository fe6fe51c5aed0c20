"""The problem: photographs of clothes by a convolutional network; digits in a tiny run."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.digits import accuracy, digits_problem
from experiments.problem import Problem, reserved, split
from experiments.training import Problems
from simfloat import nn

#: The numbers of held-out images and of training images, among those that a seed may use.
HELD_OUT, TRAINED_ON = 2_000, 30_000

#: The best rate for FP32 with seeds 0 and 1, among 0.003, 0.01, 0.03 and 0.1; and a tenth of it.
RATE, SMALL_RATE = 0.03, 0.003


def convolutional(side: int, seed: int) -> nn.Module:
    """Two convolutions that halve the side of the image, each with ReLU, and a linear layer."""
    rng = np.random.default_rng(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1, rng=rng),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, rng=rng),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (side // 4) ** 2, 10, rng=rng),
    )


@cache
def images() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all 70 000 images as bytes (N, 1, 28, 28), and their classes."""
    parts = [datasets.fashion_mnist(part) for part in ("train", "test")]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return x[:, np.newaxis], y


def clothes(seed: int, tiny: bool, rate: float = RATE) -> Problem:
    """Classify ten kinds of clothes: 9 098 weights, SGD with momentum."""
    optimizer = partial(sf.optim.SGD, lr=rate, momentum=0.9, weight_decay=5e-4)
    if tiny:
        return digits_problem(
            partial(convolutional, 8, seed), optimizer, batch=16, steps=5, shape=(1, 8, 8), judged=50, seed=seed
        )
    x, y = images()
    seen = reserved(len(x), seed)
    train, test = (seen[rows] for rows in split(len(seen), HELD_OUT, seed))
    train = train[:TRAINED_ON]
    return Problem(
        x=scaled(x[train]),
        y=y[train],
        model=partial(convolutional, 28, seed),
        loss=nn.cross_entropy,
        optimizer=optimizer,
        batch=64,
        steps=1500,
        test=(scaled(x[test]), y[test]),
        measures=accuracy,
        records=20,
    )


def scaled(x: NDArray[np.uint8]) -> NDArray:
    """Return grey values from 0 to 1."""
    return x.astype(np.float32) / 255


PROBLEMS: Problems = {"clothes": clothes, "small steps": partial(clothes, rate=SMALL_RATE)}
