"""Theorem 2: with exact updates, the squared distance to the optimum falls geometrically, on average.

E |w_t - w*|^2 <= exp(-alpha mu t (1 - 4 epsilon L / mu)) |w_0 - w*|^2 for alpha <= 1 / L, where mu is the smallest
eigenvalue of the mean of x x^T. Only the forward and the backward pass are rounded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.update_cancellation.problems import ALPHA, synthetic_data
from experiments.update_cancellation.theorem1 import EPSILON, largest_input
from simfloat.studies import Result


def bound(result: Result) -> NDArray[np.float64]:
    """Return the bound on the squared distance at the recorded iterations of a run on the noise-free problem."""
    x = synthetic_data(result["seed"], noise=0.0).x.astype(np.float64)
    mu = float(np.linalg.eigvalsh(x.T @ x / len(x))[0])
    rate = ALPHA * mu * (1 - 4 * EPSILON * largest_input(x) / mu)
    return np.exp(-rate * np.array(result["iteration"])) * result["start"]["distance"] ** 2


def squares(result: Result) -> NDArray[np.float64]:
    """Return the squared distance at the recorded iterations."""
    return np.square(result["distance"])
