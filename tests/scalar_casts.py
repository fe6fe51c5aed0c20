"""Scaled casts and the sums of their elements, number by number, as their definitions word them."""

from fractions import Fraction

import numpy as np

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.selftest.orders import dot
from simfloat.selftest.reference import operate


def largest(x):
    """The largest magnitude in float32; NaN if there is one."""
    with np.errstate(all="ignore"):
        magnitudes = [np.float32(abs(v)) for v in np.asarray(x, float).ravel().tolist()]
    return np.float32(np.nan) if any(np.isnan(magnitudes)) else max(magnitudes, default=np.float32(0))


def divided(most, amax):
    """most / amax in float32, inside its positive numbers."""
    with np.errstate(all="ignore"):
        s = np.float32(most) / np.float32(amax)
    return float(min(max(s, np.float32(2.0**-149)), np.float32(sf.FP32.max)))


def tensor_scale(x, format):
    """max / amax; 1 where amax is zero or no finite number."""
    amax = largest(x)
    return divided(format.max, amax) if 0 < amax < np.inf else 1.0


def elements(x, format, scale, rounding=sf.nearest_even):
    """round(x * scale), saturating, of every number."""
    x = np.asarray(x, float)
    scales = np.broadcast_to(scale, x.shape).ravel().tolist()
    flat = [
        operate("multiply", format, rounding.saturating(), v, s)
        for v, s in zip(x.ravel().tolist(), scales, strict=True)
    ]
    return np.array(flat).reshape(x.shape)


def exact_total(a, b):
    """The exact sum of products of finite numbers."""
    return sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(0))


def sum_of(accumulator, a, b, formats):
    """The accumulator's sum of the products of two lists of elements, by its definition."""
    unit = accumulator.for_inputs(*formats)
    return dot(unit.unit if unit.is_matrix_unit else unit, a, b, tuple(format.emin for format in formats))


def whole_dot(a, b, formats, scales, accumulator, output, rounding=sf.nearest_even):
    """A sum of products of elements, divided by the scales of both operands, then rounded once."""
    divisor = Fraction(scales[0]) * Fraction(scales[1])
    if accumulator == sf.exact:
        return round_value(exact_total(a, b) / divisor, output, rounding)
    total = sum_of(accumulator, a, b, formats)
    # A sum that is zero keeps its sign, and one that is no finite number its kind.
    return operate("divide", output, rounding, total, float(divisor))
