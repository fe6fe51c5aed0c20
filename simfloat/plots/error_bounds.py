"""Bounds on the error of a sum, as functions of its length."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def deterministic_bound(lengths: ArrayLike, unit_roundoff: float) -> NDArray[np.float64]:
    """gamma_n = n u / (1 - n u), which no error of n roundings exceeds; infinite where n u is 1 or more.

    The error of a dot product of n terms, added one after the other, is at most gamma_n sum |a_i b_i| (Higham, Accuracy
    and Stability of Numerical Algorithms, 2002, section 3.1). Under stochastic and directed rounding u counts twice.

    Raises ValueError for lengths that are negative, and for a unit roundoff that does not lie between 0 and 1.
    """
    n, u = _checked(lengths, unit_roundoff)
    return np.where(n * u < 1, n * u / np.where(n * u < 1, 1 - n * u, 1.0), np.inf)


def probabilistic_bound(lengths: ArrayLike, unit_roundoff: float, factor: float = 1.0) -> NDArray[np.float64]:
    """exp((factor sqrt(n) u + n u^2) / (1 - u)) - 1, about factor sqrt(n) u; likelier to hold for larger factors.

    It takes rounding errors as mean independent with mean zero, which those of stochastic rounding are, with u counted
    twice, and those of rounding to nearest often resemble; not where a sum stagnates (Connolly, Higham and Mary, SIAM
    J. Sci. Comput. 43, 2021).

    Raises ValueError where `deterministic_bound` does, and for a factor that is not positive.
    """
    n, u = _checked(lengths, unit_roundoff)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise ValueError(f"factor must be a positive number, got {factor!r}.")
    with np.errstate(over="ignore"):
        return np.expm1((factor * np.sqrt(n) * u + n * u * u) / (1 - u))


def _checked(lengths: ArrayLike, unit_roundoff: float) -> tuple[NDArray[np.float64], float]:
    n = np.asarray(lengths, np.float64)
    if not (n >= 0).all():
        raise ValueError(f"Lengths must be zero or more, got {lengths!r}.")
    if not isinstance(unit_roundoff, float) or not 0 < unit_roundoff < 1:
        raise ValueError(
            f"unit_roundoff must be a number between 0 and 1, such as simfloat.FP16.unit_roundoff, got "
            f"{unit_roundoff!r}."
        )
    return n, unit_roundoff
