"""The problems of the experiment: a model with small gradients, and one with larger gradients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.digits import digits_problem
from experiments.problem import Problem
from experiments.training import Problems
from simfloat import nn

#: The layers of the autoencoder.
SIZES = (64, 32, 32, 16, 32, 32, 64)


class Autoencoder(nn.Module):
    """Sigmoid layers and a linear one: each makes the gradient of the backward pass about seven times smaller."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        *hidden, last = zip(SIZES, SIZES[1:], strict=False)
        self.hidden = nn.ModuleList(nn.Linear(*sizes, rng=rng) for sizes in hidden)
        self.head = nn.Linear(*last, rng=rng)

    def forward(self, x: NDArray) -> sf.Tensor:
        """Return images (N, 64) for images (N, 64)."""
        for layer in self.hidden:
            x = layer(x).sigmoid()
        return self.head(x)


class DigitClassifier(nn.Module):
    """Two convolutions with ReLU and pooling, and a linear layer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.first = nn.Conv2d(1, 8, 3, padding=1, rng=rng)
        self.second = nn.Conv2d(8, 16, 3, padding=1, rng=rng)
        self.pool, self.flatten = nn.MaxPool2d(2), nn.Flatten()
        self.head = nn.Linear(16 * 2 * 2, 10, rng=rng)

    def forward(self, x: NDArray | sf.Tensor) -> sf.Tensor:
        """Return logits (N, 10) for images (N, 1, 8, 8)."""
        for layer in (self.first, self.second):
            x = self.pool(layer(x).relu())
        return self.head(self.flatten(x))


#: Batches of the autoencoder: large ones, over which the loss is a mean, and small ones.
LARGE_BATCH, SMALL_BATCH = 256, 16


def regression(seed: int, tiny: bool, batch: int = LARGE_BATCH) -> Problem:
    """Reproduce digits by an autoencoder, trained by Adam, for which the size of gradients does not matter.

    The loss is the mean over all pixels of a batch, as in dense regression, so its gradients are small.
    """
    optimizer = partial(sf.optim.Adam, lr=0.01)
    images = digits_problem(partial(Autoencoder, seed), optimizer, batch=batch, steps=2 if tiny else 400, seed=seed)
    x, held_out = images.x, images.test[0] if images.test else images.x
    return replace(images, y=x, test=(held_out, held_out), loss=sf.nn.mse_loss, measures=no_measures)


def no_measures(model: nn.Module, output: NDArray, y: NDArray) -> dict[str, float]:
    """Return no measures in addition to the loss."""
    return {}


def classification(seed: int, tiny: bool) -> Problem:
    """Classify digits by a convolutional network, trained by SGD with momentum."""
    model, optimizer = partial(DigitClassifier, seed), partial(sf.optim.SGD, lr=0.05, momentum=0.9)
    return digits_problem(model, optimizer, batch=32, steps=2 if tiny else 150, shape=(1, 8, 8), seed=seed)


PROBLEMS: Problems = {
    "regression": regression,
    "classification": classification,
    "small-batch": partial(regression, batch=SMALL_BATCH),
}
