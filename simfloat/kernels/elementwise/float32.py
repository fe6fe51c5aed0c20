"""Operations on float32 numbers in float32 lanes, which are twice as many as float64 lanes; results are rounded once.

There are three methods.

**Few bits** (the kind FEW_BITS of `single_loop`): the float32 result, rounded once more, is the exact result rounded
once. For operands of p bits, this is true for sums, products, quotients and roots that are rounded to nearest to p
bits, if 24 >= 2 p + 2: the rounding to float32 never produces a tie (Figueroa, When is double rounding innocuous?,
SIGNUM Newsletter 30(3), 1995). BF16, with 8 bits, satisfies this. In a format with the exponents of float32, the
following applies to subnormal results:

* a sum is a multiple of the smallest number, and float32 represents it exactly;
* a product has 2 p bits. The smallest tie is half the smallest number, 2^(-126 - p). Products of at least this size
  have their last bit at 2^(-125 - 3 p) or above, which is a float32 number if 3 p <= 24. Smaller products have a lower
  first bit, and stay below that tie;
* a quotient m / n differs from a tie by at least the smallest tie divided by n < 2^p, which is more than the rounding
  error of float32 if 2 p < 24;
* no root is so small.

A fused multiply-add has no such rule. Its product is a float32 number, if it is neither tiny nor too large, and the sum
is rounded to odd. All functions have three operands and a sign, as operations everywhere. Sums of zeros have the sign
of the modes to nearest.

**Rounded to odd** in the 24 bits of float32, then once more: for formats of at most 22 bits with a smallest number of
at least four times the one of float32 (see `kernels/elementwise/exact.py`). The functions here also handle both ends of
the range of float32. If an error term would be too small for float32, operands are scaled by powers of two, which does
not change its sign. A result beyond the largest number becomes the largest number, which has its last bit set, and a
tiny result becomes the smallest number.

**Converted**: results in FP16, to which the hardware rounds (see `processor.CONVERTS_FP16`). Each result is first
rounded to odd in float32, which has 24 bits; rounding to FP16 needs 11 + 2. If its error term leaves the range of
float32, the result is far beyond the range of FP16: it is zero or infinite in any case. Only a fused multiply-add uses
float64, unless a block contains only FP16 numbers, because their products are float32 numbers. For the other
operations, scanning the operands would take longer than it saves.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, root, round_sum_to_odd
from simfloat.kernels.compile.jit import copy_into, kernel, scalar
from simfloat.kernels.elementwise import exact
from simfloat.kernels.elementwise.exact import divide_odd, odd_sum, two_sum
from simfloat.kernels.elementwise.half import round_to_half
from simfloat.kernels.elementwise.loops import BLOCK, NATIVE, ONE, is_same_memory, operand_slice, repeat_scalar
from simfloat.kernels.rounding.arrays import (
    round_each_directed,
    round_each_image,
    round_each_nearest,
    round_each_to_odd,
    round_image_to_nearest,
    unpack_image_cut,
)
from simfloat.kernels.rounding.grid import FEW_BITS, unpack_grid
from simfloat.kernels.rounding.one_number import one_nan

F32, U32 = np.float32, np.uint32

#: The number of operands of an operation, if it is not two.
COUNTS = {"fma": 3, "sqrt": 1, "reciprocal": 1}


@scalar
def odd_multiply_add(x, y, z, sign):
    """Return x * y + z rounded to odd, if the product is a float32 number."""
    s, e = two_sum(F32(x * y), z)
    return round_sum_to_odd(s, e)


@scalar
def _image(x):
    return F32(x).view(U32)


@scalar
def _images_of_one(x, y, z):
    return _image(x)


@scalar
def _images_of_two(x, y, z):
    return U32(_image(x) | _image(y))


@scalar
def _images_of_three(x, y, z):
    """Return the or of three bit patterns; its last bit is set if a product of few bits may not be a float32 number."""
    product = abs(F32(x * y))
    is_number = ((product >= F32(2.0**-126)) & (product < F32(np.inf))) | (x == F32(0.0)) | (y == F32(0.0))
    return U32(_images_of_two(x, y, z) | _image(z) | (U32(0) if is_number else U32(1)))


#: name -> the float32 result for numbers of few bits; for fma, the exact result rounded to odd.
FEW = {**NATIVE, "fma": odd_multiply_add}

_IMAGES = {1: _images_of_one, 2: _images_of_two, 3: _images_of_three}

#: name -> the bitwise or of the bit patterns of the operands.
IMAGES = {name: _IMAGES[COUNTS.get(name, 2)] for name in FEW}


LARGEST, INFINITY = F32(np.finfo(F32).max), F32(np.inf)

#: Smaller products and dividends are scaled, so that their smallest error terms are float32 numbers.
SMALL, SCALE = F32(2.0**-100), F32(2.0**75)


@scalar
def _finite(s, exact):
    """Return a result; if it is infinite although the exact one is finite, the largest number."""
    return F32(math.copysign(LARGEST, s)) if (abs(s) == INFINITY) & exact else s


@scalar
def _is_finite(x, y):
    return (abs(x) < INFINITY) & (abs(y) < INFINITY)


@scalar
def add(x, y, z, sign):
    """Return x + y rounded to odd; `sign` as in `exact.add_odd`."""
    s, e = two_sum(F32(sign * x), F32(sign * y))
    return F32(sign * _finite(round_sum_to_odd(s, e), _is_finite(x, y)))


@scalar
def subtract(x, y, z, sign):
    """Return x - y rounded to odd."""
    return add(x, F32(-y), z, sign)


@scalar
def multiply(x, y, z, sign):
    """Return x * y rounded to odd; the operands of a small product are below 2^50 and can be scaled."""
    p = F32(x * y)
    scale = SCALE if abs(p) < SMALL else F32(1.0)
    # The error term of a product below 2^-100 may be below the smallest float32 number and would be lost. Scaled by
    # 2^150 in total it is a normal number; only its sign is used.
    e = fma(F32(x * scale), F32(y * scale), F32(-F32(F32(p * scale) * scale)))
    return _finite(round_sum_to_odd(p, e), _is_finite(x, y))


@scalar
def divide(x, y, z, sign):
    """Return x / y rounded to odd; both are scaled if x is small and y not large, so that float32 has the remainder."""
    scale = F32(2.0**100) if (abs(x) < SMALL) & (abs(y) < F32(2.0**24)) else F32(1.0)
    a, b = F32(x * scale), F32(y * scale)
    q = F32(a / b)
    r = fma(F32(-q), b, a)
    return _finite(round_sum_to_odd(q, r if b > F32(0.0) else F32(-r)), _is_finite(x, y) & (y != F32(0.0)))


@scalar
def reciprocal(x, y, z, sign):
    """Return 1 / x rounded to odd."""
    return divide(F32(1.0), x, z, sign)


@scalar
def square_root(x, y, z, sign):
    """Return the square root of x rounded to odd, NaN if x is negative."""
    is_small = abs(x) < SMALL
    a = F32(x * F32(2.0**100)) if is_small else x
    s = root(a)
    near = round_sum_to_odd(s, fma(F32(-s), s, a))
    return F32(near * F32(2.0**-50)) if is_small else near


@scalar
def multiply_add(x, y, z, sign):
    """Return x * y + z rounded to odd.

    float64 represents the product. The sign of the error of rounding the sum to float32 shows on which side of the
    float32 number the sum is.
    """
    product, addend = np.float64(x) * np.float64(y), np.float64(z)
    s, e = two_sum(sign * product, sign * addend)
    near = F32(s)
    rest = F32(((s - np.float64(near)) + e) * 2.0**150)
    return F32(F32(sign) * _finite(round_sum_to_odd(near, rest), abs(s) < np.inf))


@scalar
def repeat_scalar_for_block(operand, size):
    """Return a block that repeats the only element of a scalar operand; an empty array for a vector."""
    return np.full(min(size, BLOCK) if operand.size == 1 else 0, operand[0] if operand.size else operand.dtype.type(0))


@scalar
def round_each(block, results, grid_numbers, kind):
    """Round a block like the loops of `kernels/rounding/arrays.py`.

    Kinds 0 to 3 are round_image, round_nearest, round_directed, round_to_odd. FEW_BITS is also rounded by round_image.
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
    """Return the loop that rounds each exact result of three float32 operands once; a vector of length 1 is a scalar.

    If the kind is FEW_BITS, blocks of numbers with few bits are rounded by the short function.
    """

    @kernel
    def loop(a, b, c, sign, out, grid_numbers, kind):
        a_repeated, b_repeated, c_repeated = (
            repeat_scalar_for_block(a, out.size),
            repeat_scalar_for_block(b, out.size),
            repeat_scalar_for_block(c, out.size),
        )
        exact, sign = np.empty(min(out.size, BLOCK), np.float32), F32(sign)
        replaces = is_same_memory(out, a) or is_same_memory(out, b) or is_same_memory(out, c)
        buffer = np.empty(min(out.size, BLOCK) if replaces else 0, out.dtype)
        cut = unpack_image_cut(unpack_grid(grid_numbers))
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, block, results = operand_slice(c, c_repeated, start, stop), exact[: stop - start], out[start:stop]
            if kind == FEW_BITS:
                # The or of all bit patterns shows if any operand has a bit below the last bit of the format. If not,
                # the float32 result, rounded once more, is the exact result rounded once (see above).
                bits = U32(0)
                for i in range(results.size):
                    bits = U32(bits | images(F32(x[i]), F32(y[i]), F32(z[i])))
                if U32(bits & cut.dropped) == U32(0):
                    # A loop that writes results to the memory of an operand is not vectorised.
                    target = buffer[: stop - start] if replaces else results
                    for i in range(target.size):
                        target[i] = round_image_to_nearest(few(F32(x[i]), F32(y[i]), F32(z[i]), sign), cut)
                    if replaces:
                        copy_into(results, target)
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


@scalar
def odd_difference(x, y):
    """Return x - y rounded to odd."""
    return odd_sum(x, -y)


@scalar
def half_quotient(x, y):
    """Return x / y in FP16; the remainder of a tiny x has bits too low for float32, unless both operands are scaled."""
    scale = np.float32(2.0**64) if abs(x) < np.float32(2.0**-60) else ONE
    return round_to_half(divide_odd(np.float32(x * scale), np.float32(y * scale)))


@scalar
def half_reciprocal(x):
    """Return 1 / x in FP16."""
    return round_to_half(divide_odd(ONE, x))


@scalar
def half_root(x):
    """Return the square root of x in FP16, NaN if x is negative."""
    s = root(x)
    return round_to_half(round_sum_to_odd(s, fma(-s, s, x)))


@scalar
def half_fma(x, y, z):
    """Return x * y + z in FP16; float64 represents the product, and the sum is rounded to odd in float64."""
    return round_to_half(odd_sum(np.float64(x) * np.float64(y), np.float64(z)))


# Closures over the functions: compiled loops are identified by their names.
def _accept_one(function):
    return scalar(lambda x, y, z, sign: function(x))


def _accept_two(function):
    return scalar(lambda x, y, z, sign: function(x, y))


def _accept_three(function):
    return scalar(lambda x, y, z, sign: function(x, y, z))


def _to_half(function):
    """Return a function of three operands and a sign, from a function of two and the hardware's rounding to FP16."""
    return scalar(lambda x, y, z, sign: round_to_half(function(x, y)))


#: name -> the result of three float32 numbers and a sign, rounded to FP16 by the hardware.
CONVERTED = {
    "add": _to_half(odd_sum),
    "subtract": _to_half(odd_difference),
    "multiply": _to_half(exact.multiply_odd),
    "divide": _accept_two(half_quotient),
    "fma": _accept_three(half_fma),
    "sqrt": _accept_one(half_root),
    "reciprocal": _accept_one(half_reciprocal),
}


def converted_loop(function):
    """Return the loop of an operation."""

    @kernel
    def loop(a, b, c, out):
        a_repeated, b_repeated, c_repeated, single = repeat_scalar(a), repeat_scalar(b), repeat_scalar(c), np.float32
        replaces = is_same_memory(out, a) or is_same_memory(out, b) or is_same_memory(out, c)
        buffer = np.empty(min(out.size, BLOCK) if replaces else 0, out.dtype)
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, results = operand_slice(c, c_repeated, start, stop), out[start:stop]
            # A loop that writes results to the memory of an operand is not vectorised.
            block = buffer[: stop - start] if replaces else results
            for i in range(block.size):
                block[i] = one_nan(function(single(x[i]), single(y[i]), single(z[i]), 1.0))
            if replaces:
                copy_into(results, block)

    return loop


@scalar
def _is_outside_fp16(x):
    """Return 1 for a value that is not an FP16 number, otherwise 0; NaN counts as FP16."""
    return np.uint32(1) if (round_to_half(x) != x) & (x == x) else np.uint32(0)


@kernel
def _multiply_adds(a, b, c, out):
    """Compute fused multiply-adds in FP16."""
    a_repeated, b_repeated, c_repeated, single = repeat_scalar(a), repeat_scalar(b), repeat_scalar(c), np.float32
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
        z, block = operand_slice(c, c_repeated, start, stop), out[start:stop]
        others = np.uint32(0)
        # All operands are scanned first: if each is an FP16 number, products are float32 numbers, and the sum is
        # rounded to odd in float32 lanes, which are twice as many as float64 lanes.
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
