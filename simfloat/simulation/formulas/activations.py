"""Activations and their derivatives, of one or several operations.

The derivatives of activations with several operations are the formulas of PyTorch. A factor of 1 is not multiplied.
An operand that is chosen as the result is rounded as a step ``clip``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.simulation.formulas import Rounded, negative, number, where
from simfloat.simulation.formulas.slopes import HALF, ONE, THREE, ZERO, gradient_where

BEND, CUBE, CUBE_SLOPE = number(math.sqrt(2 / math.pi)), number(0.044715), number(3 * 0.044715)


def gelu_tanh(u: Rounded, a: NDArray) -> NDArray:
    """a * 1/2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * (a * a * a))))."""
    inner = _tanh_argument(u, a)
    return u.multiply(u.multiply(a, HALF), u.add(u.apply("tanh", inner), ONE))


def gelu_tanh_slope(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * (1/2 * (1 + t) + a * 1/2 * ((1 - t * t) * r)), with the tanh t and r = sqrt(2/pi) * (1 + 3 * 0.044715 * a *
    a).
    """
    t = u.apply("tanh", _tanh_argument(u, a))
    rise = u.multiply(BEND, u.add(ONE, u.multiply(CUBE_SLOPE, u.multiply(a, a))))
    steep = u.multiply(u.multiply(a, HALF), u.multiply(u.subtract(ONE, u.multiply(t, t)), rise))
    return u.multiply(g, u.add(u.multiply(HALF, u.add(ONE, t)), steep))


def _tanh_argument(u: Rounded, a: NDArray) -> NDArray:
    """sqrt(2 / pi) * (a + 0.044715 * (a * a * a))."""
    cube = u.multiply(u.multiply(a, a), a)
    return u.multiply(u.add(a, u.multiply(cube, CUBE)), BEND)


def silu(u: Rounded, a: NDArray) -> NDArray:
    """a * sigmoid(a)."""
    return u.multiply(a, u.apply("sigmoid", a))


def silu_slope(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * (s * (1 + a * (1 - s))) with s = sigmoid(a): the derivative of a * sigmoid(a)."""
    s = u.apply("sigmoid", a)
    return u.multiply(g, u.multiply(s, u.add(ONE, u.multiply(a, u.subtract(ONE, s)))))


def leaky_relu(u: Rounded, a: NDArray, slope: NDArray) -> NDArray:
    """a if it is positive, otherwise slope * a."""
    return u.multiply(a, np.where(a > 0, ONE[()], slope[()]))


def leaky_relu_slope(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, slope: NDArray) -> NDArray:
    """g if a is positive, otherwise slope * g."""
    return u.multiply(g, np.where(a > 0, ONE[()], slope[()]))


def leaky_relu_to_slope(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, slope: NDArray) -> NDArray:
    """g * a if a is not positive, otherwise g * 0."""
    return u.multiply(g, np.where(a > 0, ZERO[()], a[()]))


def clip_to_x(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """g from the lower bound to the upper one, otherwise 0."""
    return gradient_where(u, g, (a >= low[()]) & (a <= high[()]))


def clip_to_low(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """g below the lower bound, otherwise 0."""
    return gradient_where(u, g, (a < low[()]) & (low[()] < high[()]))


def clip_to_high(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """g above the upper bound, or if it is below the lower one; otherwise 0."""
    return gradient_where(u, g, (a > high[()]) | (high[()] < low[()]))


def hardtanh_to_x(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """g between the bounds, 0 at both of them and outside."""
    return gradient_where(u, g, ~((a <= low[()]) | (a >= high[()])))


def hardtanh_to_low(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """g at the lower bound and below, otherwise 0."""
    return gradient_where(u, g, a <= low[()])


def hardtanh_to_high(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """g at the upper bound and above, otherwise 0."""
    return gradient_where(u, g, a >= high[()])


SIX = number(6.0)

#: The constants of SELU: Klambauer et al., arXiv 1706.02515.
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def times(u: Rounded, x: NDArray, factor: float) -> NDArray:
    """x * factor; a factor of 1 is not rounded."""
    return x if factor == 1 else u.multiply(x, number(factor))


def scaled_result(u: Rounded, x: NDArray, factor: float = 1.0) -> NDArray:
    """x * factor as a result, rounded once."""
    return u.round(x, "clip", x) if factor == 1 else u.multiply(x, number(factor))


def _zeros(x: NDArray) -> NDArray:
    return ZERO.astype(x.dtype)


def softplus(u: Rounded, x: NDArray, beta: float = 1.0, threshold: float = 20.0) -> NDArray:
    """log1p(exp(z)) / beta with z = beta * x; x if z is above the threshold."""
    z = times(u, x, beta)
    is_high = z > threshold
    powers = u.apply("exp", where(u, ~is_high, z, _zeros(z)))
    return where(u, is_high, scaled_result(u, x), times(u, u.apply("log1p", powers), 1 / beta))


def softplus_slope(u: Rounded, g: NDArray, x: NDArray, beta: float = 1.0, threshold: float = 20.0) -> NDArray:
    """g * sigmoid(beta * x); g if beta * x is above the threshold."""
    z = times(u, x, beta)
    return where(u, z > threshold, scaled_result(u, g), u.multiply(g, u.apply("sigmoid", z)))


def elu(u: Rounded, x: NDArray, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> NDArray:
    """x * scale if x is positive, otherwise expm1(x * input_scale) * (alpha * scale)."""
    low = u.apply("expm1", _below(u, x, input_scale))
    return where(u, x > 0, scaled_result(u, x, scale), times(u, low, alpha * scale))


def elu_slope(
    u: Rounded, g: NDArray, x: NDArray, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> NDArray:
    """g * scale if x is positive, otherwise g * (alpha * scale * input_scale) * exp(x * input_scale)."""
    low = u.multiply(times(u, g, alpha * scale * input_scale), u.apply("exp", _below(u, x, input_scale)))
    return where(u, x > 0, scaled_result(u, g, scale), low)


def elu_slope_of_result(u: Rounded, g: NDArray, y: NDArray, alpha: float, scale: float, input_scale: float) -> NDArray:
    """g * scale if the result y is positive, otherwise g * input_scale * (y + alpha * scale)."""
    low = u.multiply(times(u, g, input_scale), u.add(y, number(alpha * scale)))
    return where(u, y > 0, scaled_result(u, g, scale), low)


def _below(u: Rounded, x: NDArray, input_scale: float) -> NDArray:
    """x * input_scale; 0 if x is positive."""
    return times(u, where(u, ~(x > 0), x, _zeros(x)), input_scale)


def hardsigmoid(u: Rounded, x: NDArray) -> NDArray:
    """min(max(x + 3, 0), 6) / 6."""
    return u.divide(_ramp(u, x), SIX)


def hardsigmoid_slope(u: Rounded, g: NDArray, x: NDArray) -> NDArray:
    """g / 6 between -3 and 3, otherwise 0."""
    share = u.divide(g, SIX)
    return where(u, (x > -3) & (x < 3), share, _zeros(share))


def hardswish(u: Rounded, x: NDArray) -> NDArray:
    """x * min(max(x + 3, 0), 6) / 6."""
    return u.divide(u.multiply(x, _ramp(u, x)), SIX)


def hardswish_slope(u: Rounded, g: NDArray, x: NDArray) -> NDArray:
    """g * (x / 3 + 1/2) between -3 and 3; 0 below and g above."""
    inner = u.multiply(g, u.add(u.divide(x, THREE), HALF))
    inner = where(u, x < 3, inner, scaled_result(u, g))
    return where(u, ~(x <= -3), inner, _zeros(inner))


def _ramp(u: Rounded, x: NDArray) -> NDArray:
    """min(max(x + 3, 0), 6)."""
    moved = u.add(x, THREE)
    return u.round(as_array(np.minimum(np.maximum(moved, 0), 6)), "clip", moved)


def mish(u: Rounded, x: NDArray) -> NDArray:
    """x * tanh(softplus(x))."""
    return u.multiply(x, u.apply("tanh", softplus(u, x)))


def mish_slope(u: Rounded, g: NDArray, x: NDArray) -> NDArray:
    """g * (t + (1 - t * t) * sigmoid(x) * x) with t = tanh(softplus(x))."""
    t = u.apply("tanh", softplus(u, x))
    steep = u.multiply(u.multiply(u.subtract(ONE, u.multiply(t, t)), u.apply("sigmoid", x)), x)
    return u.multiply(g, u.add(t, steep))


def log_sigmoid_slope(u: Rounded, g: NDArray, x: NDArray) -> NDArray:
    """g * sigmoid(-x): the derivative of `log_sigmoid`."""
    return u.multiply(g, u.apply("sigmoid", negative(u, x)))


def softshrink(u: Rounded, x: NDArray, lambd: float = 0.5) -> NDArray:
    """x - lambd above lambd, x + lambd below -lambd, and 0 between them."""
    above, below = u.subtract(x, number(lambd)), u.add(x, number(lambd))
    # NaN is not in [-lambd, lambd], so it becomes NaN + lambd.
    return where(u, x > lambd, above, where(u, ~(np.abs(x) <= lambd), below, _zeros(below)))


def hardshrink(u: Rounded, x: NDArray, lambd: float = 0.5) -> NDArray:
    """x; 0 between -lambd and lambd."""
    result = scaled_result(u, x)
    return where(u, ~(np.abs(x) <= lambd), result, _zeros(result))


def shrink_slope(u: Rounded, g: NDArray, x: NDArray, lambd: float = 0.5) -> NDArray:
    """g; 0 if x is between -lambd and lambd."""
    result = scaled_result(u, g)
    return where(u, ~(np.abs(x) <= lambd), result, _zeros(result))


def prelu(u: Rounded, x: NDArray, slope: NDArray) -> NDArray:
    """x if it is positive, otherwise slope * x."""
    return where(u, x > 0, scaled_result(u, x), u.multiply(slope, x))


def prelu_to_x(u: Rounded, g: NDArray, x: NDArray, slope: NDArray) -> NDArray:
    """g if x is positive, otherwise slope * g."""
    return where(u, x > 0, scaled_result(u, g), u.multiply(slope, g))


def prelu_to_slope(u: Rounded, g: NDArray, x: NDArray, slope: NDArray) -> NDArray:
    """x * g if x is not positive, otherwise 0."""
    product = u.multiply(x, g)
    return where(u, ~(x > 0), product, _zeros(product))


def glu(u: Rounded, x: NDArray, axis: int = -1) -> NDArray:
    """a * sigmoid(b), where x is a and b next to each other."""
    a, b = np.split(x, 2, axis)
    return u.multiply(a, u.apply("sigmoid", b))


def glu_slope(u: Rounded, g: NDArray, x: NDArray, axis: int = -1) -> NDArray:
    """g * s, and next to it g * s * (1 - s) * a, with s = sigmoid(b)."""
    a, b = np.split(x, 2, axis)
    s = u.apply("sigmoid", b)
    passed = u.multiply(g, s)
    steep = u.multiply(u.multiply(passed, u.subtract(ONE, s)), a)
    return u.with_format_of(np.concatenate([passed, steep], axis), passed, steep)
