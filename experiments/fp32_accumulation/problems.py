"""The problem of the experiment: every pixel of a scene is classified, so gradients of weights are long sums."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.problem import Problem
from experiments.training import Problems
from simfloat import nn

#: Pixels on a side of a scene, and of a digit.
SIDE, DIGIT = 32, 8

#: Scenes that are learned from, and scenes that are held out.
SCENES, HELD_OUT = 256, 64

#: The brightest noise, and the darkest ink that counts as such.
NOISE, INK = 0.5, 0.5


class Convolutions(nn.Module):
    """Two convolutions: eight channels with ReLU, and the logit of every pixel."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.first = nn.Conv2d(1, 8, 3, padding=1, rng=rng)
        self.second = nn.Conv2d(8, 1, 3, padding=1, rng=rng)

    def forward(self, x: NDArray) -> sf.Tensor:
        """Scenes (N, 1, 32, 32) -> logits (N, 1, 32, 32)."""
        return self.second(self.first(x).relu())


@cache
def scenes(seed: int, count: int) -> tuple[NDArray, NDArray]:
    """Noise with one handwritten digit each, and which pixels are its ink: two of a hundred."""
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
    """Which pixels are ink: the gradient of a weight is a sum over the 16 384 pixels of a batch."""
    x, y = scenes(seed, SCENES)
    return Problem(
        x=x,
        y=y,
        model=partial(Convolutions, seed),
        loss=nn.binary_cross_entropy_with_logits,
        optimizer=partial(sf.optim.SGD, lr=0.3, momentum=0.9),
        batch=16,
        steps=5 if tiny else 300,
        test=scenes(seed + 2**31, HELD_OUT),
        measures=predicted,
    )


def predicted(model: nn.Module, output: NDArray, y: NDArray) -> dict[str, float]:
    """How much ink the model expects, as a multiple of what there is: the sum of its probabilities over their truth."""
    return {"ink": float(np.sum(1 / (1 + np.exp(-output))) / np.sum(y))}


PROBLEMS: Problems = {"segmentation": segmentation}
