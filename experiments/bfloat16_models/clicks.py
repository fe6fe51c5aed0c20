"""Recommendation: DLRM on late flights instead of clicked advertisements."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.judging import auc, judged
from experiments.models import DLRM
from experiments.problem import Problem

#: The number of held-out flights.
HELD_OUT = 4000


class LateFlights(DLRM):
    """DLRM on rows of values and categories: about 21 000 weights, three quarters of them in the table of aircraft."""

    def __init__(self, numbers: int, sizes: tuple[int, ...], seed: int) -> None:
        super().__init__(numbers, sizes, width=4, bottom=[32], top=[64, 32], seed=seed)
        self.numbers = numbers

    def forward(self, rows: NDArray) -> sf.Tensor:  # type: ignore[override]
        """Return logits (N,) for rows (N, numbers + tables)."""
        categories = rows[:, self.numbers :].astype(np.int64)
        return super().forward(rows[:, : self.numbers], [column[:, np.newaxis] for column in categories.T])


@cache
def rows() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return values and categories of each flight side by side, and whether it came late, in one random order."""
    flights = datasets.flights()
    order = np.random.default_rng(0).permutation(len(flights.late))
    x = np.hstack([flights.numbers, flights.categories]).astype(np.float32)
    return x[order], flights.late[order].astype(np.float32)


def clicks(seed: int, tiny: bool) -> Problem:
    """Predict which of 327 346 flights came more than 15 minutes late; 4 000 are held out."""
    x, y = rows()
    train = slice(HELD_OUT, None)
    sizes = datasets.flights().sizes
    problem = Problem(
        x=x[train],
        y=y[train],
        model=partial(LateFlights, x.shape[1] - len(sizes), sizes, seed),
        loss=sf.nn.binary_cross_entropy_with_logits,
        optimizer=partial(sf.optim.SGD, lr=0.1),
        batch=64,
        steps=1 if tiny else 500,
        test=(x[:HELD_OUT], y[:HELD_OUT]),
    )
    return judged(problem, "auc", auc, tiny, HELD_OUT)
