"""Tensors whose every operation, forward and backward, is rounded as a policy says."""

from simfloat.autodiff import composites, contractions, movement, pointwise, reductions
from simfloat.autodiff.simulation import Simulation, current, no_grad, simulate
from simfloat.autodiff.tensor import Parameter, Tensor

__all__ = [
    "Parameter",
    "Simulation",
    "Tensor",
    "composites",
    "contractions",
    "current",
    "movement",
    "no_grad",
    "pointwise",
    "reductions",
    "simulate",
]
