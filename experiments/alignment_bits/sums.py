"""Errors of sums in Hopper's FP8 units, compared with the errors of rounding the operands to E4M3."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf

#: The numbers of products to which a trend is fitted, and the number on which it is tested; the numbers for a tiny run.
LENGTHS, BEYOND = (128, 512, 2048, 8192), 65536
TINY_LENGTHS = (64, 128, 512)

#: Rows and columns of the product.
SIZE, TINY_SIZE = 48, 4

#: Factors by kind: products of both signs, and of one sign.
DATA = {
    "both signs": lambda rng, shape: rng.standard_normal(shape),
    "one sign": lambda rng, shape: rng.random(shape),
}

#: The unit: 13 fraction bits below the leading bit of the largest term.
HOPPER = sf.tensor_core("hopper", sf.E4M3)


def measure_sums(data: str, seed: int, tiny: bool) -> list[dict[str, Any]]:
    """Return for each length the root mean square errors of operands and of sums, relative to the exact results."""
    size = TINY_SIZE if tiny else SIZE
    rows = []
    for length in TINY_LENGTHS if tiny else (*LENGTHS, BEYOND):
        rng = np.random.default_rng([seed, list(DATA).index(data), length])
        a, b = DATA[data](rng, (size, length)), DATA[data](rng, (length, size))
        (left, down), (right, up) = narrow(a), narrow(b)
        exact, rounded = a @ b, left @ right
        found = np.asarray(sf.matmul(left * down, right * up, accumulate=HOPPER, output=sf.FP32)) / (down * up)
        whole = rms(exact)
        rows.append({"length": length, "operands": rms(rounded - exact) / whole, "sums": rms(found - rounded) / whole})
    return rows


def narrow(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return the values rounded to E4M3 under the largest power of two with which all fit, and this scale."""
    scale = 2.0 ** np.floor(np.log2(sf.E4M3.max / np.abs(x).max()))
    return np.asarray(sf.round(x * scale, sf.E4M3), np.float64) / scale, scale


def rms(x: NDArray[np.float64]) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(x))))
