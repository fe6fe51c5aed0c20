"""Clicks: DLRM on late flights, as in bfloat16-models, but the seed chooses the held-out flights."""

from __future__ import annotations

from functools import partial

import simfloat as sf
from experiments import datasets
from experiments.bfloat16_models.clicks import LateFlights, rows
from experiments.judging import RECORDS, auc, measured_as
from experiments.problem import Problem, reserved, split

#: The number of held-out flights, among those that a seed may use.
HELD_OUT = 8000

#: The number of flights of a tiny run.
TINY = 500


def clicks(seed: int, tiny: bool, rate: float) -> Problem:
    """Predict which of 327 346 flights came more than 15 minutes late; 8 000 are held out."""
    x, y = rows()
    sizes = datasets.flights().sizes
    seen = reserved(TINY if tiny else len(x), seed)
    train, test = (seen[numbers] for numbers in split(len(seen), 20 if tiny else HELD_OUT, seed))
    return Problem(
        x=x[train],
        y=y[train],
        model=partial(LateFlights, x.shape[1] - len(sizes), sizes, seed),
        loss=sf.nn.binary_cross_entropy_with_logits,
        optimizer=partial(sf.optim.SGD, lr=rate),
        batch=128,
        steps=1 if tiny else 500,
        test=(x[test], y[test]),
        measures=measured_as("auc", auc),
        records=RECORDS,
    )
