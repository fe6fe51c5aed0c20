"""Operations on numbers of few bits: float32's own result, rounded once more, is the exact one rounded once.

Of numbers of p bits float32 makes sums, products, quotients and roots whose later rounding to nearest, to p bits, is
that of the exact ones if 24 >= 2 p + 2: what float32 rounds never becomes a tie (Figueroa, When is double rounding
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
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.elementwise import NATIVE
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import round_sum_to_odd
from simfloat.kernels.unrounded import two_sum

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
