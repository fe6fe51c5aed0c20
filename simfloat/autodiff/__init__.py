"""Tensors whose every operation, forward and backward, is rounded as a policy says."""

from simfloat.autodiff.functions import linear, pick
from simfloat.autodiff.parameter import Parameter, begin_update
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import Tensor, as_tensor
from simfloat.simulation import Simulation, composite, current, no_grad, simulate

__all__ = [
    "Operand",
    "Parameter",
    "Simulation",
    "Tensor",
    "as_tensor",
    "begin_update",
    "composite",
    "current",
    "linear",
    "no_grad",
    "pick",
    "simulate",
]
