"""The addition of a bias: a part of the contraction before it."""

from __future__ import annotations

from numpy.typing import NDArray

from simfloat.autodiff.record import Made, begin, finish, passed_to
from simfloat.autodiff.variable import Variable
from simfloat.simulation import Arithmetic


def add_bias(product: Variable, bias: Variable) -> Made:
    """product + bias, an addition like any other but where results are ``widest``: there the product's format decides.

    Under automatic mixed precision PyTorch's linear layers and convolutions take their bias in the format that they
    compute in, and its gradient comes in that format.
    """
    started, shapes = begin("add", product, bias), (product.shape, bias.shape)
    place, format = started.place, product.stored_format
    arithmetic = place.forward_in(format) if place.is_widest else place.forward

    def to_product(u: Arithmetic, g: NDArray) -> NDArray:
        return passed_to(u, g, shapes[0])

    def to_bias(u: Arithmetic, g: NDArray) -> NDArray:
        return passed_to(u, g, shapes[1])

    total = arithmetic.add(product.numbers, bias.numbers)
    made = finish(started, total, arithmetic.format, to_product, to_bias)
    return made if made.node is None else made._replace(node=made.node._replace(formats=(format, format)))
