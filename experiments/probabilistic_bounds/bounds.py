"""Bounds on the error of a sum of n products relative to sum |a b|, for a unit roundoff u."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def deterministic(n: NDArray, u: float) -> NDArray[np.float64]:
    """gamma_n = n u / (1 - n u), which no error exceeds; infinite from n u = 1 on (Higham 2002, section 3.1)."""
    product = np.asarray(n, np.float64) * u
    return np.where(product < 1, product / np.where(product < 1, 1 - product, 1), np.inf)


def probabilistic(n: NDArray, u: float, factor: float = 1.0) -> NDArray[np.float64]:
    """exp((factor sqrt(n) u + n u^2) / (1 - u)) - 1, about factor sqrt(n) u, which few errors exceed.

    Sources: Higham and Mary, SIAM J. Sci. Comput. 41 (2019), A2815, for errors that are independent in the mean, which
    rounding to nearest does not promise; Connolly, Higham and Mary, SIAM J. Sci. Comput. 43 (2021), A566, for
    stochastic rounding, which does, with 2 u in place of u.
    """
    n = np.asarray(n, np.float64)
    return np.expm1((factor * np.sqrt(n) * u + n * u**2) / (1 - u))
