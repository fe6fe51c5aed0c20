"""The problems of the experiment: one has long dot products in its gradients, the other long sums in its layers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.digits import accuracy, digits_problem
from experiments.problem import Problem
from experiments.training import Problems
from simfloat import nn

#: Pixels on a side of a scene, and of a digit.
SIDE, DIGIT = 32, 8

#: Training scenes, and held-out scenes.
SCENES, HELD_OUT = 256, 64

#: The brightest noise, and the darkest value that counts as ink.
NOISE, INK = 0.5, 0.5


class SegmentationModel(nn.Module):
    """Two convolutions: eight channels with ReLU, and the logit of every pixel."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.first = nn.Conv2d(1, 8, 3, padding=1, rng=rng)
        self.second = nn.Conv2d(8, 1, 3, padding=1, rng=rng)

    def forward(self, x: NDArray) -> sf.Tensor:
        """Return logits (N, 1, 32, 32) for scenes (N, 1, 32, 32)."""
        return self.second(self.first(x).relu())


@cache
def scenes(seed: int, count: int) -> tuple[NDArray, NDArray]:
    """Return noise with one handwritten digit in each scene, and the mask of its ink: two pixels of a hundred."""
    rng = np.random.default_rng(seed)
    digits = datasets.digits()[0].reshape(-1, DIGIT, DIGIT)
    x, y = rng.uniform(0, NOISE, (count, 1, SIDE, SIDE)), np.zeros((count, 1, SIDE, SIDE))
    for scene, truth in zip(x[:, 0], y[:, 0], strict=True):
        row, column = rng.integers(0, SIDE - DIGIT, 2)
        place = slice(row, row + DIGIT), slice(column, column + DIGIT)
        digit = digits[rng.integers(len(digits))]
        scene[place] = np.maximum(scene[place], digit)
        truth[place] = digit > INK
    return x.astype(np.float32), y


def segmentation(seed: int, tiny: bool) -> Problem:
    """Find the pixels with ink: the gradient of a weight is a sum over the 16 384 pixels of a batch."""
    x, y = scenes(seed, SCENES)
    return Problem(
        x=x,
        y=y,
        model=partial(SegmentationModel, seed),
        loss=nn.binary_cross_entropy_with_logits,
        optimizer=partial(sf.optim.SGD, lr=0.3, momentum=0.9),
        batch=16,
        steps=2 if tiny else 300,
        test=scenes(seed + 2**31, HELD_OUT),
        measures=predicted,
    )


def predicted(model: nn.Module, output: NDArray, y: NDArray) -> dict[str, float]:
    """Return the expected amount of ink relative to the true one: the ratio of the sums of probabilities and of ink."""
    return {"ink": float(np.sum(1 / (1 + np.exp(-output))) / np.sum(y))}


class Normalised(nn.Module):
    """Two convolutions, each with batch norm, ReLU and max pooling, and a linear layer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.first, self.first_norm = nn.Conv2d(1, 8, 3, padding=1, rng=rng), nn.BatchNorm2d(8)
        self.second, self.second_norm = nn.Conv2d(8, 16, 3, padding=1, rng=rng), nn.BatchNorm2d(16)
        self.pool, self.flatten = nn.MaxPool2d(2), nn.Flatten()
        self.head = nn.Linear(16 * 2 * 2, 10, rng=rng)

    def forward(self, x: NDArray | sf.Tensor) -> sf.Tensor:
        """Return logits (N, 10) for images (N, 1, 8, 8)."""
        x = self.pool(self.first_norm(self.first(x)).relu())
        x = self.pool(self.second_norm(self.second(x)).relu())
        return self.head(self.flatten(x))


def normalised(seed: int, tiny: bool) -> Problem:
    """Classify digits in batches of 256: the statistics of the first batch norm are sums over 16 384 pixels."""
    optimizer = partial(sf.optim.SGD, lr=0.05, momentum=0.9)
    steps, shape = 2 if tiny else 60, (1, DIGIT, DIGIT)
    problem = digits_problem(partial(Normalised, seed), optimizer, batch=256, steps=steps, shape=shape, seed=seed)
    return replace(problem, records=20, measures=partial(measures_with_averages, x=(problem.test or (problem.x,))[0]))


def measures_with_averages(model: nn.Module, output: NDArray, y: NDArray, x: NDArray) -> dict[str, float]:
    """Return the accuracy, and the loss with the running averages of batch norm, which the training computed."""
    model.eval()
    return {**accuracy(model, output, y), "averaged": float(nn.cross_entropy(model(x), y).item())}


PROBLEMS: Problems = {"segmentation": segmentation, "normalised": normalised}
