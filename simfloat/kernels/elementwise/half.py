"""FP16 by the hardware, and table look-ups for functions of 16-bit numbers.

`round_to_half` is one instruction on most processors (see `processor.CONVERTS_FP16`), and replaces ten. Few processors
compute in FP16 (`processor.COMPUTES_FP16`): a number is then represented by its bit pattern, an integer of 16 bits,
because Numba has no arithmetic for FP16. As in `kernels/compile/intrinsics.py`, each function has a Python body that
defines its meaning, and an overload that is compiled for the CPU.

A table has a result for each of the 65,536 operands. The index of a number is its 16-bit pattern: for BF16 the upper
half of float32, for FP16 the conversion by the hardware. Both loops stop at the first block that contains another
number.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from simfloat.kernels.compile.jit import kernel, overload, scalar
from simfloat.kernels.elementwise.exact import fma_odd
from simfloat.kernels.rounding.one_number import one_nan

HALF = ir.HalfType()


def round_to_half(x):
    """Return a float32 or float64 number rounded to FP16, to nearest even, as float32."""
    with np.errstate(over="ignore"):
        return np.float32(np.float16(x))


@scalar
def single_odd(x):
    """Round a float64 to odd in float32, for numbers that are not subnormal in float32."""
    image = np.float64(x).view(np.uint64)
    below = np.uint64(0x1FFFFFFF)  # the bits that float32 does not have
    # If any bit below is set, adding `below` carries into the next higher bit, which is the last bit of float32. The or
    # therefore sets a sticky bit without a comparison, and the conversion that follows is exact.
    rest = np.uint64(np.uint64(image & below) + below) & np.uint64(0x20000000)  # the last bit of float32, if any is set
    return np.float32(np.uint64((image & ~below) | rest).view(np.float64))


def multiply_halves(x, y):
    """Return the product of two bit patterns, rounded to FP16."""
    with np.errstate(all="ignore"):
        return np.float16(np.float32(x.view(np.float16)) * np.float32(y.view(np.float16))).view(np.uint16)


def add_halves(a, b):
    """Return the sum of two bit patterns, rounded to FP16."""
    with np.errstate(all="ignore"):
        return np.float16(np.float32(a.view(np.float16)) + np.float32(b.view(np.float16))).view(np.uint16)


def fma_halves(a, b, c):
    """Return a * b + c of three bit patterns, rounded once to FP16."""
    with np.errstate(all="ignore"):
        x, y, z = (np.float64(image.view(np.float16)) for image in (a, b, c))
        return np.float16(fma_odd(x, y, z, 1.0)).view(np.uint16)


def negative(x):
    """Return a float, or the number of a bit pattern, with the opposite sign."""
    return x ^ np.uint16(0x8000) if isinstance(x, np.uint16) else -x


def magnitude(x):
    """Return a value that orders floats, or bit patterns of one format, by magnitude."""
    return x & np.uint16(0x7FFF) if isinstance(x, np.uint16) else abs(x)


def with_one_nan(x):
    """Return a float, with every NaN replaced by the positive quiet NaN; bit patterns stay unchanged."""
    return x if isinstance(x, np.uint16) else one_nan(x)


def image(x):
    """Return the bit pattern of a float32 value that is an FP16 number."""
    return np.float16(x).view(np.uint16)


def number(image):
    """Return the number of a bit pattern, as float32."""
    return np.float32(image.view(np.float16))


@intrinsic
def _llvm_half(typing_context, x):
    def generate(context, builder, signature, arguments):
        return builder.fpext(builder.fptrunc(arguments[0], HALF), ir.FloatType())

    return types.float32(types.float32), generate


@intrinsic
def _llvm_image(typing_context, x):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(builder.fptrunc(arguments[0], HALF), ir.IntType(16))

    return types.uint16(types.float32), generate


@intrinsic
def _llvm_number(typing_context, image):
    def generate(context, builder, signature, arguments):
        return builder.fpext(builder.bitcast(arguments[0], HALF), ir.FloatType())

    return types.float32(types.uint16), generate


def _on_images(operation, count):
    """Return an operation of LLVM's type `half` on `count` bit patterns; `operation` names a builder method."""

    def generate(context, builder, signature, arguments):
        result = getattr(builder, operation)(*(builder.bitcast(argument, HALF) for argument in arguments))
        return builder.bitcast(result, ir.IntType(16))

    signature = types.uint16(*[types.uint16] * count)
    if count == 3:
        return intrinsic(lambda typing_context, a, b, c: (signature, generate))
    return intrinsic(lambda typing_context, a, b: (signature, generate))


_llvm_multiply, _llvm_add, _llvm_fma = _on_images("fmul", 2), _on_images("fadd", 2), _on_images("fma", 3)


@overload(round_to_half)
def _overload_round_to_half(x):
    if x == types.float32:
        return lambda x: _llvm_half(x)
    # Processors that convert only from float32 would round a float64 to float32 and again to FP16. Rounding to odd in
    # between, which has enough extra bits, makes this a single rounding.
    return lambda x: _llvm_half(single_odd(x))


@overload(multiply_halves)
def _multiply_halves(x, y):
    return lambda x, y: _llvm_multiply(x, y)


@overload(add_halves)
def _add_halves(a, b):
    return lambda a, b: _llvm_add(a, b)


@overload(fma_halves)
def _fma_halves(a, b, c):
    return lambda a, b, c: _llvm_fma(a, b, c)


@overload(negative)
def _negative(x):
    if x == types.uint16:
        return lambda x: np.uint16(x ^ np.uint16(0x8000))
    return lambda x: -x


@overload(magnitude)
def _magnitude(x):
    if x == types.uint16:
        return lambda x: np.uint16(x & np.uint16(0x7FFF))
    return lambda x: abs(x)


@overload(with_one_nan)
def _overload_with_one_nan(x):
    if x == types.uint16:
        return lambda x: x
    return lambda x: one_nan(x)


@overload(image)
def _image(x):
    return lambda x: _llvm_image(x)


@overload(number)
def _number(image):
    return lambda image: _llvm_number(image)


@scalar
def number_with_one_nan(image):
    """Return the number of a bit pattern, as float32; every NaN becomes the positive quiet NaN."""
    return one_nan(number(image))


def conversion_loop(convert):
    """Return the loop that converts a matrix."""

    @kernel
    def loop(x, out):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = convert(x[i, j])

    return loop


#: Loops from float32 values to bit patterns, and from bit patterns to results, by the kind of steps between; (x, out).
image_loops, number_loops = {"halves": conversion_loop(image)}, {"halves": conversion_loop(number_with_one_nan)}


#: Elements per block; a block is tested before its results are looked up.
BLOCK = 1024


@kernel
def look_up_bfloat16(x, table, out):
    """Look up results of float32 numbers; return False, with undefined `out`, if one of them is not a BF16 number."""
    images = x.view(np.uint32)
    for start in range(0, out.size, BLOCK):
        block, results = images[start : start + BLOCK], out[start : start + BLOCK]
        lower = np.uint32(0)
        for i in range(block.size):
            lower = np.uint32(lower | block[i])  # an int64 would take half the lanes
        if lower & np.uint32(0xFFFF):
            return False
        for i in range(block.size):
            results[i] = table[block[i] >> np.uint32(16)]
    return True


@kernel
def look_up_float16(x, table, out):
    """Look up results of float32 numbers; return False, with undefined `out`, if one is not an FP16 number or NaN."""
    # The patterns of a block are stored: converting each number again for its look-up takes 1.4 times as long.
    images = np.empty(BLOCK, np.uint16)
    for start in range(0, out.size, BLOCK):
        block, results = x[start : start + BLOCK], out[start : start + BLOCK]
        others = np.uint32(0)  # an int64 would take half the lanes
        for i in range(block.size):
            images[i] = image(block[i])
            is_other = number(images[i]) != block[i] and block[i] == block[i]
            others = np.uint32(others + np.uint32(is_other))
        if others:
            return False
        for i in range(block.size):
            results[i] = table[images[i]]
    return True
