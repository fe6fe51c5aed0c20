"""The addition of a bias: a part of the contraction before it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.record import Made, begin, finish, passed_to
from simfloat.autodiff.variable import Variable
from simfloat.simulation import Arithmetic


def add_bias(product: Variable, bias: Variable, axis: int = -1) -> Made:
    """product + bias, one number for each place along `axis`.

    An addition like any other but where results are ``widest``: there the product's format decides.

    Under automatic mixed precision PyTorch's linear layers and convolutions take their bias in the format that they
    compute in, and its gradient comes in that format.
    """
    started, shape = begin("add", product, bias), bias.shape
    place, format = started.place, product.stored_format
    arithmetic = place.forward_in(format) if place.is_widest else place.forward

    def to_product(u: Arithmetic, g: NDArray) -> NDArray:
        return u.round(g)

    def to_bias(u: Arithmetic, g: NDArray) -> NDArray:
        return passed_to(u, np.moveaxis(g, axis, -1), shape)

    behind = [1] * (product.ndim - 1 - axis % product.ndim)
    total = arithmetic.add(product.numbers, bias.numbers.reshape(*shape, *behind))
    made = finish(started, total, arithmetic.format, to_product, to_bias)
    return made if made.node is None else made._replace(node=made.node._replace(formats=(format, format)))
