"""2 lambda w in FP16, for initial weights w."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.studies import Result

#: Initial weights of layers: by their number of inputs, as in PyTorch, or as in GPT-2.
LAYERS: Mapping[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "uniform, 64 inputs": lambda rng, count: rng.uniform(-1 / 8, 1 / 8, count),
    "uniform, 1024 inputs": lambda rng, count: rng.uniform(-1 / 32, 1 / 32, count),
    "normal, 0.02": lambda rng, count: rng.normal(0, 0.02, count),
}

#: The paper's range of lambda, "usually on the order of".
LAMBDAS = (1e-5, 1e-4, 1e-3)

#: The number of weights that are drawn.
COUNT = 100_000


def text_of(lam: float) -> str:
    """Return a lambda in the usual notation: 1e-5."""
    return f"{lam:.0e}".replace("e-0", "e-")


def products(seed: int) -> Result:
    """Return the zero and subnormal shares of 2 lambda w and its mean relative error, by layer and lambda."""
    rows: list[dict[str, Any]] = []
    for layer, draw in LAYERS.items():
        weights = sf.round(draw(np.random.default_rng(seed), COUNT), sf.FP16)
        weights = weights[weights != 0]
        for lam in LAMBDAS:
            exact = 2 * lam * weights.astype(np.float64)
            found = np.asarray(sf.multiply(weights, 2 * lam, sf.FP16), np.float64)
            zero, small = found == 0, np.abs(found) < sf.FP16.smallest_normal
            error = float(np.mean(np.abs(found - exact) / np.abs(exact)))
            shares = {"zero": float(zero.mean()), "subnormal": float((small & ~zero).mean()), "error": error}
            rows.append({"layer": layer, "lam": lam, **shares})
    return {"rows": rows}
