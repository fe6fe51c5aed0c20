"""Newton and Schulz's iteration with every operation rounded, and its final distance from an orthogonal matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf

#: Coefficients a, b, c of a X + (b X X' + c (X X')^2) X: Muon's, which are fast and never converge, and the quintic
#: iteration that converges (Higham, Functions of Matrices, 2008, section 8.3).
COEFFICIENTS = {"Muon's": (3.4445, -4.775, 2.0315), "converging": (15 / 8, -10 / 8, 3 / 8)}

#: Numbers of steps; the first is Muon's.
STEPS = (5, 10, 20)

#: The condition number of the matrices.
CONDITION = 100.0


class Precision(NamedTuple):
    """The roundings of the iteration: of the operands of matrix products, and of all results."""

    operands: sf.Format
    results: sf.Format


PRECISIONS = {
    "FP32": Precision(sf.FP32, sf.FP32),
    "BF16 operands": Precision(sf.BF16, sf.FP32),
    "BF16": Precision(sf.BF16, sf.BF16),
    "E4M3 operands": Precision(sf.E4M3, sf.FP32),
}


def draw(seed: int, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw a matrix (size, size) with singular values evenly spaced in logarithms, and the nearest orthogonal one."""
    rng = np.random.default_rng([seed, size])
    left, right = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    return (left * np.geomspace(1, 1 / CONDITION, size)) @ right, left @ right


def iterate(g: NDArray, steps: int, coefficients: tuple[float, float, float], precision: Precision) -> NDArray:
    """Run the iteration from g over its Frobenius norm, in the order of `sf.optim.Muon`; sums are FP32."""
    a, b, c = coefficients
    x = sf.round(g / np.linalg.norm(g), precision.results)
    for _ in range(steps):
        gram = product(x, x.T, precision)
        mixed = sf.add(
            scaled(b, gram, precision), scaled(c, product(gram, gram, precision), precision), precision.results
        )
        x = sf.add(scaled(a, x, precision), product(mixed, x, precision), precision.results)
    return x


def product(left: NDArray, right: NDArray, precision: Precision) -> NDArray:
    """Return the product of matrices with rounded operands, summed in FP32."""
    operands = (sf.round(each, precision.operands) for each in (left, right))
    return sf.matmul(*operands, accumulate=sf.FP32, output=precision.results)


def scaled(factor: float, x: NDArray, precision: Precision) -> NDArray:
    """Return the factor, which is not rounded, times x."""
    return sf.multiply(factor, x, precision.results)


def in_float64(g: NDArray, steps: int, coefficients: tuple[float, float, float]) -> NDArray[np.float64]:
    """Run the same iteration in float64."""
    a, b, c = coefficients
    x = g / np.linalg.norm(g)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def distance(x: NDArray, other: NDArray) -> float:
    """Return the Frobenius norm of the difference, relative to that of the other matrix."""
    return float(np.linalg.norm(np.asarray(x, np.float64) - other) / np.linalg.norm(other))
