"""Pointwise operations on tensors, each with its derivatives beside it.

An operation computes its result with the forward arithmetic of its place and hands over, for each operand, the
function that takes the gradient of the result to that of the operand. Those functions compute with the unit they are
given, so that every operation of the backward pass is rounded as the policy says.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.place import Unit
from simfloat.autodiff.record import Operand, begin, finish, passed_to, summed_to
from simfloat.autodiff.tensor import Tensor, as_tensor

ONE = np.ones((), np.float32)
LN2 = np.array(math.log(2))
ERF_SLOPE = np.array(2 / math.sqrt(math.pi))


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


def add(a: Operand, b: Operand) -> Tensor:
    """a + b."""
    a, b = as_tensor(a), as_tensor(b)
    x, y = a.shape, b.shape
    place = begin("add", a, b)
    return finish(
        place,
        place.forward.apply("add", a.data, b.data),
        (a, b),
        lambda unit, g: passed_to(unit, g, x),
        lambda unit, g: passed_to(unit, g, y),
    )


def subtract(a: Operand, b: Operand) -> Tensor:
    """a - b."""
    a, b = as_tensor(a), as_tensor(b)
    x, y = a.shape, b.shape
    place = begin("subtract", a, b)
    return finish(
        place,
        place.forward.apply("subtract", a.data, b.data),
        (a, b),
        lambda unit, g: passed_to(unit, g, x),
        lambda unit, g: passed_to(unit, -g, y),
    )


def multiply(a: Operand, b: Operand) -> Tensor:
    """a * b."""
    a, b = as_tensor(a), as_tensor(b)
    place = begin("multiply", a, b)
    x, y = a.data, b.data
    return finish(
        place,
        place.forward.apply("multiply", x, y),
        (a, b),
        lambda unit, g: summed_to(unit, unit.apply("multiply", g, y), x.shape),
        lambda unit, g: summed_to(unit, unit.apply("multiply", g, x), y.shape),
    )


def divide(a: Operand, b: Operand) -> Tensor:
    """a / b; the derivative by b is -(g * (a / b)) / b."""
    a, b = as_tensor(a), as_tensor(b)
    place = begin("divide", a, b)
    x, y = a.data, b.data
    quotient = place.forward.apply("divide", x, y)
    return finish(
        place,
        quotient,
        (a, b),
        lambda unit, g: summed_to(unit, unit.apply("divide", g, y), x.shape),
        lambda unit, g: summed_to(unit, unit.apply("divide", unit.apply("multiply", -g, quotient), y), y.shape),
    )


def negative(a: Tensor) -> Tensor:
    """-a."""
    place = begin("negative", a)
    return finish(place, place.forward.round(-a.data), (a,), lambda unit, g: unit.round(-g))


def absolute(a: Tensor) -> Tensor:
    """|a|, with derivative 0 at 0."""
    place = begin("abs", a)
    sign = np.sign(a.data)

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        with np.errstate(invalid="ignore"):  # inf * 0
            return unit.round(g * sign)

    return finish(place, place.forward.round(np.abs(a.data)), (a,), derivative)


def square(a: Tensor) -> Tensor:
    """a * a; the derivative g * 2a is one product."""
    place = begin("multiply", a)
    x = a.data
    return finish(
        place,
        place.forward.apply("multiply", x, x),
        (a,),
        lambda unit, g: unit.apply("multiply", *doubled(x, g, 2.0)),
    )


def sqrt(a: Tensor) -> Tensor:
    """The square root; the derivative g / 2y is one quotient."""
    place = begin("sqrt", a)
    y = place.forward.apply("sqrt", a.data)

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        twice, numerator = doubled(y, g, 0.5)
        return unit.apply("divide", numerator, twice)

    return finish(place, y, (a,), derivative)


def exp(a: Tensor) -> Tensor:
    """e to the power a; the derivative is g * y."""
    place = begin("exp", a)
    y = place.forward.apply("exp", a.data)
    return finish(place, y, (a,), lambda unit, g: unit.apply("multiply", g, y))


def log(a: Tensor) -> Tensor:
    """The natural logarithm; the derivative is g / a."""
    place = begin("log", a)
    x = a.data
    return finish(place, place.forward.apply("log", x), (a,), lambda unit, g: unit.apply("divide", g, x))


def log2(a: Tensor) -> Tensor:
    """The logarithm to base 2; the derivative is g / (a * ln 2)."""
    place = begin("log2", a)
    x = a.data

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        return unit.apply("divide", g, unit.apply("multiply", x, LN2))

    return finish(place, place.forward.apply("log2", x), (a,), derivative)


def sin(a: Tensor) -> Tensor:
    """The sine; the derivative is g * cos(a)."""
    place = begin("sin", a)
    x = a.data

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        return unit.apply("multiply", g, unit.apply("cos", x))

    return finish(place, place.forward.apply("sin", x), (a,), derivative)


def cos(a: Tensor) -> Tensor:
    """The cosine; the derivative is -g * sin(a)."""
    place = begin("cos", a)
    x = a.data

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        return unit.apply("multiply", -g, unit.apply("sin", x))

    return finish(place, place.forward.apply("cos", x), (a,), derivative)


def erf(a: Tensor) -> Tensor:
    """The error function; the derivative is g * (2 / sqrt(pi) * exp(-(a * a)))."""
    place = begin("erf", a)
    x = a.data

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        bell = unit.apply("exp", -unit.apply("multiply", x, x))
        return unit.apply("multiply", g, unit.apply("multiply", ERF_SLOPE, bell))

    return finish(place, place.forward.apply("erf", x), (a,), derivative)


def reciprocal(a: Tensor) -> Tensor:
    """1 / a; the derivative is -g * (y * y)."""
    place = begin("reciprocal", a)
    y = place.forward.apply("reciprocal", a.data)

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        return unit.apply("multiply", -g, unit.apply("multiply", y, y))

    return finish(place, y, (a,), derivative)


def rsqrt(a: Tensor) -> Tensor:
    """1 / sqrt(a); the derivative is -g * (y / 2a)."""
    place = begin("rsqrt", a)
    x = a.data
    y = place.forward.apply("rsqrt", x)

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        twice, numerator = doubled(x, y, 0.5)
        return unit.apply("multiply", -g, unit.apply("divide", numerator, twice))

    return finish(place, y, (a,), derivative)


def power(a: Operand, b: Operand) -> Tensor:
    """a to the power b; the derivatives are g * (b * a^(b - 1)) and g * (y * log a).

    The first is 0 where b is 0, the second where a is 0 and b is not negative.
    """
    a, b = as_tensor(a), as_tensor(b)
    place = begin("power", a, b)
    x, exponent = a.data, b.data
    y = place.forward.apply("power", x, exponent)

    def to_base(unit: Unit, g: NDArray) -> NDArray:
        slope = unit.apply("power", x, unit.apply("subtract", exponent, ONE))
        slope = unit.apply("multiply", exponent, np.where(exponent == 0, ONE, slope))
        return summed_to(unit, unit.apply("multiply", g, slope), x.shape)

    def to_exponent(unit: Unit, g: NDArray) -> NDArray:
        logarithm = unit.apply("log", np.where((x == 0) & (exponent >= 0), x.dtype.type(1), x))
        return summed_to(unit, unit.apply("multiply", g, unit.apply("multiply", y, logarithm)), exponent.shape)

    return finish(place, y, (a, b), to_base, to_exponent)


def tanh(a: Tensor) -> Tensor:
    """The hyperbolic tangent; the derivative is g * (1 - y * y)."""
    place = begin("tanh", a)
    y = place.forward.apply("tanh", a.data)

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        return unit.apply("multiply", g, unit.apply("subtract", ONE, unit.apply("multiply", y, y)))

    return finish(place, y, (a,), derivative)


def sigmoid(a: Tensor) -> Tensor:
    """1 / (1 + exp(-a)); the derivative is g * (y * (1 - y))."""
    place = begin("sigmoid", a)
    y = place.forward.apply("sigmoid", a.data)

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        return unit.apply("multiply", g, unit.apply("multiply", y, unit.apply("subtract", ONE, y)))

    return finish(place, y, (a,), derivative)


def relu(a: Tensor) -> Tensor:
    """max(a, 0), with derivative 0 at 0; a NaN, and the gradient there, go through as in torch."""
    place = begin("relu", a)
    x = a.data
    return finish(
        place,
        place.forward.round(np.where(x <= 0, x.dtype.type(0), x)),
        (a,),
        lambda unit, g: unit.round(np.where(x <= 0, g.dtype.type(0), g)),
    )
