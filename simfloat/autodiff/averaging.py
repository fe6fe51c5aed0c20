"""Averages that a layer keeps from step to step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.record import Operand, begin
from simfloat.autodiff.variable import as_variable


def moving_average(name: str, old: Operand, new: Operand, factor: float) -> NDArray[np.floating]:
    """(1 - factor) * old + factor * new as numbers: two products and a sum, each rounded to `activations`.

    name is the operation, of the catalog, that keeps the average.
    """
    started = begin(name, as_variable(old), as_variable(new))
    (before, now), arithmetic = started.operands, started.forward
    kept = arithmetic.multiply(np.array(1.0 - factor), before.numbers)
    return arithmetic.add(kept, arithmetic.multiply(np.array(float(factor)), now.numbers))
