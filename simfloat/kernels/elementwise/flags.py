"""IEEE exception flags of results: of exact results that are rounded, and of results that the hardware rounds.

Exact results are float64 or float32 lanes. Hardware results are in FP64 and FP32; the loops compute them and their
flags. The definition and the meaning of each flag are in `formats/exceptions.py`. `arithmetic/flags.py` handles results
that are infinite or NaN, or that come from such operands. Operands are vectors of the length of the results, or of
length 1 for a scalar.
"""

from __future__ import annotations

import numpy as np

from simfloat.formats.exceptions import INEXACT, OVERFLOW, UNDERFLOW, Thresholds
from simfloat.kernels.compile.intrinsics import floor, fma, is_extreme
from simfloat.kernels.compile.jit import kernel, out_of_line, reader, scalar
from simfloat.kernels.elementwise.exact import scale_by_power, two_product, two_sum
from simfloat.kernels.elementwise.float32 import INFINITY, SINGLE, SMALL, repeat_scalar_for_block, round_each
from simfloat.kernels.elementwise.half import round_to_half
from simfloat.kernels.elementwise.loops import BLOCK, NATIVE, OPERATIONS, operand_slice, repeat_scalar
from simfloat.kernels.rounding.one_number import one_nan

unpack_thresholds = reader(Thresholds)


@scalar
def _flag_each(exact, out, thresholds, flags):
    """Flag each result of a block, in the type of the thresholds; return 1 if some are left for other functions."""
    limits, number = unpack_thresholds(thresholds), thresholds.dtype.type
    others, zero, infinity = np.int32(0), number(0.0), number(np.inf)
    for i in range(out.size):
        x, result = number(exact[i]), number(out[i])
        magnitude, negative = abs(x), x < zero
        over = magnitude >= (limits.must_overflow_below if negative else limits.must_overflow)
        subnormal = magnitude < (limits.may_be_normal_below if negative else limits.may_be_normal)
        inexact = np.int32(x != result)
        others |= np.int32(not magnitude < infinity) | np.int32(result != result)
        flags[i] = np.uint8(inexact * INEXACT + (inexact & np.int32(subnormal)) * UNDERFLOW + np.int32(over) * OVERFLOW)
    return others


@scalar
def _flag_in_lanes(exact, out, thresholds, flags):
    """Flag the results of a block in float32 lanes, if no number becomes NaN; return 1 if some are left over.

    Most blocks have no overflow, no tiny result and nothing left over; the largest and the smallest bit pattern show
    that.
    """
    limits = unpack_thresholds(thresholds)
    over = np.float32(min(limits.must_overflow, limits.must_overflow_below)).view(np.uint32)
    normal = np.float32(max(limits.may_be_normal, limits.may_be_normal_below)).view(np.uint32)
    images, largest, smallest = exact.view(np.uint32), np.uint32(0), np.uint32(0xFFFFFFFF)
    for i in range(out.size):
        magnitude = np.uint32(images[i] & np.uint32(0x7FFFFFFF))
        # A zero minus one is larger than every magnitude. Two bounds for a block and one `!=` per number are enough:
        # most blocks have no overflow and no tiny result, so the thresholds are only applied if the bounds require it.
        largest, smallest = max(largest, magnitude), min(smallest, np.uint32(magnitude - np.uint32(1)))
        flags[i] = np.uint8(exact[i] != out[i])
    if largest < over and smallest >= np.uint32(normal - np.uint32(1)):
        return np.int32(0)
    return _flag_each(exact, out, thresholds, flags)


@kernel
def flag_results(exact, out, thresholds, flags):
    """Write the flags of the results `out` of finite exact ones, for formats and modes in which `may` and `must` are
    equal.

    Returns nonzero if some are left over: results that are NaN, or exact results that are infinite or NaN.
    """
    return _flag_each(exact, out, thresholds, flags)


@scalar
def _convert_each(block, results, grid_numbers, kind):
    """Round a block to FP16 by the hardware."""
    for i in range(block.size):
        results[i] = round_to_half(block[i])


def rounding_flag_loop(round_block):
    """Return the loop that rounds float32 numbers in float32 lanes and flags them.

    The loop returns nonzero if some results are left over.
    """

    @kernel
    def loop(x, out, grid_numbers, kind, thresholds, flags):
        others = np.int32(0)
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            block, results = x[start:stop], out[start:stop]
            round_block(block, results, grid_numbers, kind)
            others |= _flag_in_lanes(block, results, thresholds, flags[start:stop])
        return others

    return loop


def single_flag_loop(function, round_block):
    """Return the loop of an operation on float32 operands, rounded by `round_block`, and its flags.

    The loop returns nonzero if some results are left over.
    """

    @kernel
    def loop(a, b, c, sign, out, grid_numbers, kind, thresholds, flags):
        a_repeated, b_repeated, c_repeated = (
            repeat_scalar_for_block(a, out.size),
            repeat_scalar_for_block(b, out.size),
            repeat_scalar_for_block(c, out.size),
        )
        exact, sign, others = np.empty(min(out.size, BLOCK), np.float32), np.float32(sign), np.int32(0)
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, block, results = operand_slice(c, c_repeated, start, stop), exact[: stop - start], out[start:stop]
            for i in range(block.size):
                block[i] = function(np.float32(x[i]), np.float32(y[i]), np.float32(z[i]), sign)
            round_block(block, results, grid_numbers, kind)
            others |= _flag_in_lanes(block, results, thresholds, flags[start:stop])
        return others

    return loop


def native_flag_loop(native, error_of, exact_of):
    """Return the loop of an operation on float32 operands that the hardware rounds to FP32, and its flags.

    `error_of` returns the rounding error in float32, and True if it is valid and sufficient, because the result is far
    from the ends of the range. If a block has other results, the flags of the block come from exact results in float64.
    The loop returns nonzero if some results are left over.
    """

    @kernel
    def loop(a, b, c, sign, out, thresholds, flags):
        a_repeated, b_repeated, c_repeated = (
            repeat_scalar_for_block(a, out.size),
            repeat_scalar_for_block(b, out.size),
            repeat_scalar_for_block(c, out.size),
        )
        exact, others = np.empty(min(out.size, BLOCK), np.float64), np.int32(0)
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, results, block = operand_slice(c, c_repeated, start, stop), out[start:stop], flags[start:stop]
            rare = np.uint32(0)
            for i in range(block.size):
                u, v, w = np.float32(x[i]), np.float32(y[i]), np.float32(z[i])
                result = one_nan(native(u, v, w, 1.0))
                left, is_sure = error_of(u, v, w, result)
                results[i], block[i] = result, np.uint8(left != 0)
                # The error term shows if a result is inexact, but only if the error is itself a float32 number. If a
                # block has a number near the ends of the range, the whole block is flagged by its exact results in
                # float64.
                rare |= np.uint32(not is_sure)
            if rare != 0:
                for i in range(block.size):
                    exact[i] = exact_of(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)
                others |= _flag_each(exact[: block.size], results, thresholds, block)
        return others

    return loop


@scalar
def _is_middling(x):
    """Return True if a number is far from both ends of the range of float32."""
    return (abs(x) > SMALL) & (abs(x) < INFINITY)


@scalar
def _single_sum(x, y, z, result):
    """Return the error of a sum, which is always valid for finite sums, because sums of tiny numbers are exact."""
    return two_sum(x, y)[1], abs(result) < INFINITY


@scalar
def _single_difference(x, y, z, result):
    return two_sum(x, np.float32(-y))[1], abs(result) < INFINITY


@scalar
def _single_product(x, y, z, result):
    of_zero = ((x == 0) | (y == 0)) & (result == 0)
    return fma(x, y, np.float32(-result)), _is_middling(result) | of_zero


@scalar
def _single_quotient(x, y, z, result):
    of_zero = (x == 0) & (result == 0) & (abs(y) < INFINITY)
    return fma(np.float32(-result), y, x), (_is_middling(x) & _is_middling(result)) | of_zero


@scalar
def _single_reciprocal(x, y, z, result):
    return fma(np.float32(-result), x, np.float32(1.0)), _is_middling(result)


@scalar
def _single_root(x, y, z, result):
    return fma(np.float32(-result), result, x), (_is_middling(x) & (x > 0)) | (x == 0)


@scalar
def _single_fma(x, y, z, result):
    """Return the error of a fused multiply-add; float64 represents the product, and two float64 the sum."""
    s, e = two_sum(np.float64(x) * np.float64(y), np.float64(z))
    inexact = np.uint32(np.float64(result) != s) | np.uint32(e != 0)
    return inexact, _is_middling(result) | ((inexact == 0) & (result == 0))


@scalar
def _may_and_must(magnitude, negative, thresholds):
    """Return if an exact result (surely overflows, may overflow, is surely normal, may be normal)."""
    must = thresholds.must_overflow_below if negative else thresholds.must_overflow
    may = thresholds.may_overflow_below if negative else thresholds.may_overflow
    must_be_normal = thresholds.must_be_normal_below if negative else thresholds.must_be_normal
    may_be_normal = thresholds.may_be_normal_below if negative else thresholds.may_be_normal
    return magnitude >= must, magnitude >= may, magnitude >= must_be_normal, magnitude >= may_be_normal


@kernel
def flag_by_draws(exact, out, thresholds, flags):
    """Flag results if `may` and `must` differ because random bits decide; return (doubts, others), nonzero if there are
    any.

    Doubts are results between `may` and `must`: they are flagged as if they neither overflowed nor were tiny. Others
    are results that are left over.
    """
    limits = unpack_thresholds(thresholds)
    doubts, others = np.int64(0), np.int64(0)
    for i in range(out.size):
        x, result = np.float64(exact[i]), np.float64(out[i])
        magnitude = abs(x)
        over, may_be_over, normal, may_be_normal = _may_and_must(magnitude, x < 0.0, limits)
        inexact = np.int64(x != result)
        tiny = inexact & np.int64(not may_be_normal)
        doubts |= np.int64(over != may_be_over) | np.int64(normal != may_be_normal)
        others |= np.int64(not magnitude < np.inf) | np.int64(result != result)
        flags[i] = np.uint8(inexact * INEXACT + tiny * UNDERFLOW + np.int64(over) * OVERFLOW)
    return doubts, others


def double_flag_loop(wide, error_of):
    """Return the loop for flags of FP64 results, rounded to nearest even; it returns nonzero if some are infinite or
    NaN.

    These results have no flags yet, except for overflow. The rounding error, `error_of`, shows inexact results if it is
    valid and the result is far from the ends of the range. Otherwise the pair that `wide` returns shows them.
    """

    @kernel
    def loop(a, b, c, sign, out, flags):
        a_repeated, b_repeated, c_repeated = repeat_scalar(a), repeat_scalar(b), repeat_scalar(c)
        others = np.int64(0)
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, after, block = operand_slice(c, c_repeated, start, stop), out[start:stop], flags[start:stop]
            far = np.int64(0)
            for i in range(block.size):
                u, v, w = np.float64(x[i]), np.float64(y[i]), np.float64(z[i])
                left = error_of(u, v, w, after[i])
                block[i] = np.uint8(left != 0.0)
                far |= np.int64(_is_far(u, v, w, after[i], left))
            if far != 0:
                for i in range(block.size):
                    u, v, w = np.float64(x[i]), np.float64(y[i]), np.float64(z[i])
                    if _is_far(u, v, w, after[i], error_of(u, v, w, after[i])):
                        high, low, exponent = wide(u, v, w, sign)
                        block[i] = _flags_of_pair(high, low, exponent, after[i])
                        others |= np.int64(not abs(after[i]) < np.inf)
        return others

    return loop


@scalar
def _is_far(x, y, z, result, left):
    """Return True if an operand, the result or its error may be where errors leave the range of float64."""
    magnitude = abs(result)
    inside = (magnitude < 2.0**1000) & ((magnitude > 2.0**-900) | (magnitude == 0.0)) & (left == left)
    return (not inside) | is_extreme(x) | is_extreme(y) | is_extreme(z)


@out_of_line
def _flags_of_pair(high, low, exponent, result):
    """Return the flags for (high + low) * 2^exponent rounded to `result` in FP64; high is the rounding of the sum."""
    if not abs(high) < np.inf:
        return np.uint8(0)
    if abs(result) == np.inf:
        return np.uint8(OVERFLOW + INEXACT)
    units = scale_by_power(high, exponent + 1074)  # in units of the smallest number, if these fit into float64
    cut = abs(result) < 2.0**-1021 and units != floor(units)
    if not (low != 0.0 or cut):
        return np.uint8(0)
    tiny = scale_by_power(abs(high), exponent + 1000) < 2.0**-22
    return np.uint8(INEXACT + UNDERFLOW if tiny else INEXACT)


@scalar
def _error_is_unknown(x, y, z, result):
    return np.nan


@scalar
def _error_of_sum(x, y, z, result):
    return two_sum(x, y)[1]


@scalar
def _error_of_difference(x, y, z, result):
    return two_sum(x, -y)[1]


@scalar
def _error_of_product(x, y, z, result):
    return fma(x, y, -result)


@scalar
def _error_of_quotient(x, y, z, result):
    return fma(-result, y, x)


@scalar
def _error_of_reciprocal(x, y, z, result):
    return fma(-result, x, 1.0)


@scalar
def _error_of_root(x, y, z, result):
    return fma(-result, result, x)


@scalar
def _error_of_fma(x, y, z, result):
    """Return 0 if result is x * y + z exactly: result - s is then the sum of both errors, a float64 number."""
    high, low = two_product(x, y)
    s, e = two_sum(high, z)
    together, lost = two_sum(e, low)
    return lost if together == result - s else 1.0


_ERRORS = {
    "add": _error_of_sum,
    "subtract": _error_of_difference,
    "multiply": _error_of_product,
    "divide": _error_of_quotient,
    "fma": _error_of_fma,
    "sqrt": _error_of_root,
    "reciprocal": _error_of_reciprocal,
    "power": _error_is_unknown,
}

#: name -> flags of results in FP64; (a, b, c, sign, out, flags). Exact results of other operations have fewer bits than
#: float64, so an odd last bit after round-to-odd shows that a result is inexact.
double_flags = {name: double_flag_loop(OPERATIONS[name][1], rest) for name, rest in _ERRORS.items()}

#: (x, out, numbers, kind, thresholds, flags) -> others: flags of roundings by `round_each`, and to FP16 by the
#: hardware.
rounded_flags, halved_flags = rounding_flag_loop(round_each), rounding_flag_loop(_convert_each)

#: name -> results of float32 operands and their flags, with these two roundings: (a, b, c, sign, out, numbers, kind,
#: thresholds, flags) -> others.
single_flags = {name: single_flag_loop(function, round_each) for name, function in SINGLE.items()}
converted_flags = {name: single_flag_loop(function, _convert_each) for name, function in SINGLE.items()}

_SINGLE_ERRORS = {
    "add": _single_sum,
    "subtract": _single_difference,
    "multiply": _single_product,
    "divide": _single_quotient,
    "fma": _single_fma,
    "sqrt": _single_root,
    "reciprocal": _single_reciprocal,
}

#: name -> results in FP32 of float32 operands, and their flags: (a, b, c, sign, out, thresholds, flags) -> others.
native_flags = {
    name: native_flag_loop(NATIVE[name], rest, OPERATIONS[name][0]) for name, rest in _SINGLE_ERRORS.items()
}
