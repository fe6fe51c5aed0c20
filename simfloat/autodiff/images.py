"""Functions of images that layers are made of: the operations of convolution.py and pooling.py, giving tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from simfloat.autodiff import convolution, pooling
from simfloat.autodiff.record import Made
from simfloat.autodiff.tensor import Tensor, tensor_of

P = ParamSpec("P")


def _giving_tensors(operation: Callable[P, Made]) -> Callable[P, Tensor]:
    @wraps(operation)
    def function(*arguments: P.args, **options: P.kwargs) -> Tensor:
        return tensor_of(operation(*arguments, **options))

    return function


conv2d = _giving_tensors(convolution.conv2d)
conv_transpose2d = _giving_tensors(convolution.conv_transpose2d)
max_pool2d = _giving_tensors(pooling.max_pool2d)
avg_pool2d = _giving_tensors(pooling.avg_pool2d)
