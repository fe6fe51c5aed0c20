"""Products with factors that belong to an operation and are no operand of it."""

from __future__ import annotations

from numpy.typing import NDArray

from simfloat.autodiff.record import Made, begin, finish
from simfloat.autodiff.variable import Variable


def times_factors(a: Variable, factors: NDArray) -> Made:
    """a * factors, an array of the same shape, each product rounded; ``widest`` is the format of `a`.

    PyTorch's dropout gives numbers of its input's type, whatever its probability.
    """
    started = begin("multiply", a)
    arithmetic = started.forward
    product = arithmetic.multiply(started.operands[0].numbers, factors)
    return finish(started, product, arithmetic.format, lambda u, g: u.multiply(g, factors))
