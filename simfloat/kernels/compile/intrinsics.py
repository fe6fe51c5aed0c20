"""Operations on the bits of a float, and the fused multiply-add: Python has no operators for them.

Each function has a Python body that defines its meaning, and also runs under ``NUMBA_DISABLE_JIT=1``. The overloads
below it are compiled for the CPU. They accept float32 and float64.

If these kernels add a product, the product is rounded first; if a single rounding is intended, the code calls `fma`.
LLVM keeps the two apart on the CPU, because fastmath is off. A compiler that contracts a * b + c by default, as
NVIDIA's does, needs an option against it (``fma=0``). Contraction would change the error terms in
`kernels/elementwise/exact.py`, the series in `functions`, unfused steps in hardware arithmetic, and the sums of matrix
units.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from simfloat.kernels.compile.jit import overload


def binade(x):
    """Return the power of two at or below a positive normal number; 0 for subnormals, inf for inf and NaN."""
    if isinstance(x, np.float32):
        return (x.view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
    return (np.float64(x).view(np.uint64) & np.uint64(0x7FF0000000000000)).view(np.float64)


def exponent_field(x):
    """Return the biased exponent of a float: 0 for zeros and subnormals, the largest value for inf and NaN."""
    if isinstance(x, np.float32):
        return np.int64(x.view(np.uint32) >> np.uint32(23) & np.uint32(0xFF))
    return np.int64(np.float64(x).view(np.uint64) >> np.uint64(52) & np.uint64(0x7FF))


#: The number of bytes that `count_bytes` reads.
PIECE = 512


def count_bytes(array, start, value):
    """Return the number of bytes with this value among the PIECE bytes of an array that begin at `start`."""
    return np.count_nonzero(array[start : start + PIECE] == value)


def fma(a, b, c):
    """Return a * b + c rounded once to nearest even."""
    near = a * b + c
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return near
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return near
    if isinstance(near, np.float32):
        return np.float32(_odd_fraction(exact))  # from round-to-odd, so that it is rounded only once
    try:
        return np.float64(float(exact))
    except OverflowError:
        return np.float64(np.inf if exact > 0 else -np.inf)


def round_sum_to_odd(s, e):
    """Round the exact sum s + e to odd, where s is its rounding to nearest and e the rounding error.

    A later rounding to at least two bits less then gives the correctly rounded sum (Boldo and Melquiond 2008).
    """
    if e == 0 or e != e or math.isinf(s):
        return s
    wide = not isinstance(s, np.float32)
    image = int(np.float64(s).view(np.int64) if wide else s.view(np.int32))
    if image % 2 == 0:
        image += 1 if (e > 0) == (math.copysign(1.0, s) > 0) else -1
    return np.int64(image).view(np.float64) if wide else np.int32(image).view(np.float32)


def truncate(x):
    """Return the integer part of x, truncated toward zero."""
    return np.trunc(x)


def floor(x):
    """Return the largest integer that is not above x."""
    return np.floor(x)


def whole_number(x):
    """Return the integer nearest to x, ties to even."""
    return np.rint(x)


def root(x):
    """Return the square root rounded to nearest even, NaN for negative numbers."""
    return np.sqrt(x)


def shift_left(x, count):
    """Return an integer shifted left by fewer bits than it has, in its type: Numba would widen it to 64 bits."""
    image = int(x) << int(count) & (1 << 8 * x.itemsize) - 1
    return type(x)(int.from_bytes(image.to_bytes(x.itemsize, "little"), "little", signed=x.dtype.kind == "i"))


def shift_right(x, count):
    """Return an integer shifted right by fewer bits than it has, in its type."""
    return type(x)(int(x) >> int(count))


def rotate_right(x, count):
    """Return an integer rotated right, in its type; `count` is taken modulo the bits of the type."""
    bits = 8 * x.itemsize
    count = int(count) % bits
    return type(x)((int(x) >> count | int(x) << bits - count) & (1 << bits) - 1)


def is_extreme(x):
    """Return True if a product, quotient or error term of finite nonzero operands like `x` may leave float64."""
    magnitude = abs(x)
    return 0.0 < magnitude < 2.0**-300 or 2.0**300 < magnitude < math.inf


def _odd_fraction(exact: Fraction) -> float:
    nearest = float(exact)
    rest = exact - Fraction(nearest)
    return float(round_sum_to_odd(np.float64(nearest), (rest > 0) - (rest < 0)))


def spread(builder, number, vector):
    """Return a vector of this type with the scalar in every lane."""
    index = ir.IntType(32)
    # The form that LLVM recognises as a broadcast: insert into the first lane, then shuffle with a mask of zeros. LLVM
    # folds the load of the scalar and the broadcast into one instruction.
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(index, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(index, vector.count), [0] * vector.count))


@intrinsic
def _llvm_fma(typing_context, a, b, c):
    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return a(a, a, a), generate


def _llvm_shift(operation):
    """Return a shift in the type of the integer; `operation` is the name of a builder method."""

    @intrinsic
    def shift(typing_context, x, count):
        def generate(context, builder, signature, arguments):
            return getattr(builder, operation)(*arguments)

        return x(x, x), generate

    return shift


_llvm_shift_left, _llvm_shift_right = _llvm_shift("shl"), _llvm_shift("lshr")


@intrinsic
def _llvm_rotate_right(typing_context, x, count):
    def generate(context, builder, signature, arguments):
        kind = arguments[0].type
        # A funnel shift of a number with itself is a rotation, in one instruction. Two shifts and an or would be
        # undefined for a count of zero, which occurs.
        funnel = builder.module.declare_intrinsic("llvm.fshr", [kind], ir.FunctionType(kind, [kind] * 3))
        return builder.call(funnel, [arguments[0], *arguments])

    return x(x, x), generate


def _llvm_unary(name):
    """Return LLVM's function of one number; NumPy's function of the same meaning is not available on a GPU."""

    @intrinsic
    def function(typing_context, x):
        def generate(context, builder, signature, arguments):
            declared = builder.module.declare_intrinsic(f"llvm.{name}", [arguments[0].type])
            return builder.call(declared, arguments)

        return x(x), generate

    return function


_llvm_trunc, _llvm_floor, _llvm_rint = _llvm_unary("trunc"), _llvm_unary("floor"), _llvm_unary("rint")
_llvm_sqrt = _llvm_unary("sqrt")


@overload(truncate)
def _truncate(x):
    return lambda x: _llvm_trunc(x)


@overload(floor)
def _floor(x):
    return lambda x: _llvm_floor(x)


@overload(whole_number)
def _whole_number(x):
    return lambda x: _llvm_rint(x)


@overload(root)
def _root(x):
    return lambda x: _llvm_sqrt(x)


@overload(shift_left)
def _overload_shift_left(x, count):
    return lambda x, count: _llvm_shift_left(x, count)


@overload(shift_right)
def _overload_shift_right(x, count):
    return lambda x, count: _llvm_shift_right(x, count)


@overload(rotate_right)
def _overload_rotate_right(x, count):
    return lambda x, count: _llvm_rotate_right(x, count)


@overload(binade)
def _binade(x):
    if x == types.float32:
        return lambda x: np.uint32(np.float32(x).view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
    return lambda x: np.uint64(np.float64(x).view(np.uint64) & np.uint64(0x7FF0000000000000)).view(np.float64)


@overload(exponent_field)
def _exponent_field(x):
    if x == types.float32:
        return lambda x: np.int64(np.uint32(np.float32(x).view(np.uint32) >> np.uint32(23)) & np.uint32(0xFF))
    return lambda x: np.int64((np.float64(x).view(np.uint64) >> np.uint64(52)) & np.uint64(0x7FF))


@intrinsic
def _llvm_count_bytes(typing_context, array, start, value):
    def generate(context, builder, signature, arguments):
        # The matches of each lane are counted in a byte. In a loop over an array, LLVM would widen these counters.
        lanes, words = ir.VectorType(ir.IntType(8), 32), ir.VectorType(ir.IntType(16), 32)
        data = context.make_array(array)(context, builder, arguments[0]).data
        first = builder.bitcast(builder.gep(data, [arguments[1]]), lanes.as_pointer())
        number = spread(builder, arguments[2], lanes)
        matches = ir.Constant(lanes, None)
        for i in range(PIECE // 32):
            part = builder.load(builder.gep(first, [ir.Constant(ir.IntType(32), i)]), align=1)
            matches = builder.sub(matches, builder.sext(builder.icmp_unsigned("==", part, number), lanes))
        kind = ir.FunctionType(ir.IntType(16), [words])
        total = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.add.v32i16")
        return builder.zext(builder.call(total, [builder.zext(matches, words)]), ir.IntType(64))

    return types.int64(array, types.intp, types.uint8), generate


@overload(count_bytes)
def _count_bytes(array, start, value):
    return lambda array, start, value: _llvm_count_bytes(array, start, value)


@overload(fma)
def _fma(a, b, c):
    return lambda a, b, c: _llvm_fma(a, b, c)


@overload(round_sum_to_odd)
def _overload_round_sum_to_odd(s, e):
    # In the bit pattern as an integer, one less is the neighbour toward zero, and setting the last bit makes it odd.
    if s == types.float32:

        def odd32(s, e):
            image = np.float32(s).view(np.uint32)
            # 1 if the error points toward zero: the bit pattern of the truncated number is then one less. Setting the
            # last bit makes either odd, and leaves an odd one unchanged. There is no branch, because this code is in
            # the innermost loops of many sums.
            opposed = np.uint32(np.uint32(np.float32(e).view(np.uint32) ^ image) >> np.uint32(31))
            moved = np.uint32(np.uint32(image - opposed) | np.uint32(1)).view(np.float32)
            return moved if abs(e) > np.float32(0) else s

        return odd32

    def odd64(s, e):
        image = np.float64(s).view(np.uint64)
        opposed = (np.float64(e).view(np.uint64) ^ image) >> np.uint64(63)
        moved = np.uint64((image - opposed) | np.uint64(1)).view(np.float64)
        return moved if abs(e) > 0.0 else s

    return odd64


@overload(is_extreme)
def _is_extreme(x):
    if x == types.float32:
        return lambda x: False
    return lambda x: ((abs(x) < 2.0**-300) & (x != 0.0)) | ((abs(x) > 2.0**300) & (abs(x) < np.inf))
