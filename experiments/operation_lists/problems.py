"""Three models with operations on different lists: batch norm, softmax and layer norm, and a loss of large values."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.digits import digits_problem
from experiments.problem import Problem
from experiments.training import Problems
from simfloat import nn

#: The number of samples on which digits are judged: few enough for FP64.
JUDGED, TINY_JUDGED = 200, 20


def convolutional(seed: int, tiny: bool) -> Problem:
    """Classify digits by two convolutions with batch norm, which sums over up to 4096 values per channel."""
    return digits_problem(
        partial(convolutional_model, seed),
        partial(sf.optim.SGD, lr=0.05),
        steps=2 if tiny else 120,
        batch=8 if tiny else 32,
        shape=(1, 8, 8),
        judged=TINY_JUDGED if tiny else JUDGED,
        seed=seed,
    )


def convolutional_model(seed: int) -> nn.Module:
    """Return two convolutions of 8 and 16 channels, each with batch norm, and a linear layer."""
    rng = np.random.default_rng(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False, rng=rng),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False, rng=rng),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10, rng=rng),
    )


class RowsTransformer(nn.Module):
    """A layer of a transformer that reads an image (N, 64) as eight rows of eight pixels: softmax and layer norm."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.embedding = nn.Linear(8, 16, rng=rng)
        self.place = nn.Embedding(8, 16, rng=rng)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True, rng=rng)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 10, rng=rng)

    def forward(self, x: NDArray) -> sf.Tensor:
        """Return logits (N, 10) for images (N, 64)."""
        rows = self.embedding(x.reshape(-1, 8, 8)) + self.place(np.arange(8))
        return self.head(self.norm(self.block(rows)).mean(axis=1))


def transformer(seed: int, tiny: bool) -> Problem:
    """Classify digits by one layer of a transformer."""
    return digits_problem(
        partial(RowsTransformer, seed),
        partial(sf.optim.AdamW, lr=5e-3),
        steps=2 if tiny else 120,
        batch=8 if tiny else 32,
        judged=TINY_JUDGED if tiny else JUDGED,
        seed=seed,
    )


def regression(seed: int, tiny: bool) -> Problem:
    """Predict the progress of diabetes, 25 to 346, unscaled: its squares exceed the largest number of FP16."""
    x, y = datasets.diabetes()
    return Problem(
        x=x.astype(np.float32),
        y=y[:, np.newaxis],
        model=lambda: nn.MLP([10, 16, 1], rng=seed),
        loss=nn.mse_loss,
        optimizer=partial(sf.optim.SGD, lr=1e-4),
        batch=32,
        steps=2 if tiny else 200,
    )


PROBLEMS: Problems = {"convolutional": convolutional, "transformer": transformer, "regression": regression}
