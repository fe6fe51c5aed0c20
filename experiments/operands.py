"""Operands of long sums: random matrices of a format, with bounds and values of their exact product."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf

#: Functions that draw values before they are rounded to the format.
DATA = {
    "uniform": lambda rng, shape: rng.uniform(0, 1, shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
}

#: The names of the data in a figure.
TITLES = {"uniform": "all of one sign: U(0, 1)", "normal": "of both signs: N(0, 1)"}


class Operands(NamedTuple):
    """Factors (size, length) and (length, size), their exact product, and that of their magnitudes (size, size)."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    exact: NDArray[np.float64]
    magnitude: NDArray[np.float64]

    def error(self, product: NDArray) -> NDArray[np.float64]:
        """Return the backward error of each element of a product: its error in units of sum |a b|."""
        return (product - self.exact) / self.magnitude


def draw_operands(data: str, seed: int, length: int, size: int, format: sf.Format) -> Operands:
    """Draw random factors with a product of `size` x `size` elements, each a sum of `length` products."""
    rng = np.random.default_rng([seed, length])
    shapes = (size, length), (length, size)
    a, b = (np.asarray(sf.round(DATA[data](rng, shape), format), np.float64) for shape in shapes)
    return Operands(a, b, exact_product(a, b), exact_product(np.abs(a), np.abs(b)))


def exact_product(a: NDArray, b: NDArray) -> NDArray[np.float64]:
    """Return the product of two matrices, with each element rounded once, to FP64."""
    return np.asarray(sf.matmul(a, b, accumulate=sf.exact, output=sf.FP64), np.float64)
