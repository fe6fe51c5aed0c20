"""Operations on float32 numbers whose results the hardware rounds to FP16: see `target.CONVERTS_FP16`.

Each result is moved to odd in float32, whose 24 bits are more than the 11 + 2 that a later rounding to FP16 needs.
Where an error term leaves float32's range, the result lies far beyond FP16's, and is zero or infinite either way.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.elementwise import BLOCK, part, repeated
from simfloat.kernels.exact import divide_odd, multiply_odd, odd_sum
from simfloat.kernels.halves import half
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import fma, odd, root

ONE = np.float32(1.0)


@scalar
def add(x, y, z):
    """x + y."""
    return half(odd_sum(x, y))


@scalar
def subtract(x, y, z):
    """x - y."""
    return half(odd_sum(x, -y))


@scalar
def multiply(x, y, z):
    """x * y."""
    return half(multiply_odd(x, y))


@scalar
def divide(x, y, z):
    """x / y; the remainder of a tiny x has bits below float32's last one, unless both grow."""
    scale = np.float32(2.0**64) if abs(x) < np.float32(2.0**-60) else ONE
    return half(divide_odd(np.float32(x * scale), np.float32(y * scale)))


@scalar
def reciprocal(x, y, z):
    """1 / x."""
    return half(divide_odd(ONE, x))


@scalar
def sqrt(x, y, z):
    """The square root of x, NaN if it is negative."""
    s = root(x)
    return half(odd(s, fma(-s, s, x)))


@scalar
def multiply_and_add(x, y, z):
    """x * y + z: float64 has the product, and the sum moved to odd."""
    return half(odd_sum(np.float64(x) * np.float64(y), np.float64(z)))


def converted_loop(function):
    """The operation on vectors, or on scalars as vectors of length 1."""

    @kernel
    def loop(a, b, c, out):
        a_repeated, b_repeated, c_repeated, single = repeated(a), repeated(b), repeated(c), np.float32
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = part(a, a_repeated, start, stop), part(b, b_repeated, start, stop)
            z, block = part(c, c_repeated, start, stop), out[start:stop]
            for i in range(block.size):
                result = function(single(x[i]), single(y[i]), single(z[i]))
                block[i] = result if result == result else single(np.nan)

    return loop


#: name -> the result of three float32 numbers, rounded to FP16.
FUNCTIONS = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
    "fma": multiply_and_add,
    "sqrt": sqrt,
    "reciprocal": reciprocal,
}

#: name -> the loop (a, b, c, out) of the operation.
converted_results = {name: converted_loop(function) for name, function in FUNCTIONS.items()}
