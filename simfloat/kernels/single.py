"""Results of float32 numbers in float32's lanes, twice as many as float64's: rounded to odd there, then once more.

Round-to-odd in float32's 24 bits serves formats of at most 22 bits whose smallest number is at least four of
float32's: see `unrounded`. Here it holds at both ends of float32's range, too. Where an error term would be too small
for float32, operands are scaled by powers of two, which leave its sign as it is; a result beyond the largest number is
the largest number, whose last bit is set, and a tiny one is the smallest.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.few_bits import FEW, IMAGES
from simfloat.kernels.function_loops import BLOCK, operand_slice
from simfloat.kernels.grid import FEW_BITS, unpack_grid
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import fma, root, round_sum_to_odd
from simfloat.kernels.rounding_loops import (
    round_each_directed,
    round_each_image,
    round_each_nearest,
    round_each_to_odd,
    round_image_to_nearest,
    unpack_image_cut,
)
from simfloat.kernels.unrounded import two_sum

F32, U32 = np.float32, np.uint32
LARGEST, INFINITY = F32(np.finfo(F32).max), F32(np.inf)

#: Products and dividends below it are scaled, by which their smallest error terms become numbers of float32.
SMALL, SCALE = F32(2.0**-100), F32(2.0**75)


@scalar
def _finite(s, exact):
    """A result, the largest number if it is infinite though the exact one is not."""
    return F32(math.copysign(LARGEST, s)) if (abs(s) == INFINITY) & exact else s


@scalar
def _is_finite(x, y):
    return (abs(x) < INFINITY) & (abs(y) < INFINITY)


@scalar
def add(x, y, z, sign):
    """x + y; `sign` as in unrounded.add_odd."""
    s, e = two_sum(F32(sign * x), F32(sign * y))
    return F32(sign * _finite(round_sum_to_odd(s, e), _is_finite(x, y)))


@scalar
def subtract(x, y, z, sign):
    """x - y."""
    return add(x, F32(-y), z, sign)


@scalar
def multiply(x, y, z, sign):
    """x * y: of a small product either operand lies below 2^50, and may be scaled."""
    p = F32(x * y)
    scale = SCALE if abs(p) < SMALL else F32(1.0)
    # The error term of a product below 2^-100 may lie under float32's smallest number and would be lost. Scaled by
    # 2^150 in all it is a normal number; only its sign is used.
    e = fma(F32(x * scale), F32(y * scale), F32(-F32(F32(p * scale) * scale)))
    return _finite(round_sum_to_odd(p, e), _is_finite(x, y))


@scalar
def divide(x, y, z, sign):
    """x / y: the remainder has bits below float32's last one only where x is small and y is not large."""
    scale = F32(2.0**100) if (abs(x) < SMALL) & (abs(y) < F32(2.0**24)) else F32(1.0)
    a, b = F32(x * scale), F32(y * scale)
    q = F32(a / b)
    r = fma(F32(-q), b, a)
    return _finite(round_sum_to_odd(q, r if b > F32(0.0) else F32(-r)), _is_finite(x, y) & (y != F32(0.0)))


@scalar
def reciprocal(x, y, z, sign):
    """1 / x."""
    return divide(F32(1.0), x, z, sign)


@scalar
def square_root(x, y, z, sign):
    """The square root of x, NaN if it is negative."""
    is_small = abs(x) < SMALL
    a = F32(x * F32(2.0**100)) if is_small else x
    s = root(a)
    near = round_sum_to_odd(s, fma(F32(-s), s, a))
    return F32(near * F32(2.0**-50)) if is_small else near


@scalar
def multiply_add(x, y, z, sign):
    """x * y + z: float64 has the product; what float32 leaves of the sum there tells the side of it by its sign."""
    product, addend = np.float64(x) * np.float64(y), np.float64(z)
    s, e = two_sum(sign * product, sign * addend)
    near = F32(s)
    rest = F32(((s - np.float64(near)) + e) * 2.0**150)
    return F32(F32(sign) * _finite(round_sum_to_odd(near, rest), abs(s) < np.inf))


@scalar
def repeat_scalar_for_block(operand, size):
    """A scalar operand's only element as often as a block needs it; nothing for a vector."""
    return np.full(min(size, BLOCK) if operand.size == 1 else 0, operand[0] if operand.size else operand.dtype.type(0))


@scalar
def round_each(block, results, grid_numbers, kind):
    """Round a block as `rounding_loops` do: by round_image, round_nearest, round_directed, round_to_odd, kinds 0 to 3.

    FEW_BITS is rounded by round_image, too.
    """
    if kind == 0 or kind == FEW_BITS:
        round_each_image(block, results, grid_numbers)
    elif kind == 1:
        round_each_nearest(block, results, grid_numbers)
    elif kind == 2:
        round_each_directed(block, results, grid_numbers)
    else:
        round_each_to_odd(block, results, grid_numbers)


def single_loop(function, few, images):
    """Each exact result of three float32 operands rounded once; a vector of length 1 is a scalar.

    Where the kind of `round_each` is FEW_BITS, blocks whose numbers have so few are rounded by the short function.
    """

    @kernel
    def loop(a, b, c, sign, out, grid_numbers, kind):
        a_repeated, b_repeated, c_repeated = (
            repeat_scalar_for_block(a, out.size),
            repeat_scalar_for_block(b, out.size),
            repeat_scalar_for_block(c, out.size),
        )
        exact, sign = np.empty(min(out.size, BLOCK), np.float32), F32(sign)
        cut = unpack_image_cut(unpack_grid(grid_numbers))
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, block, results = operand_slice(c, c_repeated, start, stop), exact[: stop - start], out[start:stop]
            if kind == FEW_BITS:
                # The or of all images shows whether any operand has a bit below the format's last one; if not,
                # float32's own result, rounded once more, is the exact one rounded once (`few_bits`).
                bits = U32(0)
                for i in range(results.size):
                    bits = U32(bits | images(F32(x[i]), F32(y[i]), F32(z[i])))
                if U32(bits & cut.dropped) == U32(0):
                    for i in range(results.size):
                        results[i] = round_image_to_nearest(few(F32(x[i]), F32(y[i]), F32(z[i]), sign), cut)
                    continue
            for i in range(block.size):
                block[i] = function(F32(x[i]), F32(y[i]), F32(z[i]), sign)
            round_each(block, results, grid_numbers, kind)

    return loop


#: name -> the exact result of three float32 numbers and a sign, rounded to odd in float32.
SINGLE = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
    "fma": multiply_add,
    "sqrt": square_root,
    "reciprocal": reciprocal,
}

single_results = {name: single_loop(function, FEW[name], IMAGES[name]) for name, function in SINGLE.items()}
