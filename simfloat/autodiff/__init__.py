"""Tensors: every operation, forward and backward, is rounded as the policy says."""

from simfloat.autodiff.parameter import Parameter
from simfloat.autodiff.tensor import Tensor, concatenate, stack, where
from simfloat.autodiff.user_operations import gradcheck, operation

__all__ = [
    "Parameter",
    "Tensor",
    "concatenate",
    "gradcheck",
    "operation",
    "stack",
    "where",
]
