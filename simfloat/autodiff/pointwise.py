"""The pointwise operations of tensors: a method for each function of the catalog, and a row for each choice.

A row holds the derivatives, and is the method. In it, `u` is the arithmetic of the backward pass, whose every operation
is rounded as the policy says; `g` is the gradient of the result `y`, and `a`, `b`, `c` are the operands. What the
operations mean stands in the catalog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from simfloat.arithmetic.catalog import FUNCTIONS, Operation
from simfloat.arithmetic.extremes import clamp, clip_by_extremes, larger, smaller
from simfloat.autodiff.differentiable import Binary, Bounded, Differentiable, Ternary, Unary
from simfloat.autodiff.record import Operand, Operations
from simfloat.environment import in_usual_environment
from simfloat.formulas import activation_formulas, slopes
from simfloat.formulas.slopes import ONE, ZERO, where_above

if TYPE_CHECKING:
    from simfloat.arithmetic.typed_functions import Methods
else:
    X, Y = TypeVar("X"), TypeVar("Y")

    class Methods(Generic[X, Y]):
        """The functions of the catalog, which are added below."""


T = TypeVar("T")


@in_usual_environment
class Pointwise(Operations[T], Methods[Operand, T]):
    """The pointwise operations of a tensor."""

    negative = Unary(lambda u, g, y, a: u.round(-g), forward=lambda u, a: u.round(-a))
    abs = Unary(slopes.signed, forward=lambda u, a: u.round(np.abs(a)))
    relu = Unary(
        lambda u, g, y, a: u.round(where_above(y, g)),
        forward=lambda u, a: u.round(where_above(a, a)),
        reads="result",
    )
    leaky_relu = Binary(
        activation_formulas.leaky_relu_slope,
        lambda u, g, y, a, b: u.multiply(g, np.where(a > 0, ZERO[()], a[()])),
        forward=lambda u, a, b: u.multiply(a, np.where(a > 0, ONE[()], b[()])),
    )
    maximum = Binary(
        lambda u, g, y, a, b: slopes.share(u, g, a, b),
        lambda u, g, y, a, b: slopes.share(u, g, b, a),
        forward=lambda u, a, b: u.round(larger(a, b)),
    )
    minimum = Binary(
        lambda u, g, y, a, b: slopes.share(u, g, -a, -b),
        lambda u, g, y, a, b: slopes.share(u, g, -b, -a),
        forward=lambda u, a, b: u.round(smaller(a, b)),
    )
    clip = Bounded(
        lambda u, g, y, a, low, high: slopes.gradient_where(u, g, (a >= low[()]) & (a <= high[()])),
        lambda u, g, y, a, low, high: slopes.gradient_where(u, g, (a < low[()]) & (low[()] < high[()])),
        lambda u, g, y, a, low, high: slopes.gradient_where(u, g, (a > high[()]) | (high[()] < low[()])),
        forward=lambda u, a, low, high: u.round(clip_by_extremes(a, low, high)),
    )
    hardtanh = Bounded(
        lambda u, g, y, a, low, high: slopes.gradient_where(u, g, ~((a <= low[()]) | (a >= high[()]))),
        lambda u, g, y, a, low, high: slopes.gradient_where(u, g, a <= low[()]),
        lambda u, g, y, a, low, high: slopes.gradient_where(u, g, a >= high[()]),
        forward=lambda u, a, low, high: u.round(clamp(a, low, high)),
        operation="clip",
        meaning="x no less than min and no more than max; at both its derivative is 0, unlike that of `clip`.",
    )
    square = Unary(
        slopes.square,
        forward=lambda u, a: u.multiply(a, a),
        operation="multiply",
        meaning="a * a, as one product; the derivative is g * (2 * a).",
    )


def _row_of(function: Operation) -> Differentiable:
    """A function of the catalog as a row."""
    kind = (Unary, Binary, Ternary)[len(function.operands) - 1]
    derivatives = function.slopes or (function.name,)
    return kind(
        *(getattr(slopes, slope) if isinstance(slope, str) else slope for slope in derivatives),
        passes=function.passes,
        reads=function.reads,
    )


for _name, _function in FUNCTIONS.items():
    setattr(Pointwise, _name, _row_of(_function))
    getattr(Pointwise, _name).__set_name__(Pointwise, _name)

#: The rows by name.
DIFFERENTIABLE: dict[str, Differentiable] = {
    name: row for name, row in vars(Pointwise).items() if isinstance(row, Differentiable)
}
