"""The problem: digits by an MLP of matrices only, trained by a Muon with an iteration in a given precision."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.muon_bf16.iterations import COEFFICIENTS, PRECISIONS, Precision, iterate
from experiments.problem import Problem, split_quarter


class RoundedMuon(sf.optim.Muon):
    """Muon without weight decay, with an iteration of five steps in its own precision."""

    def __init__(self, params: Any, lr: float, precision: Precision) -> None:
        super().__init__(params, lr, weight_decay=0.0)
        self.precision = precision

    def update(self, step: Any, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return -lr times the iteration's result for the averaged gradient; matrices are transposed as in Muon."""
        keep = options.momentum
        m = step.moment("momentum_buffer", gradient, keep=keep, take=1 - keep)
        g = step.mix(1 - keep, gradient, keep, m)
        upright = g.shape[0] > g.shape[1]
        x = iterate(g.T if upright else g, options.ns_steps, COEFFICIENTS["Muon's"], self.precision)
        return step.multiply(-options.lr, x.T if upright else x)


def digits(seed: int, tiny: bool, precision: str) -> Problem:
    """Classify digits of 8 x 8 by an MLP 64-64-64-10 without biases; the seed chooses the held-out quarter."""
    x, y = datasets.digits()
    x = x.astype(np.float32)
    train, test = split_quarter(len(x), seed)
    return Problem(
        x=x[train],
        y=y[train],
        model=partial(matrices, [64, 16, 10] if tiny else [64, 64, 64, 10], seed),
        loss=sf.nn.cross_entropy,
        optimizer=partial(RoundedMuon, lr=0.02, precision=PRECISIONS[precision]),
        batch=16 if tiny else 64,
        steps=2 if tiny else 100,
        test=(x[test], y[test]),
        records=20,
    )


def matrices(sizes: list[int], seed: int) -> sf.nn.Module:
    """Return an MLP without biases."""
    rng = np.random.default_rng(seed)
    layers: list[sf.nn.Module] = []
    for inputs, outputs in zip(sizes, sizes[1:], strict=False):
        layers += [sf.nn.Linear(inputs, outputs, bias=False, rng=rng), sf.nn.ReLU()]
    return sf.nn.Sequential(*layers[:-1])
