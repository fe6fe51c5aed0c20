"""Activations and their derivatives, of one operation or several."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.formulas.rounded import Rounded, number
from simfloat.formulas.slopes import HALF, ONE

BEND, CUBE, CUBE_SLOPE = number(math.sqrt(2 / math.pi)), number(0.044715), number(3 * 0.044715)


def gelu_tanh(u: Rounded, a: NDArray) -> NDArray:
    """a * 1/2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * (a * a * a))))."""
    inner = _tanh_argument(u, a)
    return u.multiply(u.multiply(a, HALF), u.add(u.apply("tanh", inner), ONE))


def gelu_tanh_slope(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * (1/2 * (1 + t) + a * 1/2 * ((1 - t * t) * r)), t the tanh, r = sqrt(2 / pi) * (1 + 3 * 0.044715 * a * a)."""
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


def leaky_relu_slope(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, slope: NDArray) -> NDArray:
    """g where a is positive, else slope * g."""
    return u.multiply(g, np.where(a > 0, ONE[()], slope[()]))
