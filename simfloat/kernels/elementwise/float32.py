"""Operations on float32 numbers in float32's lanes, twice as many as float64's: three ways to results rounded once.

**Few bits** (the kind FEW_BITS of `single_loop`). Float32's own result, rounded once more, is the exact one rounded
once. Of numbers of p bits float32 makes sums, products, quotients and roots whose later rounding to nearest, to p bits,
is that of the exact ones if 24 >= 2 p + 2: what float32 rounds never becomes a tie (Figueroa, When is double rounding
innocuous?, SIGNUM Newsletter 30(3), 1995). So it is for BF16's numbers, of 8 bits. In a format with float32's
exponents, where numbers are subnormal,

* a sum is a multiple of the smallest of them, and float32 holds it as it is;
* a product has 2 p bits. The smallest tie is half the smallest number, 2^(-126 - p); products from there on have their
  last bit at 2^(-125 - 3 p) or above, which is a number of float32 if 3 p <= 24; smaller products have their first bit
  lower, and stay below that tie;
* a quotient m / n differs from a tie by at least the smallest tie divided by n < 2^p, more than float32 rounds off
  if 2 p < 24;
* no root is so small.

A fused multiply-add has no such rule: its product is a float32 number, if it is neither tiny nor too large, and the sum
is rounded to odd. All are written for three operands and a sign, as operations everywhere; sums of zeros have the sign
of the modes to nearest.

**Rounded to odd** in float32's 24 bits, then once more: for formats of at most 22 bits whose smallest number is at
least four of float32's (see `kernels/elementwise/exact.py`). Here it holds at both ends of float32's range, too. Where
an error term would be too small for float32, operands are scaled by powers of two, which leave its sign as it is; a
result beyond the largest number is the largest number, whose last bit is set, and a tiny one is the smallest.

**Converted**: results in FP16, to which the hardware rounds (see `processor.CONVERTS_FP16`). Each result is moved to
odd in float32, whose 24 bits are more than the 11 + 2 that rounding to FP16 needs. Where its error term leaves
float32's range, the result lies far beyond FP16's: it is zero or infinite either way. A fused multiply-add alone takes
float64 for that, but in a block that holds only numbers of FP16, whose products are float32 numbers. For the other
operations a look at the operands takes longer than it spares.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, root, round_sum_to_odd
from simfloat.kernels.compile.jit import kernel, scalar
from simfloat.kernels.elementwise import exact
from simfloat.kernels.elementwise.exact import divide_odd, odd_sum, two_sum
from simfloat.kernels.elementwise.half import round_to_half
from simfloat.kernels.elementwise.loops import BLOCK, NATIVE, ONE, operand_slice, repeat_scalar
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

#: How many operands an operation has, where it is not two.
COUNTS = {"fma": 3, "sqrt": 1, "reciprocal": 1}


@scalar
def odd_multiply_add(x, y, z, sign):
    """x * y + z rounded to odd, where the product is a float32 number."""
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
    """The images of three operands; with the last bit where a product of few bits may not be a float32 number."""
    product = abs(F32(x * y))
    is_number = ((product >= F32(2.0**-126)) & (product < F32(np.inf))) | (x == F32(0.0)) | (y == F32(0.0))
    return U32(_images_of_two(x, y, z) | _image(z) | (U32(0) if is_number else U32(1)))


#: name -> float32's result of numbers of few bits; of fma, the exact one rounded to odd.
FEW = {**NATIVE, "fma": odd_multiply_add}

_IMAGES = {1: _images_of_one, 2: _images_of_two, 3: _images_of_three}

#: name -> the images of the operands together: which bits any of them has.
IMAGES = {name: _IMAGES[COUNTS.get(name, 2)] for name in FEW}


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
    """Round a block as the loops of `kernels/rounding/arrays.py` do.

    Kinds 0 to 3 are round_image, round_nearest, round_directed, round_to_odd. FEW_BITS is rounded by round_image, too.
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
                # float32's own result, rounded once more, is the exact one rounded once (see above).
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
    "multiply": _to_half(exact.multiply_odd),
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
