"""Arithmetic in 32 bits, of which vectors hold twice as many numbers as of 64: exponents, powers of two, and cuts.

Numba widens integers to 64 bits wherever it can; here every result is brought back, and LLVM then never widens it.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import shift_left, shift_right

#: An image without its sign; the image's sign; float32's exponent field of a power of two and of its inverse, added.
MAGNITUDE, SIGN, BOTH_FIELDS = np.int32(0x7FFFFFFF), np.int32(-0x80000000), np.int32(0x7F000000)


@scalar
def image_of(x):
    """The bits of a float32."""
    return np.float32(x).view(np.int32)


@scalar
def number_of(image):
    """The float32 of these bits."""
    return np.int32(image).view(np.float32)


@scalar
def without_bits(x, count):
    """A float32 without its last bits, cut toward zero."""
    return number_of(image_of(x) & shift_left(np.int32(-1), np.int32(count)))


@scalar
def sign_bits(x):
    """-1 for a float32 whose sign is minus, else 0."""
    return np.int32(image_of(x) >> np.int32(31))


@scalar
def exponent_of(x):
    """The exponent of a float32: -127 of zeros and subnormals, 128 of infinities and NaN."""
    field = shift_right(np.uint32(image_of(x) & MAGNITUDE), np.uint32(23))
    return np.int32(np.int32(field) - np.int32(127))


@scalar
def power_of_two(exponent):
    """2^exponent, from -126 to 127; anything for others."""
    return number_of(shift_left(np.int32(exponent + np.int32(127)), np.int32(23)))


@scalar
def inverse(power):
    """1 over a power of two from 2^-126 to 2^126; anything for others."""
    return number_of(BOTH_FIELDS - image_of(power))


def integer_toward_zero(x):
    """A float as int32, cut toward zero; anything where it does not fit."""
    return np.int32(x) if abs(x) < 2.0**31 else SIGN


@overload(integer_toward_zero, jit_options={"forceinline": True})
def _integer_toward_zero(x):
    assert isinstance(x, types.Float)
    return lambda x: np.int32(x)


@scalar
def number_toward_zero(x):
    """An int32 of magnitude below 2^31 - 128 as float32, rounded toward zero."""
    magnitude = np.int32(-x) if x < 0 else np.int32(x)
    # The conversion rounds to nearest; if that went up, one less in the image is the number below, also across a power
    # of two. The sign is put back as a bit.
    near = np.float32(magnitude)
    is_above = np.int32(integer_toward_zero(near) > magnitude)
    return number_of(np.int32(image_of(near) - is_above) | np.int32(np.int32(x) & SIGN))
