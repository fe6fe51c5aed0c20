"""Theorem 1: near the optimum, nearest rounding cancels a whole update.

With |x_i|^2 <= L and epsilon = 2^-8, the update of every weight is below half a gap of bfloat16 if
|w - w*| < epsilon / (2 alpha L + epsilon) * min_j |w*_j|. The paper prints epsilon / (alpha L + epsilon), which is up
to twice as large. A counterexample shows that it is too large.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.update_cancellation.policies import UPDATE_ONLY
from experiments.update_cancellation.problems import synthetic_data
from simfloat.studies import Result

EPSILON = sf.BF16.unit_roundoff

#: Small enough for many bfloat16 points to lie inside the radius.
LR = 1e-4


def largest_input(x: NDArray) -> float:
    """Return L: the largest |x_i|^2."""
    return float((x.astype(np.float64) ** 2).sum(axis=1).max())


def safe_radius(lr: float, L: float, least_weight: float) -> float:
    """Return the radius inside which every update is cancelled."""
    return EPSILON / (2 * lr * L + EPSILON) * least_weight


def printed_radius(lr: float, L: float, least_weight: float) -> float:
    """Return the radius that the paper prints."""
    return EPSILON / (lr * L + EPSILON) * least_weight


def check_theorem_1(seed: int, points: int) -> Result:
    """Make updates from random bfloat16 weights inside the safe radius, and count the weights that change."""
    rng = np.random.default_rng([seed, 2])
    inputs = synthetic_data(seed, noise=0.0).x
    optimum = sf.round(rng.uniform(1, 100, 10), sf.BF16)
    L = largest_input(inputs)
    radius = safe_radius(LR, L, float(optimum.min()))
    tried = moved = 0
    while tried < points:
        step = rng.standard_normal(10)
        weight = sf.round(optimum + step / np.linalg.norm(step) * rng.uniform(0, 1.5 * radius), sf.BF16)
        if 0 < np.linalg.norm(weight - optimum) < radius:
            tried += 1
            x = inputs[rng.integers(len(inputs))]
            moved += int((step_from(weight, x, optimum, LR) != weight).sum())
    return {"tried": tried, "moved": moved, "radius": radius, "counterexample": counterexample()}


def step_from(weight: NDArray, x: NDArray, optimum: NDArray, lr: float) -> NDArray:
    """Return the weights after one noise-free update from `weight`, rounded to bfloat16."""
    model = sf.nn.Linear(len(weight), 1, bias=False)
    model.weight.data = weight[np.newaxis]
    with sf.simulate(UPDATE_ONLY):
        error = model(x[np.newaxis]) - np.array([[x.astype(np.float64) @ optimum]])
        error.backward(error.data)
        sf.optim.SGD(model.parameters(), lr=lr).step()
    return model.weight.data[0]


def counterexample() -> bool:
    """Test an update inside the printed radius: x = 1, alpha = 0.75, w* = 1.984375, w = 1.9921875."""
    x, weight, optimum, lr = np.ones(1), np.array([1.9921875]), np.array([1.984375]), 0.75
    inside = abs(weight[0] - optimum[0]) < printed_radius(lr, 1.0, optimum[0])
    return bool(inside and step_from(weight, x, optimum, lr)[0] != weight[0])
