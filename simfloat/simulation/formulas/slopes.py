"""The derivatives of pointwise operations, and softmax and related functions along axes.

`u` is the arithmetic of the backward pass; `g` is the gradient of the result `y`, and `a`, `b` are the operands. If a
slope does not read the result, or an operand, None may be passed instead.

Softmax, log_softmax and logsumexp use exponentials of differences from the largest element. The largest element is
one of the operands, so it needs no rounding.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.catalog import ONE, TWO
from simfloat.arithmetic.functions import log
from simfloat.arithmetic.machines import as_array, device_of
from simfloat.arithmetic.operands import image_of
from simfloat.arithmetic.operations import results_rounded_to_odd
from simfloat.formats import FP64
from simfloat.simulation.formulas import Rounded, keepdims_shape, negative, number, total, where

ZERO = np.zeros((), np.float32)
ERF_SLOPE, ERFINV_SLOPE = np.array(2 / math.sqrt(math.pi)), np.array(math.sqrt(math.pi) / 2)
ROOT_OF_TURN = np.array(math.sqrt(2 * math.pi))
FLOAT32_EPS = 2.0**-23
ROOT_HALF, NORMAL_DENSITY = number(math.sqrt(0.5)), number(1 / math.sqrt(2 * math.pi))
HALF, MINUS_HALF, THREE = np.array(0.5), np.array(-0.5), np.array(3.0)


def divided_to_divisor(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """-g * ((a / b) / b)."""
    return u.multiply(-g, u.divide(u.divide(a, b), b))


def square(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * (2 * a), with a rounded first, as in PyTorch for a to the power 2."""
    return u.multiply(g, u.multiply(TWO, u.round(a, "multiply")))


def sqrt(u: Rounded, g: NDArray, y: NDArray, a: NDArray | None) -> NDArray:
    """g / (2 * y)."""
    return u.divide(g, u.multiply(TWO, y))


def rsqrt(u: Rounded, g: NDArray, y: NDArray, a: NDArray | None) -> NDArray:
    """(-1/2 * g) * y^3."""
    return u.multiply(u.multiply(MINUS_HALF, g), u.apply("power", y, THREE))


def signed(u: Rounded, g: NDArray, y: NDArray, a: NDArray) -> NDArray:
    """g times the sign of a, 0 at 0."""
    with np.errstate(invalid="ignore"):  # inf * 0
        return u.round(g * np.sign(a), "abs")


def no_slope(u: Rounded, g: NDArray, y: NDArray | None, *operands: NDArray | None) -> NDArray:
    """0: the result is constant between its steps, or does not depend on the magnitude of the operand."""
    return u.round(np.zeros_like(g), "clip")


def copysign_to_magnitude(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """g if a and b have one sign, otherwise -g; 0 if a is 0, as in PyTorch."""
    number = g.dtype.type
    signs = np.sign(a[()]) * np.where(np.signbit(b[()]), number(-1), number(1))[()]
    with np.errstate(invalid="ignore"):  # inf * 0
        return u.round(as_array(g * signs), "abs")


def fmod_to_dividend(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """g, for `fmod` and `remainder`; if g is summed to the shape of a, the sum rounds it."""
    return u.round(g, "clip") if g.shape == a.shape else g


def fmod_to_divisor(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """-g * trunc(a / b), with the integer rounded first."""
    return u.multiply(-g, u.round(np.trunc(_quotients(a, b)), "divide"))


def remainder_to_divisor(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """-g * rint(a / b), with the integer rounded first."""
    return u.multiply(-g, u.round(np.rint(_quotients(a, b)), "divide"))


def _quotients(a: NDArray, b: NDArray) -> NDArray[np.float64]:
    """a / b, rounded to odd in float64: below 2^51, it has the integer part and the ties of the exact quotient."""
    machine = device_of(a, b)
    return results_rounded_to_odd("divide", [machine.to_device(x).astype(np.float64) for x in (a, b)])


def erf(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * (2 / sqrt(pi) * exp(-(a * a)))."""
    return u.multiply(g, u.multiply(ERF_SLOPE, u.apply("exp", -u.multiply(a, a))))


def erfc(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * (-2 / sqrt(pi) * exp(-(a * a)))."""
    return u.multiply(g, u.multiply(-ERF_SLOPE, u.apply("exp", -u.multiply(a, a))))


def asin(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * rsqrt(-a * a + 1), with -a rounded first."""
    return u.multiply(g, u.apply("rsqrt", u.add(u.multiply(negative(u, a), a), ONE)))


def acos(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * -rsqrt(-a * a + 1), with -a rounded first."""
    return u.multiply(-g, u.apply("rsqrt", u.add(u.multiply(negative(u, a), a), ONE)))


def atan(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g / (a * a + 1)."""
    return u.divide(g, u.add(u.multiply(a, a), ONE))


def asinh(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * rsqrt(a * a + 1)."""
    return u.multiply(g, u.apply("rsqrt", u.add(u.multiply(a, a), ONE)))


def acosh(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * rsqrt(a * a - 1)."""
    return u.multiply(g, u.apply("rsqrt", u.subtract(u.multiply(a, a), ONE)))


def atanh(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g / (1 - a * a)."""
    return u.divide(g, u.subtract(ONE, u.multiply(a, a)))


def atan2_to_ordinate(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """g * b * (1 / (a * a + b * b))."""
    return _by_square_of_distance(u, u.multiply(g, b), a, b)


def atan2_to_abscissa(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """g * -a * (1 / (a * a + b * b)), with -a rounded first."""
    return _by_square_of_distance(u, u.multiply(g, negative(u, a)), a, b)


def _by_square_of_distance(u: Rounded, x: NDArray, a: NDArray, b: NDArray) -> NDArray:
    """x * (1 / (a * a + b * b)), and x * 0 if this sum is 0, as in PyTorch."""
    square = u.add(u.multiply(a, a), u.multiply(b, b))
    inverse = u.apply("reciprocal", np.where(square == 0, ONE[()], square))
    return u.multiply(x, np.where(square == 0, ZERO[()], inverse))


def erfinv(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * (exp(y * y) * (sqrt(pi) / 2)) with y = erfinv(a), computed again."""
    y = u.apply("erfinv", a)
    return u.multiply(g, u.multiply(u.apply("exp", u.multiply(y, y)), ERFINV_SLOPE))


def erfcx(u: Rounded, g: NDArray, y: NDArray, a: NDArray) -> NDArray:
    """g * (2 * a * y - 2 / sqrt(pi))."""
    return u.multiply(g, u.subtract(u.multiply(u.multiply(TWO, a), y), ERF_SLOPE))


def ndtri(u: Rounded, g: NDArray, y: NDArray, a: NDArray | None = None) -> NDArray:
    """g * sqrt(2 pi) * exp(y * y / 2)."""
    bell = u.apply("exp", u.divide(u.multiply(y, y), TWO))
    return u.multiply(u.multiply(g, ROOT_OF_TURN), bell)


def log_ndtr(u: Rounded, g: NDArray, y: NDArray, a: NDArray) -> NDArray:
    """g / sqrt(2 pi) * exp(-(y + a * a / 2))."""
    exponent = u.add(y, u.divide(u.multiply(a, a), TWO))
    return u.multiply(u.divide(g, ROOT_OF_TURN), u.apply("exp", negative(u, exponent)))


def zeta_to_power(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """Raise ValueError: PyTorch does not have this derivative either."""
    raise ValueError("zeta(a, b) has no derivative with respect to a: pass a as an array or a number.")


def zeta_to_start(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """(g * -a) * zeta(a + 1, b), with -a rounded first."""
    return u.multiply(u.multiply(g, negative(u, a)), u.apply("zeta", u.add(a, ONE), b))


def i0e(u: Rounded, g: NDArray, y: NDArray, a: NDArray) -> NDArray:
    """g * (i1e(a) - sign(a) * y)."""
    return u.multiply(g, u.subtract(u.apply("i1e", a), u.multiply(np.sign(a), y)))


def i1(u: Rounded, g: NDArray, y: NDArray, a: NDArray) -> NDArray:
    """g * (i0(a) - y * (1 / a)), and g / 2 if |a| is at most 2^-23."""
    safe, is_tiny = _replace_tiny(a)
    slope = u.subtract(u.apply("i0", safe), u.multiply(y, u.apply("reciprocal", safe)))
    return u.multiply(g, np.where(is_tiny, HALF[()], slope))


def i1e(u: Rounded, g: NDArray, y: NDArray, a: NDArray) -> NDArray:
    """g * (i0e(a) - y * (sign(a) + 1 / a)), and g / 2 if |a| is at most 2^-23."""
    safe, is_tiny = _replace_tiny(a)
    share = u.add(np.sign(safe), u.apply("reciprocal", safe))
    slope = u.subtract(u.apply("i0e", safe), u.multiply(y, share))
    return u.multiply(g, np.where(is_tiny, HALF[()], slope))


def _replace_tiny(a: NDArray) -> tuple[NDArray, NDArray]:
    """Replace values of at most 2^-23 in magnitude (eps of float32, as in PyTorch) by it; also return their mask."""
    is_tiny = ~(np.abs(a) > FLOAT32_EPS)
    return np.where(is_tiny, a.dtype.type(FLOAT32_EPS), a[()]), is_tiny


def tan(u: Rounded, g: NDArray, y: NDArray, a: NDArray | None = None) -> NDArray:
    """g * (1 + y * y)."""
    return u.multiply(g, u.add(ONE, u.multiply(y, y)))


def tanh(u: Rounded, g: NDArray, y: NDArray, a: NDArray | None = None) -> NDArray:
    """g * (1 - y * y)."""
    return u.multiply(g, tanh_derivative(u, y))


def tanh_derivative(u: Rounded, y: NDArray) -> NDArray:
    """1 - y * y."""
    return u.subtract(ONE, u.multiply(y, y))


def sigmoid(u: Rounded, g: NDArray, y: NDArray, a: NDArray | None = None) -> NDArray:
    """g * (y * (1 - y))."""
    return u.multiply(g, sigmoid_derivative(u, y))


def sigmoid_derivative(u: Rounded, y: NDArray) -> NDArray:
    """y * (1 - y)."""
    return u.multiply(y, u.subtract(ONE, y))


def gelu(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray) -> NDArray:
    """g * (1/2 * (1 + erf(a * sqrt 1/2)) + a * (1 / sqrt(2 pi) * exp(a * a * -1/2))): the derivative of a * Phi(a)."""
    probability = u.multiply(HALF, u.add(ONE, u.apply("erf", u.multiply(a, ROOT_HALF))))
    density = u.multiply(NORMAL_DENSITY, u.apply("exp", u.multiply(u.multiply(a, a), MINUS_HALF)))
    return u.multiply(g, u.add(probability, u.multiply(a, density)))


def power_to_base(u: Rounded, g: NDArray, y: NDArray | None, a: NDArray, b: NDArray) -> NDArray:
    """g * (b * a^(b - 1)), and 0 if b is 0. As in PyTorch, b - 1 is not rounded if b is a plain number."""
    less = b - 1.0 if is_plain(b) else u.subtract(b, ONE)
    none, slope = (b == 0)[()], u.apply("power", a, as_array(less))
    product = u.multiply(g, u.multiply(b, np.where(none, ONE[()], slope)))
    return np.where(none, product.dtype.type(0), product)


def power_to_exponent(u: Rounded, g: NDArray, y: NDArray, a: NDArray, b: NDArray) -> NDArray:
    """g * (y * log a), and 0 if a is 0 and b is not negative. If a is a plain number, its logarithm is rounded to
    FP64.
    """
    if is_plain(a) and a != 0:
        logarithm = as_array(log(a, FP64))
    else:
        logarithm = u.apply("log", np.where((a == 0) & (b >= 0), a.dtype.type(1), a[()]))
    return u.multiply(g, u.multiply(y, logarithm))


def is_plain(x: NDArray) -> bool:
    """True for a 0-dimensional float64 operand, such as a Python number."""
    return x.ndim == 0 and x.dtype == np.float64


def where_above(a: NDArray, x: NDArray, threshold: NDArray = ZERO) -> NDArray:
    """x if a is above the threshold or NaN, otherwise 0."""
    # Multiply the bit pattern by 0 or 1: np.where takes an unpredictable branch for every element.
    return as_array(image_of(x) * ~(a <= threshold[()])).view(x.dtype)  # a single element is a scalar on any device


def positive_part(u: Rounded, a: NDArray) -> NDArray:
    """Return relu: a if it is positive or NaN, otherwise 0."""
    return u.round(where_above(a, a), "relu")


def relu(u: Rounded, g: NDArray, y: NDArray, a: NDArray | None = None, threshold: NDArray = ZERO) -> NDArray:
    """g if the result y is above the threshold or NaN, otherwise 0."""
    return u.round(where_above(y, g, threshold), "relu")


def share(u: Rounded, g: NDArray, operand: NDArray, other_operand: NDArray) -> NDArray:
    """The part of g for `operand` in a maximum: g if it is larger, 0 if it is smaller, half of g if both are equal."""
    operand, other_operand = operand[()], other_operand[()]
    number = g.dtype.type
    return u.multiply(
        np.where(operand < other_operand, number(0), g), np.where(operand == other_operand, number(0.5), number(1))
    )


def gradient_where(u: Rounded, g: NDArray, where: NDArray) -> NDArray:
    """g where the operand was chosen, otherwise 0."""
    return u.round(np.where(where, g, g.dtype.type(0)), "where")


Axes = tuple[int, ...]


def softmax(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """exp(d) / sum(exp(d)) with d = x - max(x)."""
    powers = u.apply("exp", u.subtract(x, _largest(u, x, axes)))
    return u.divide(powers, total(u, powers, axes))


def softmax_slope(u: Rounded, g: NDArray, y: NDArray, axes: Axes) -> NDArray:
    """y * g - y * sum(y * g)."""
    product = u.multiply(y, g)
    return u.subtract(product, u.multiply(y, total(u, product, axes)))


def safe_softmax(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """softmax, and zeros if all of x is -inf."""
    return where(u, ~(x == -np.inf).all(axes, keepdims=True), softmax(u, x, axes), ZERO)


def log_softmax(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """d - log(sum(exp(d))) with d = x - max(x)."""
    below = u.subtract(x, _largest(u, x, axes))
    return u.subtract(below, u.apply("log", total(u, u.apply("exp", below), axes)))


def log_softmax_slope(u: Rounded, g: NDArray, y: NDArray, axes: Axes) -> NDArray:
    """g - exp(y) * sum(g)."""
    return u.subtract(g, u.multiply(u.apply("exp", y), total(u, g, axes)))


def logsumexp(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """log(sum(exp(d))) + m with d = x - m and m = max(x), or m = 0 if the maximum is infinite; the axes are dropped."""
    largest = _largest(u, x, axes)
    largest = where(u, np.isinf(largest), ZERO.astype(x.dtype), largest)
    powers = u.sum(u.apply("exp", u.subtract(x, largest)), axes)
    return u.add(u.apply("log", powers), largest.reshape(powers.shape))


def logcumsumexp(u: Rounded, x: NDArray, axis: int) -> NDArray:
    """The logsumexp of elements 0 to i along an axis for every i, each rounded as a separate logsumexp.

    Results with the same largest element m share exp(x - m), and their sums continue each other.
    """
    rows = np.moveaxis(x, axis, 0)
    count, columns = len(rows), rows.reshape(len(rows), -1)
    if columns.shape[1] > count:
        sums = np.stack([logsumexp(u, columns[: i + 1], (0,)) for i in range(count)])
    else:
        sums = np.stack([_running_logsumexp(u, np.ascontiguousarray(column)) for column in columns.T], 1)
    return u.with_format_of(np.moveaxis(sums.reshape(rows.shape), 0, axis), sums)


def _running_logsumexp(u: Rounded, x: NDArray) -> NDArray:
    """Return the logsumexp of elements 0 to i of a vector for every i."""
    largest = np.maximum.accumulate(x)
    bounds = [0, *(np.flatnonzero((largest[1:] != largest[:-1]) & ~np.isnan(largest[:-1])) + 1), len(x)]
    runs = []
    for start, end in pairwise(bounds):
        least = u.with_format_of(largest[start : start + 1], x)
        least = where(u, np.isinf(least), ZERO.astype(x.dtype), least)
        powers = u.running_sums(u.apply("exp", u.subtract(x[:end], least))[:, np.newaxis])[start:, 0]
        runs.append(u.add(u.apply("log", powers), np.broadcast_to(least, powers.shape)))
    return u.with_format_of(np.concatenate(runs), *runs)


def logsumexp_slope(u: Rounded, g: NDArray, y: NDArray, x: NDArray) -> NDArray:
    """g * exp(x - y), and 0 if all x are -inf; `g` and `y` have the summed axes with size 1."""
    return u.multiply(g, u.apply("exp", u.subtract(x, np.where(y == -np.inf, y.dtype.type(0), y))))


def _largest(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """Return the largest elements along axes, 0 without elements. They are constants: their gradient would cancel."""
    largest = x.max(axes, keepdims=True) if x.size else np.zeros(keepdims_shape(x.shape, axes), x.dtype, like=x)
    return u.with_format_of(largest, x)
