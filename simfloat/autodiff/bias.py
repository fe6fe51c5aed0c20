"""The addition of a bias: a part of the contraction before it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.record import Made, among, begin, finish, passed_to
from simfloat.autodiff.variable import Variable
from simfloat.simulation.arithmetic import Arithmetic


def add_bias(product: Variable, bias: Variable, axis: int = -1, part: slice | None = None) -> Made:
    """product + bias, or a part of it, one number for each place along `axis`.

    An addition like any other but where results are ``widest``: there the product's format decides.

    Under automatic mixed precision PyTorch's linear layers and convolutions take their bias in the format that they
    compute in, and its gradient comes in that format.
    """
    started = begin("add", product, bias)
    product, bias = started.operands
    added = bias.numbers if part is None else bias.numbers[part]
    place, format = started.place, product.stored_format
    arithmetic = place.forward_in(format) if place.is_widest else place.forward

    def to_product(u: Arithmetic, g: NDArray) -> NDArray:
        return u.round(g)

    def to_bias(u: Arithmetic, g: NDArray) -> NDArray:
        return among(passed_to(u, np.moveaxis(g, axis, -1), added.shape), bias.shape, part)

    behind = [1] * (product.ndim - 1 - axis % product.ndim)
    total = arithmetic.add(product.numbers, added.reshape(*added.shape, *behind))
    made = finish(started, total, arithmetic.format, to_product, to_bias)
    if made.node is None or not place.takes_formats:
        return made
    return made._replace(node=made.node._replace(formats=(format, format)))
