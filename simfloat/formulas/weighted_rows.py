"""The second product of attention: weights times values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.simulation.arithmetic import Arithmetic, Input


def weighted_values(u: Arithmetic, weights: NDArray, values: NDArray, inputs: tuple[Input, Input]) -> NDArray:
    """Weights (..., m, k) times values (..., k, n), each row of weights divided by its largest one for the product.

    So the largest weight of a row is 1 where operands are rounded, and no rounding changes it, as in fused kernels,
    which divide by the sum of exponentials behind the product (Dao, arXiv 2307.08691, section 3.1). What is divided
    before is multiplied after it.
    """
    if not weights.shape[-1]:
        return u.matmul(weights, values, *inputs)
    largest = weights.max(-1, keepdims=True)
    largest = np.where(largest > 0, largest, largest.dtype.type(1))
    unobserved = u.with_observer(None)
    return unobserved.multiply(u.matmul(unobserved.divide(weights, largest), values, *inputs), largest)
