"""The pointwise operations as one table: each row holds the derivatives, and is the method of the tensor.

In a row, `u` is the arithmetic of the backward pass, whose every operation is rounded as the policy says; `g` is the
gradient of the result `y`, and `a`, `b`, `c` are the operands. What the operations mean stands in the catalog.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from simfloat.arithmetic.extremes import between, held, larger, smaller
from simfloat.autodiff.differentiable import Binary, Bounded, Differentiable, Ternary, Unary
from simfloat.autodiff.record import Operations
from simfloat.environment import in_usual_environment
from simfloat.formulas import activation_formulas, slopes
from simfloat.formulas.slopes import LN2, LN10, ONE, ZERO, where_above

T = TypeVar("T")


@in_usual_environment
class Pointwise(Operations[T]):
    """The pointwise operations of a tensor."""

    add = Binary(lambda u, g, y, a, b: g, lambda u, g, y, a, b: g, passes=True)
    subtract = Binary(lambda u, g, y, a, b: g, lambda u, g, y, a, b: -g, passes=True)
    multiply = Binary(lambda u, g, y, a, b: u.multiply(g, b), lambda u, g, y, a, b: u.multiply(g, a), reads="other")
    divide = Binary(lambda u, g, y, a, b: u.divide(g, b), slopes.divided_to_divisor)
    power = Binary(slopes.power_to_base, slopes.power_to_exponent, reads="both")
    atan2 = Binary(slopes.atan2_to_ordinate, slopes.atan2_to_abscissa, reads="both")
    fma = Ternary(
        lambda u, g, y, a, b, c: u.multiply(g, b),
        lambda u, g, y, a, b, c: u.multiply(g, a),
        lambda u, g, y, a, b, c: u.round(g) if g.shape == c.shape else g,
    )
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
        lambda u, g, y, a, low, high: slopes.chosen(u, g, (a >= low[()]) & (a <= high[()])),
        lambda u, g, y, a, low, high: slopes.chosen(u, g, (a < low[()]) & (low[()] < high[()])),
        lambda u, g, y, a, low, high: slopes.chosen(u, g, (a > high[()]) | (high[()] < low[()])),
        forward=lambda u, a, low, high: u.round(between(a, low, high)),
    )
    hardtanh = Bounded(
        lambda u, g, y, a, low, high: slopes.chosen(u, g, ~((a <= low[()]) | (a >= high[()]))),
        lambda u, g, y, a, low, high: slopes.chosen(u, g, a <= low[()]),
        lambda u, g, y, a, low, high: slopes.chosen(u, g, a >= high[()]),
        forward=lambda u, a, low, high: u.round(held(a, low, high)),
        operation="clip",
        meaning="x no less than min and no more than max; at both its derivative is 0, unlike that of `clip`.",
    )
    square = Unary(
        slopes.square,
        forward=lambda u, a: u.multiply(a, a),
        operation="multiply",
        meaning="a * a, as one product; the derivative is g * (2 * a).",
    )
    sqrt = Unary(slopes.sqrt, reads="result")
    rsqrt = Unary(slopes.rsqrt, reads="result")
    reciprocal = Unary(lambda u, g, y, a: u.multiply(-g, u.multiply(y, y)), reads="result")
    exp = Unary(lambda u, g, y, a: u.multiply(g, y), reads="result")
    log = Unary(lambda u, g, y, a: u.divide(g, a))
    log2 = Unary(lambda u, g, y, a: u.divide(g, u.multiply(a, LN2)))
    log10 = Unary(lambda u, g, y, a: u.divide(g, u.multiply(a, LN10)))
    expm1 = Unary(lambda u, g, y, a: u.multiply(g, u.add(y, ONE)), reads="result")
    log1p = Unary(lambda u, g, y, a: u.divide(g, u.add(a, ONE)))
    sin = Unary(lambda u, g, y, a: u.multiply(g, u.apply("cos", a)))
    cos = Unary(lambda u, g, y, a: u.multiply(-g, u.apply("sin", a)))
    tan = Unary(slopes.tan, reads="result")
    asin = Unary(slopes.asin)
    acos = Unary(slopes.acos)
    atan = Unary(slopes.atan)
    sinh = Unary(lambda u, g, y, a: u.multiply(g, u.apply("cosh", a)))
    cosh = Unary(lambda u, g, y, a: u.multiply(g, u.apply("sinh", a)))
    asinh = Unary(slopes.asinh)
    acosh = Unary(slopes.acosh)
    atanh = Unary(slopes.atanh)
    tanh = Unary(slopes.tanh, reads="result")
    sigmoid = Unary(slopes.sigmoid, reads="result")
    erf = Unary(slopes.bell)
    erfc = Unary(slopes.falling_bell)
    erfcx = Unary(slopes.erfcx, reads="both")
    erfinv = Unary(slopes.erfinv)
    ndtri = Unary(slopes.ndtri, reads="result")
    log_ndtr = Unary(slopes.log_ndtr, reads="both")
    lgamma = Unary(lambda u, g, y, a: u.multiply(g, u.apply("digamma", a)))
    digamma = Unary(lambda u, g, y, a: u.multiply(g, u.apply("zeta", slopes.TWO, a)))
    zeta = Binary(slopes.zeta_to_power, slopes.zeta_to_start)
    i0 = Unary(lambda u, g, y, a: u.multiply(g, u.apply("i1", a)))
    i0e = Unary(slopes.i0e, reads="both")
    i1 = Unary(slopes.i1, reads="both")
    i1e = Unary(slopes.i1e, reads="both")
    gelu = Unary(activation_formulas.gelu_slope)


#: The rows by name.
DIFFERENTIABLE: dict[str, Differentiable] = {
    name: row for name, row in vars(Pointwise).items() if isinstance(row, Differentiable)
}
