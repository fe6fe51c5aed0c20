"""FP16 by the hardware, and results of functions of 16-bit numbers that are looked up in tables.

`round_to_half` is an instruction on most machines (see `processor.CONVERTS_FP16`), and takes the place of ten. Few
machines compute in FP16 (`processor.COMPUTES_FP16`): there a number is held as its image, an integer of 16 bits, on
which Numba does no arithmetic of its own. As in `kernels/compile/intrinsics.py`, each function has a plain body, its
meaning, and an overload, which the CPU compiles.

A table has a result for each of the 65,536 operands. A number's place in it is its image in 16 bits: the upper half of
float32's for BF16, the hardware's conversion for FP16. Both loops give up at the first block that holds another number.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from simfloat.kernels.compile.jit import kernel, scalar
from simfloat.kernels.elementwise.exact import fma_odd
from simfloat.kernels.rounding.one_number import one_nan

HALF = ir.HalfType()


def round_to_half(x):
    """A float32 or float64 number rounded to FP16, to nearest even, as float32."""
    with np.errstate(over="ignore"):
        return np.float32(np.float16(x))


@scalar
def single_odd(x):
    """Round-to-odd of a float64 in float32, for numbers that are no subnormals there."""
    image = np.float64(x).view(np.uint64)
    below = np.uint64(0x1FFFFFFF)  # the bits that float32 lacks
    # If any bit below is set, adding `below` carries into the bit above them, which is float32's last one. So the or
    # sets a sticky bit without a comparison, and the conversion that follows is exact.
    rest = np.uint64(np.uint64(image & below) + below) & np.uint64(0x20000000)  # float32's last bit, if one is set
    return np.float32(np.uint64((image & ~below) | rest).view(np.float64))


def multiply_halves(x, y):
    """The product of two images' numbers, rounded to FP16."""
    with np.errstate(all="ignore"):
        return np.float16(np.float32(x.view(np.float16)) * np.float32(y.view(np.float16))).view(np.uint16)


def add_halves(a, b):
    """The sum of two images' numbers, rounded to FP16."""
    with np.errstate(all="ignore"):
        return np.float16(np.float32(a.view(np.float16)) + np.float32(b.view(np.float16))).view(np.uint16)


def fma_halves(a, b, c):
    """a * b + c of three images' numbers, rounded once to FP16."""
    with np.errstate(all="ignore"):
        x, y, z = (np.float64(image.view(np.float16)) for image in (a, b, c))
        return np.float16(fma_odd(x, y, z, 1.0)).view(np.uint16)


def negative(x):
    """A float, or the number of an image, with the other sign."""
    return x ^ np.uint16(0x8000) if isinstance(x, np.uint16) else -x


def magnitude(x):
    """What orders floats, or numbers of images of one format, by their magnitudes."""
    return x & np.uint16(0x7FFF) if isinstance(x, np.uint16) else abs(x)


def with_one_nan(x):
    """A float, with every NaN replaced by the positive quiet one; an image as it is."""
    return x if isinstance(x, np.uint16) else one_nan(x)


def image(x):
    """The image of a float32 that is a number of FP16."""
    return np.float16(x).view(np.uint16)


def number(image):
    """The number of an image, as float32."""
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
    """An operation of LLVM's type `half` on so many images; `operation` is the builder's method of that name."""

    def generate(context, builder, signature, arguments):
        result = getattr(builder, operation)(*(builder.bitcast(argument, HALF) for argument in arguments))
        return builder.bitcast(result, ir.IntType(16))

    signature = types.uint16(*[types.uint16] * count)
    if count == 3:
        return intrinsic(lambda typing_context, a, b, c: (signature, generate))
    return intrinsic(lambda typing_context, a, b: (signature, generate))


_llvm_multiply, _llvm_add, _llvm_fma = _on_images("fmul", 2), _on_images("fadd", 2), _on_images("fma", 3)


@overload(round_to_half, jit_options={"forceinline": True})
def _overload_round_to_half(x):
    if x == types.float32:
        return lambda x: _llvm_half(x)
    # A float64 would be rounded to float32 and again to FP16 by processors that convert from float32 only. Rounded to
    # odd in between, which has bits to spare, it is rounded once.
    return lambda x: _llvm_half(single_odd(x))


@overload(multiply_halves, jit_options={"forceinline": True})
def _multiply_halves(x, y):
    return lambda x, y: _llvm_multiply(x, y)


@overload(add_halves, jit_options={"forceinline": True})
def _add_halves(a, b):
    return lambda a, b: _llvm_add(a, b)


@overload(fma_halves, jit_options={"forceinline": True})
def _fma_halves(a, b, c):
    return lambda a, b, c: _llvm_fma(a, b, c)


@overload(negative, jit_options={"forceinline": True})
def _negative(x):
    if x == types.uint16:
        return lambda x: np.uint16(x ^ np.uint16(0x8000))
    return lambda x: -x


@overload(magnitude, jit_options={"forceinline": True})
def _magnitude(x):
    if x == types.uint16:
        return lambda x: np.uint16(x & np.uint16(0x7FFF))
    return lambda x: abs(x)


@overload(with_one_nan, jit_options={"forceinline": True})
def _overload_with_one_nan(x):
    if x == types.uint16:
        return lambda x: x
    return lambda x: one_nan(x)


@overload(image, jit_options={"forceinline": True})
def _image(x):
    return lambda x: _llvm_image(x)


@overload(number, jit_options={"forceinline": True})
def _number(image):
    return lambda image: _llvm_number(image)


@scalar
def number_with_one_nan(image):
    """The number of an image, as float32; every NaN becomes the one NaN."""
    return one_nan(number(image))


def conversion_loop(convert):
    """The loop that converts a matrix."""

    @kernel
    def loop(x, out):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = convert(x[i, j])

    return loop


#: Loops from numbers, as float32, to their images, and from these to results, by the kind of steps between; (x, out).
image_loops, number_loops = {"halves": conversion_loop(image)}, {"halves": conversion_loop(number_with_one_nan)}


#: Elements that are looked at together: of these as many are looked up in vain at most.
BLOCK = 1024


@kernel
def look_up_bfloat16(x, table, out):
    """Look up results of float32 numbers; False, and `out` undefined, if one of them is not a number of BF16."""
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
    """Look up results of float32 numbers; False, and `out` undefined, if one is no number of FP16. A NaN is one."""
    for start in range(0, out.size, BLOCK):
        block, results = x[start : start + BLOCK], out[start : start + BLOCK]
        others = np.int64(0)
        for i in range(block.size):
            rounded = number(image(block[i]))
            others += np.int64(rounded != block[i] and block[i] == block[i])
        if others:
            return False
        for i in range(block.size):
            results[i] = table[image(block[i])]
    return True
