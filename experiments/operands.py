"""Operands of long sums: matrices of random numbers of a format, and what is known of their exact product."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf

#: How numbers are drawn before they are rounded to the format.
DATA = {
    "uniform": lambda rng, shape: rng.uniform(0, 1, shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
}

#: What the data are called in a figure.
TITLES = {"uniform": "all of one sign: U(0, 1)", "normal": "of both signs: N(0, 1)"}


class Operands(NamedTuple):
    """Factors (size, length) and (length, size), their exact product, and that of their magnitudes (size, size)."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    exact: NDArray[np.float64]
    magnitude: NDArray[np.float64]

    def error(self, product: NDArray) -> NDArray[np.float64]:
        """How far each element of a product is from the exact one, in units of sum |a b|: its backward error."""
        return (product - self.exact) / self.magnitude


def draw_operands(data: str, seed: int, length: int, size: int, format: sf.Format) -> Operands:
    """Random factors whose product has `size` x `size` elements, each a sum of `length` products."""
    rng = np.random.default_rng([seed, length])
    shapes = (size, length), (length, size)
    a, b = (np.asarray(sf.round(DATA[data](rng, shape), format), np.float64) for shape in shapes)
    return Operands(a, b, exact_product(a, b), exact_product(np.abs(a), np.abs(b)))


def exact_product(a: NDArray, b: NDArray) -> NDArray[np.float64]:
    """The product of two matrices, each element rounded once, to FP64."""
    return np.asarray(sf.matmul(a, b, accumulate=sf.exact, output=sf.FP64), np.float64)
