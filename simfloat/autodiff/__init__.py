"""Tensors whose every operation, forward and backward, is rounded as a policy says."""

from simfloat.autodiff.averaging import moving_average
from simfloat.autodiff.checking import gradcheck
from simfloat.autodiff.functions import (
    add_bias,
    concatenate,
    embedding,
    linear,
    pick,
    stack,
    times_factors,
    where,
)
from simfloat.autodiff.images import avg_pool2d, conv2d, conv_transpose2d, max_pool2d
from simfloat.autodiff.parameter import Parameter, begin_update, forget_gradients
from simfloat.autodiff.record import Operand
from simfloat.autodiff.scaled import scaled
from simfloat.autodiff.tensor import Tensor, as_tensor, compose
from simfloat.autodiff.users import operation

__all__ = [
    "Operand",
    "Parameter",
    "Tensor",
    "add_bias",
    "as_tensor",
    "avg_pool2d",
    "begin_update",
    "compose",
    "concatenate",
    "conv2d",
    "conv_transpose2d",
    "embedding",
    "forget_gradients",
    "gradcheck",
    "linear",
    "max_pool2d",
    "moving_average",
    "operation",
    "pick",
    "scaled",
    "stack",
    "times_factors",
    "where",
]
