"""Products with constants that are no operands: masks, as of dropout; loss scales; the weights of moving averages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operations import compute_with_draw
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.autodiff.record import Operand, Operations, Result, begin, finish
from simfloat.autodiff.variable import as_variable
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, nearest_even
from simfloat.formulas import norms
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.widest import widest_format


@in_usual_environment
class ConstantProducts(Operations[Result]):
    """The products of a tensor with constants."""

    def times_factors(self, factors: NDArray) -> Result:
        """Each number times its factor, an array of the same shape, rounded; ``widest_format`` is the tensor's format.

        PyTorch's dropout gives numbers of its input's type, whatever its probability.
        """
        started = begin("multiply", self)
        arithmetic = started.forward
        product = arithmetic.multiply(started.operands[0].numbers, factors)
        return self.from_result(finish(started, product, arithmetic.format, lambda u, g: u.multiply(g, factors)))

    def scaled(self, factor: float) -> Result:
        """Loss scaling: the product with the factor, to nearest even in at least FP32 under any policy.

        A loss in a wider format keeps it. The derivative is the factor itself, whatever the policy rounds gradients to.
        The observer receives the events as ``scale``.
        """
        started, by = begin("scale", self), np.array(factor)
        used = started.operands[0]
        format = widest_format((FP32, used.stored_format))
        unobserved = Target(format, nearest_even, carrier_of(format), operation="scale")
        observed = unobserved._replace(observer=started.place.forward_in(format).target.observer)

        def derivative(_: Arithmetic, g: NDArray) -> NDArray:
            return compute_with_draw("multiply", [g, by], unobserved, None)

        product = compute_with_draw("multiply", [used.numbers, by], observed, None)
        return self.from_result(finish(started, product, format, derivative))


def moving_average(name: str, old: Operand, new: Operand, factor: float) -> NDArray[np.floating]:
    """(1 - factor) * old + factor * new as numbers: two products and a sum, each rounded to `activations`.

    As of batch norm's statistics. name is the operation, of the catalog, that keeps the average.
    """
    started = begin(name, as_variable(old), as_variable(new))
    (before, now), arithmetic = started.operands, started.forward
    return norms.moving_average(arithmetic, before.numbers, now.numbers, factor)
