"""The pointwise operations as one table: each row holds the derivatives, and is the method of the tensor.

In a row, `u` is the arithmetic of the backward pass, whose every operation is rounded as the policy says; `g` is the
gradient of the result `y`, and `a`, `b`, `c` are the operands. What the operations mean stands in the catalog.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.arrays import image_of
from simfloat.arithmetic.machines import as_array
from simfloat.autodiff.differentiable import Binary, Bounded, Differentiable, Ternary, Unary
from simfloat.autodiff.record import Operations
from simfloat.simulation.arithmetic import Arithmetic

T = TypeVar("T")

ZERO, ONE = np.zeros((), np.float32), np.ones((), np.float32)
LN2 = np.array(math.log(2))
ERF_SLOPE = np.array(2 / math.sqrt(math.pi))
HALF, MINUS_HALF = np.array(0.5), np.array(-0.5)
ROOT_HALF, NORMAL_DENSITY = np.array(math.sqrt(0.5)), np.array(1 / math.sqrt(2 * math.pi))


def doubled(x: NDArray, other: NDArray, factor: float) -> tuple[NDArray, NDArray]:
    """2x, and `other`, for a product of the two (factor 2) or a quotient by 2x (factor 1/2) that is rounded once.

    Twice a float32 number is a float64 number. Where twice a float64 number is none, `other` takes the factor instead.
    Should it leave float64 too, product and quotient lie so far beyond every format, or below it, that the factor is
    idle.
    """
    with np.errstate(over="ignore"):
        twice = x + x
    if not (np.isinf(twice) & np.isfinite(x)).any():
        return twice, other
    x, other = np.broadcast_arrays(x.astype(np.float64), other.astype(np.float64))
    with np.errstate(over="ignore", under="ignore"):
        twice, moved = x + x, other * factor
    beyond = np.isinf(twice) & np.isfinite(x)
    idle = np.isinf(moved) if factor > 1 else moved / factor != other
    return np.where(beyond, x, twice), np.where(beyond & ~(idle & np.isfinite(other)), moved, other)


def halved_quotient(u: Arithmetic, a: NDArray, b: NDArray) -> NDArray:
    """a / 2b, rounded once."""
    twice, numerator = doubled(b, a, 0.5)
    return u.divide(numerator, twice)


def signed(u: Arithmetic, g: NDArray, y: NDArray, a: NDArray) -> NDArray:
    """g times the sign of a, 0 at 0."""
    with np.errstate(invalid="ignore"):  # inf * 0
        return u.round(g * np.sign(a))


def bell(u: Arithmetic, g: NDArray, y: NDArray, a: NDArray) -> NDArray:
    """g * (2 / sqrt(pi) * exp(-(a * a)))."""
    return u.multiply(g, u.multiply(ERF_SLOPE, u.apply("exp", -u.multiply(a, a))))


def normal_slope(u: Arithmetic, g: NDArray, y: NDArray, a: NDArray) -> NDArray:
    """g * (1/2 * (1 + erf(a * sqrt 1/2)) + a * (1 / sqrt(2 pi) * exp(a * a * -1/2))): the derivative of a * Phi(a)."""
    probability = u.multiply(HALF, u.add(ONE, u.apply("erf", u.multiply(a, ROOT_HALF))))
    density = u.multiply(NORMAL_DENSITY, u.apply("exp", u.multiply(u.multiply(a, a), MINUS_HALF)))
    return u.multiply(g, u.add(probability, u.multiply(a, density)))


def power_to_base(u: Arithmetic, g: NDArray, y: NDArray, a: NDArray, b: NDArray) -> NDArray:
    """g * (b * a^(b - 1)), and 0 where b is 0."""
    slope = u.apply("power", a, u.subtract(b, ONE))
    return u.multiply(g, u.multiply(b, np.where(b == 0, ONE[()], slope)))


def power_to_exponent(u: Arithmetic, g: NDArray, y: NDArray, a: NDArray, b: NDArray) -> NDArray:
    """g * (y * log a), and 0 where a is 0 and b is not negative."""
    logarithm = u.apply("log", np.where((a == 0) & (b >= 0), a.dtype.type(1), a))
    return u.multiply(g, u.multiply(y, logarithm))


def where_above(a: NDArray, x: NDArray) -> NDArray:
    """x where a is positive or NaN, else 0."""
    # The image times 0 or 1: np.where takes a branch for every element, which no processor can guess.
    return as_array(image_of(x) * ~(a <= 0)).view(x.dtype)


def larger(a: NDArray, b: NDArray) -> NDArray:
    """The larger of two numbers: NaN if one is, and +0 of two zeros of unlike signs."""
    return -smaller(-a, -b)


def smaller(a: NDArray, b: NDArray) -> NDArray:
    """The smaller of two numbers: NaN if one is, and -0 of two zeros of unlike signs."""
    a, b = a[()], b[()]  # a single number is a scalar to arrays on any machine
    return np.where(np.isnan(a) | (a < b) | ((a == b) & np.signbit(a)), a, b)


def share(u: Arithmetic, g: NDArray, own: NDArray, other: NDArray) -> NDArray:
    """The part of g that goes to `own` where the larger was taken: all of it, 0, or half of it where both are equal."""
    own, other = own[()], other[()]
    number = g.dtype.type
    return u.multiply(np.where(own < other, number(0), g), np.where(own == other, number(0.5), number(1)))


def between(a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """a, but `low` where it is below, and `high` where that is above `high`."""
    return smaller(larger(a, low), high)


def chosen(u: Arithmetic, g: NDArray, where: NDArray) -> NDArray:
    """g where it is chosen, else 0."""
    return u.round(np.where(where, g, g.dtype.type(0)))


class Pointwise(Operations[T]):
    """The pointwise operations of a tensor."""

    add = Binary(lambda u, g, y, a, b: g, lambda u, g, y, a, b: g, passes=True)
    subtract = Binary(lambda u, g, y, a, b: g, lambda u, g, y, a, b: -g, passes=True)
    multiply = Binary(lambda u, g, y, a, b: u.multiply(g, b), lambda u, g, y, a, b: u.multiply(g, a), reads="other")
    divide = Binary(
        lambda u, g, y, a, b: u.divide(g, b), lambda u, g, y, a, b: u.divide(u.multiply(-g, y), b), reads="both"
    )
    power = Binary(power_to_base, power_to_exponent, reads="both")
    fma = Ternary(
        lambda u, g, y, a, b, c: u.multiply(g, b),
        lambda u, g, y, a, b, c: u.multiply(g, a),
        lambda u, g, y, a, b, c: u.round(g) if g.shape == c.shape else g,
    )
    negative = Unary(lambda u, g, y, a: u.round(-g), forward=lambda u, a: u.round(-a))
    abs = Unary(signed, forward=lambda u, a: u.round(np.abs(a)))
    relu = Unary(
        lambda u, g, y, a: u.round(where_above(a, g)),
        forward=lambda u, a: u.round(where_above(a, a)),
    )
    leaky_relu = Binary(
        lambda u, g, y, a, b: u.multiply(g, np.where(a > 0, ONE[()], b[()])),
        lambda u, g, y, a, b: u.multiply(g, np.where(a > 0, ZERO[()], a[()])),
        forward=lambda u, a, b: u.multiply(a, np.where(a > 0, ONE[()], b[()])),
    )
    maximum = Binary(
        lambda u, g, y, a, b: share(u, g, a, b),
        lambda u, g, y, a, b: share(u, g, b, a),
        forward=lambda u, a, b: u.round(larger(a, b)),
    )
    minimum = Binary(
        lambda u, g, y, a, b: share(u, g, -a, -b),
        lambda u, g, y, a, b: share(u, g, -b, -a),
        forward=lambda u, a, b: u.round(smaller(a, b)),
    )
    clip = Bounded(
        lambda u, g, y, a, low, high: chosen(u, g, (a >= low) & (a <= high)),
        lambda u, g, y, a, low, high: chosen(u, g, (a < low) & (low < high)),
        lambda u, g, y, a, low, high: chosen(u, g, (a > high) | (high < low)),
        forward=lambda u, a, low, high: u.round(between(a, low, high)),
    )
    square = Unary(
        lambda u, g, y, a: u.multiply(*doubled(a, g, 2.0)),
        forward=lambda u, a: u.multiply(a, a),
        operation="multiply",
        meaning="a * a, as one product; the derivative g * 2a is one product too.",
    )
    sqrt = Unary(lambda u, g, y, a: halved_quotient(u, g, y), reads="result")
    rsqrt = Unary(lambda u, g, y, a: u.multiply(-g, halved_quotient(u, y, a)), reads="both")
    reciprocal = Unary(lambda u, g, y, a: u.multiply(-g, u.multiply(y, y)), reads="result")
    exp = Unary(lambda u, g, y, a: u.multiply(g, y), reads="result")
    log = Unary(lambda u, g, y, a: u.divide(g, a))
    log2 = Unary(lambda u, g, y, a: u.divide(g, u.multiply(a, LN2)))
    sin = Unary(lambda u, g, y, a: u.multiply(g, u.apply("cos", a)))
    cos = Unary(lambda u, g, y, a: u.multiply(-g, u.apply("sin", a)))
    tanh = Unary(lambda u, g, y, a: u.multiply(g, u.subtract(ONE, u.multiply(y, y))), reads="result")
    sigmoid = Unary(lambda u, g, y, a: u.multiply(g, u.multiply(y, u.subtract(ONE, y))), reads="result")
    erf = Unary(bell)
    gelu = Unary(normal_slope)


#: The rows by name.
DIFFERENTIABLE: dict[str, Differentiable] = {
    name: row for name, row in vars(Pointwise).items() if isinstance(row, Differentiable)
}
