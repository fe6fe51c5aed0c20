"""The loss times a factor: an operation in which no policy has a say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operations import compute_drawn
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.autodiff.record import begin, finish
from simfloat.autodiff.tensor import Tensor, tensor_of
from simfloat.formats import FP32, nearest_even
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.widest import widest


def scaled(loss: Tensor, factor: float) -> Tensor:
    """The loss times the factor, rounded to nearest even in FP32 or the wider format that the loss has.

    Its derivative is the factor itself, whatever the policy rounds gradients to. Observers hear of it as ``scale``.
    """
    started, by = begin("scale", loss), np.array(factor)
    used = started.operands[0]
    format = widest((FP32, used.stored_format))
    unheard = Target(format, nearest_even, carrier_of(format), operation="scale")
    heard = unheard._replace(observer=started.place.forward_in(format).target.observer)

    def derivative(_: Arithmetic, g: NDArray) -> NDArray:
        return compute_drawn("multiply", [g, by], unheard, None)

    return tensor_of(finish(started, compute_drawn("multiply", [used.numbers, by], heard, None), format, derivative))
