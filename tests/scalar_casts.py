"""Scaled casts and the sums of their elements, number by number, as their definitions word them."""

from fractions import Fraction

import numpy as np

import simfloat as sf
from simfloat.formats.definition import floor_log2, round_value
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


def power_scale(amax, format, rule="rceil"):
    """The power of two by which a block's elements are divided (OCP MX), NaN where there is none."""
    if not np.isfinite(amax):
        return np.nan
    exponent = -127
    if amax:
        numbers = {"rceil": Fraction(amax) / Fraction(format.max), "floor": Fraction(amax) / Fraction(2) ** format.emax}
        exponent = floor_log2(numbers[rule])
        exponent += rule == "rceil" and numbers[rule] != Fraction(2) ** exponent
    return np.nan if exponent > 127 else 2.0 ** max(exponent, -127)


def squares(x, size):
    """The elements of each block, (across, along) of a matrix (rows, k), in rows of blocks."""
    across, along = size if isinstance(size, tuple) else (1, size)
    rows, depth = range(0, x.shape[0], across), range(0, x.shape[1], along)
    return [[x[i : i + across, j : j + along] for j in depth] for i in rows]


def block_scales(x, format, scale):
    """Of a matrix (rows, k): by what each block's numbers are multiplied, and what divides its sums."""
    across = scale.size[0] if isinstance(scale.size, tuple) else 1
    rows = []
    for row in squares(x, scale.size):
        if scale.format == sf.FP32:
            rows += [[tensor_scale(part, format) for part in row]] * across
        else:
            powers = [power_scale(float(np.max(np.abs(part))), format, scale.rule or "rceil") for part in row]
            rows += [powers] * across
    return np.array(rows[: len(x)], float).reshape(len(x), -(-x.shape[1] // scale.along))


def block_dot(a, b, scales, formats, block, accumulator, output, divide, rounding=sf.nearest_even, start=0.0):
    """A sum of products of elements in blocks: (products of block i) / scales[i], or times them, added up."""
    parts = [(a[i : i + block], b[i : i + block]) for i in range(0, len(a), block)]
    if accumulator == sf.exact:
        freed = (
            exact_total(*part) * Fraction(s) ** (-1 if divide else 1) for part, s in zip(parts, scales, strict=True)
        )
        return round_value(sum(freed, Fraction(start)), output, rounding)
    mode = accumulator
    while hasattr(mode, "outer"):
        mode = mode.outer
    mode, total = getattr(mode, "rounding", sf.nearest_even), start
    for part, s in zip(parts, scales, strict=True):
        freed = operate(
            "divide" if divide else "multiply", accumulator.result, mode, sum_of(accumulator, *part, formats), s
        )
        total = operate("add", accumulator.result, mode, total, freed)
    return round_value(total, output, rounding)
