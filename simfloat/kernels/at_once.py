"""Operations on float32 numbers to nearest even, each result rounded where it is made.

float64 holds the product of two float32 numbers, and has sums and quotients moved to odd. None of these numbers is
extreme there, so that the quick formula serves for all of them, and nothing is kept between it and the rounding.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.exact import divide_odd, odd_sum
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.plain import nearest, one_nan


@scalar
def add(x, y):
    """x + y."""
    return odd_sum(x, y)


@scalar
def subtract(x, y):
    """x - y."""
    return odd_sum(x, -y)


@scalar
def multiply(x, y):
    """x * y."""
    return x * y


def rounded_loop(function):
    """The operation on vectors, or on one and a scalar as a vector of length 1, for plain grids."""

    @kernel
    def loop(a, b, out, numbers):
        grid, wide = unpack(numbers), np.float64
        if a.size == out.size and b.size == out.size:
            for i in range(out.size):
                out[i] = one_nan(nearest(function(wide(a[i]), wide(b[i])), grid))
        elif b.size == 1:
            y = wide(b[0])
            for i in range(out.size):
                out[i] = one_nan(nearest(function(wide(a[i]), y), grid))
        else:
            x = wide(a[0])
            for i in range(out.size):
                out[i] = one_nan(nearest(function(x, wide(b[i])), grid))

    return loop


#: name -> the exact result of two numbers, rounded to odd.
FUNCTIONS = {"add": add, "subtract": subtract, "multiply": multiply, "divide": divide_odd}

#: name -> the loop (a, b, out, numbers) of the operation.
rounded_results = {name: rounded_loop(function) for name, function in FUNCTIONS.items()}
