"""Results in FP16 of float32 numbers, which the hardware rounds to it: see `processor.CONVERTS_FP16`.

Each result is moved to odd in float32, whose 24 bits are more than the 11 + 2 that rounding to FP16 needs. Where
its error term leaves float32's range, the result lies far beyond FP16's: it is zero or infinite either way. A fused
multiply-add alone takes float64 for that, but in a block that holds only numbers of FP16, whose products are float32
numbers (`few_bits`). For the other operations a look at the operands takes longer than it spares.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels import unrounded
from simfloat.kernels.elementwise import ONE
from simfloat.kernels.few_bits import odd_multiply_add
from simfloat.kernels.function_loops import BLOCK, operand_slice, repeat_scalar
from simfloat.kernels.halves import round_to_half
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import fma, root, round_sum_to_odd
from simfloat.kernels.plain import one_nan
from simfloat.kernels.unrounded import divide_odd, odd_sum


@scalar
def odd_difference(x, y):
    """Round-to-odd of x - y."""
    return odd_sum(x, -y)


@scalar
def half_quotient(x, y):
    """x / y; the remainder of a tiny x has bits below float32's last one, unless both grow."""
    scale = np.float32(2.0**64) if abs(x) < np.float32(2.0**-60) else ONE
    return round_to_half(divide_odd(np.float32(x * scale), np.float32(y * scale)))


@scalar
def half_reciprocal(x):
    """1 / x."""
    return round_to_half(divide_odd(ONE, x))


@scalar
def half_root(x):
    """The square root of x, NaN if it is negative."""
    s = root(x)
    return round_to_half(round_sum_to_odd(s, fma(-s, s, x)))


@scalar
def half_fma(x, y, z):
    """x * y + z: float64 has the product, and the sum moved to odd."""
    return round_to_half(odd_sum(np.float64(x) * np.float64(y), np.float64(z)))


# Closures over the functions, by whose names compiled loops are told apart.
def _accept_one(function):
    return scalar(lambda x, y, z, sign: function(x))


def _accept_two(function):
    return scalar(lambda x, y, z, sign: function(x, y))


def _accept_three(function):
    return scalar(lambda x, y, z, sign: function(x, y, z))


def _to_half(function):
    """A function of two operands whose result the hardware rounds to FP16, as one of three and a sign."""
    return scalar(lambda x, y, z, sign: round_to_half(function(x, y)))


#: name -> the result of three float32 numbers and a sign, rounded to FP16 by the hardware.
CONVERTED = {
    "add": _to_half(odd_sum),
    "subtract": _to_half(odd_difference),
    "multiply": _to_half(unrounded.multiply_odd),
    "divide": _accept_two(half_quotient),
    "fma": _accept_three(half_fma),
    "sqrt": _accept_one(half_root),
    "reciprocal": _accept_one(half_reciprocal),
}


def converted_loop(function):
    """The loop of an operation."""

    @kernel
    def loop(a, b, c, out):
        a_repeated, b_repeated, c_repeated, single = repeat_scalar(a), repeat_scalar(b), repeat_scalar(c), np.float32
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, block = operand_slice(c, c_repeated, start, stop), out[start:stop]
            for i in range(block.size):
                block[i] = one_nan(function(single(x[i]), single(y[i]), single(z[i]), 1.0))

    return loop


@scalar
def _is_outside_fp16(x):
    """1 for what is no number of FP16, else 0; NaN is one of them."""
    return np.uint32(1) if (round_to_half(x) != x) & (x == x) else np.uint32(0)


@kernel
def _multiply_adds(a, b, c, out):
    """The loop of the fused multiply-add."""
    a_repeated, b_repeated, c_repeated, single = repeat_scalar(a), repeat_scalar(b), repeat_scalar(c), np.float32
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
        z, block = operand_slice(c, c_repeated, start, stop), out[start:stop]
        others = np.uint32(0)
        # A first look at all operands: where each is an FP16 number, products are float32 numbers, and the sum is moved
        # to odd in float32's lanes, twice as many as float64's.
        for i in range(block.size):
            others = np.uint32(
                others
                | _is_outside_fp16(single(x[i]))
                | _is_outside_fp16(single(y[i]))
                | _is_outside_fp16(single(z[i]))
            )
        if others != np.uint32(0):
            for i in range(block.size):
                block[i] = one_nan(half_fma(single(x[i]), single(y[i]), single(z[i])))
        else:
            for i in range(block.size):
                block[i] = one_nan(round_to_half(odd_multiply_add(single(x[i]), single(y[i]), single(z[i]), 1.0)))


converted_results = {
    name: _multiply_adds if name == "fma" else converted_loop(function) for name, function in CONVERTED.items()
}
