"""Instructions of programs in float32 lanes: the float32 results, a check that each is right, and event counts.

Loops process `count` numbers of registers u and v, or of u and a scalar y, and write to another register. A result is
in doubt if it is not known to be the exact result rounded once; a single doubt invalidates all results. If the
registers and the scalar are float32 numbers, the FP32 results are the float32 results. If they have few bits, results
with few bits are the float32 results, rounded once more (`kernels/elementwise/float32.py`). Any other scalar y is split
into a float32 number and a remainder:

* To few bits, x * y is rounded from the bit pattern of the float32 product of x and the nearest float32 number to y.
  Both roundings move a bit pattern by less than two units, so results that close to a tie are in doubt. The same
  applies to sums that are at least as large as y; smaller sums are in doubt. Bit patterns continue to infinity and to
  the subnormal numbers as the numbers do.
* To FP32, the product is p + c: p is the float32 product, and c the remainder, which is computed with one or two
  roundings. If c could move p across the middle between two numbers, which is at least p / 2^25 away, the error of c is
  less than c / 2^21. If the sums with a slightly larger and a slightly smaller c agree, they are therefore the exact
  result rounded once. Error terms of products below SMALL may not be float32 numbers.

A quotient is the product with 1 / y, which float64 computes with an error below these bounds.

Events of an instruction are counted from a block of each register. The operands show if an exact result is zero, so the
exact result need not be computed. Infinite results, NaN and results as large as the largest number of the format are
not counted here.
"""

from __future__ import annotations

import operator

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, root, shift_right
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import two_product, two_sum
from simfloat.kernels.elementwise.float32 import SMALL
from simfloat.kernels.program_table import (
    FILL,
    PRODUCT,
    PRODUCT_WITH_SCALAR,
    QUOTIENT,
    QUOTIENT_BY_SCALAR,
    ROOT,
    SUM,
    SUM_WITH_SCALAR,
)
from simfloat.kernels.rounding.arrays import round_image_to_nearest

F32, F64, U32 = np.float32, np.float64, np.uint32

#: Range of scalars for which float32 represents the parts of the scalar, and of its reciprocal, to 48 bits.
LEAST, MOST = 2.0**-90, 2.0**90

#: Relative change that makes the remainder of a product or a sum larger and smaller.
MARGIN = F32(2.0**-20)

#: Maximum number of units of a bit pattern by which two roundings move a result.
REACH = U32(2)


@scalar
def image(x):
    """Return the bit pattern of a float32 number."""
    return F32(x).view(U32)


@scalar
def union_of_images(registers, u, count):
    """Return the bitwise or of the bit patterns of a register."""
    used = U32(0)
    for i in range(count):
        used = U32(used | image(registers[u, i]))
    return used


def _loops_of_two(function):
    """Return the loops of a function: to FP32 and to few bits, of two registers, then of a register and a scalar."""

    @scalar
    def loop(registers, u, v, to, count):
        for i in range(count):
            registers[to, i] = function(registers[u, i], registers[v, i])

    @scalar
    def loop_rounded(registers, u, v, cut, to, count):
        for i in range(count):
            registers[to, i] = round_image_to_nearest(function(registers[u, i], registers[v, i]), cut)

    @scalar
    def with_scalar(registers, u, y, to, count):
        for i in range(count):
            registers[to, i] = function(registers[u, i], y)

    @scalar
    def rounded_with_scalar(registers, u, y, cut, to, count):
        for i in range(count):
            registers[to, i] = round_image_to_nearest(function(registers[u, i], y), cut)

    return loop, loop_rounded, with_scalar, rounded_with_scalar


_sums, _rounded_sums, _sums_with, _rounded_sums_with = _loops_of_two(operator.add)
_products, _rounded_products, _products_with, _rounded_products_with = _loops_of_two(operator.mul)
_quotients, _rounded_quotients, _quotients_by, _rounded_quotients_by = _loops_of_two(operator.truediv)


@scalar
def _roots(registers, u, to, count):
    for i in range(count):
        registers[to, i] = root(registers[u, i])


@scalar
def _rounded_roots(registers, u, cut, to, count):
    for i in range(count):
        registers[to, i] = round_image_to_nearest(root(registers[u, i]), cut)


@scalar
def compute_single(what, registers, u, v, y, to, count):
    """Compute FP32 results of registers u and v or of u and the scalar y; return True if none is in doubt."""
    near = F32(y)
    is_single = np.float64(near) == y
    if what == SUM:
        _sums(registers, u, v, to, count)
    elif what == PRODUCT:
        _products(registers, u, v, to, count)
    elif what == QUOTIENT:
        _quotients(registers, u, v, to, count)
    elif what == ROOT:
        _roots(registers, u, to, count)
    elif is_single and what == SUM_WITH_SCALAR:
        _sums_with(registers, u, near, to, count)
    elif is_single and what == PRODUCT_WITH_SCALAR:
        _products_with(registers, u, near, to, count)
    elif is_single and what == QUOTIENT_BY_SCALAR:
        _quotients_by(registers, u, near, to, count)
    elif not LEAST <= abs(y) <= MOST:
        return False
    elif what == SUM_WITH_SCALAR:
        return _sums_with_parts(registers, u, y, to, count)
    else:
        return _products_with_parts(registers, u, y if what == PRODUCT_WITH_SCALAR else 1.0 / y, to, count)
    return True


@scalar
def compute_few_bits(what, registers, u, v, y, used, cut, to, count):
    """Compute results of few bits; return True if none is in doubt.

    `cut` is the truncation of float32 to these bits, and `used` the bitwise or of the registers' bit patterns.
    """
    near, short = F32(y), U32(used & cut.dropped) == U32(0)
    is_short = short and np.float64(near) == y and U32(image(near) & cut.dropped) == U32(0)
    if short and what == SUM:
        _rounded_sums(registers, u, v, cut, to, count)
    elif short and what == PRODUCT:
        _rounded_products(registers, u, v, cut, to, count)
    elif short and what == QUOTIENT:
        _rounded_quotients(registers, u, v, cut, to, count)
    elif short and what == ROOT:
        _rounded_roots(registers, u, cut, to, count)
    elif is_short and what == SUM_WITH_SCALAR:
        _rounded_sums_with(registers, u, near, cut, to, count)
    elif is_short and what == PRODUCT_WITH_SCALAR:
        _rounded_products_with(registers, u, near, cut, to, count)
    elif is_short and what == QUOTIENT_BY_SCALAR:
        _rounded_quotients_by(registers, u, near, cut, to, count)
    elif not LEAST <= abs(y) <= MOST:
        return False
    elif what == SUM_WITH_SCALAR:
        return _sums_near(registers, u, near, cut, to, count)
    elif what == PRODUCT_WITH_SCALAR:
        return _products_near(registers, u, near, cut, to, count)
    elif what == QUOTIENT_BY_SCALAR:
        return _products_near(registers, u, F32(1.0 / y), cut, to, count)
    else:
        return False
    return True


@scalar
def _is_beside_tie(x, cut):
    """Return True if a tie is within REACH of the bit pattern."""
    half = U32(shift_right(cut.dropped, U32(1)) + U32(1))
    rest = U32(image(x) & cut.dropped)
    # This tests |rest - half| <= REACH by one comparison of unsigned numbers: below -REACH the sum wraps around to a
    # large one.
    return U32(U32(rest - half) + REACH) <= U32(REACH + REACH)


@scalar
def _products_near(registers, u, y, cut, to, count):
    doubts = U32(0)
    for i in range(count):
        p = F32(registers[u, i] * y)
        registers[to, i] = round_image_to_nearest(p, cut)
        doubts = U32(doubts | U32(_is_beside_tie(p, cut)))
    return doubts == U32(0)


@scalar
def _sums_near(registers, u, y, cut, to, count):
    doubts = U32(0)
    for i in range(count):
        s = F32(registers[u, i] + y)
        registers[to, i] = round_image_to_nearest(s, cut)
        doubts = U32(doubts | U32(_is_beside_tie(s, cut) | (abs(s) < abs(y))))
    return doubts == U32(0)


@scalar
def _products_with_parts(registers, u, y, to, count):
    high = F32(y)
    low, doubts = F32(y - np.float64(high)), U32(0)
    for i in range(count):
        p, e = two_product(registers[u, i], high)
        above, in_doubt = _nearest_with_rest(p, fma(registers[u, i], low, e))
        registers[to, i] = above if abs(registers[u, i]) > F32(0.0) else p
        doubts = U32(doubts | U32(in_doubt | ((abs(p) < SMALL) & (registers[u, i] != F32(0.0)))))
    return doubts == U32(0)


@scalar
def _sums_with_parts(registers, u, y, to, count):
    high = F32(y)
    low, doubts = F32(y - np.float64(high)), U32(0)
    for i in range(count):
        s, e = two_sum(registers[u, i], high)
        registers[to, i], in_doubt = _nearest_with_rest(s, F32(e + low))
        doubts = U32(doubts | U32(in_doubt | (abs(s) < abs(high))))
    return doubts == U32(0)


@scalar
def _nearest_with_rest(p, c):
    """Return p + c, where c is nearly the remainder of p, and True if that is in doubt; infinities and NaN are."""
    # The relative error of c is at most 2^-21. If the sums of p with a slightly larger and a slightly smaller c are
    # equal, the error did not matter. NaN differs from itself and is therefore in doubt.
    above, below = F32(p + fma(c, MARGIN, c)), F32(p + fma(c, -MARGIN, c))
    return above, above != below


ZERO, LEAST_NORMAL, INFINITY = F32(0.0), F32(2.0**-126), F32(np.inf)


@scalar
def count_ends(registers, u, largest, count):
    """Return the number of zeros, the number of float32 subnormal results, and True if any result is too large."""
    zeros, small, large, most = U32(0), U32(0), U32(0), F32(largest)
    for i in range(count):
        x = abs(registers[u, i])
        zeros = U32(zeros + U32(x == ZERO))
        small = U32(small + U32((x > ZERO) & (x < LEAST_NORMAL)))
        large = U32(large | U32((x >= most) | (x != x)))
    return np.int64(zeros), np.int64(small), large != U32(0)


def _count_loop_of_one(condition):
    """Return a loop that counts the numbers of a register for which a condition is true."""

    @scalar
    def loop(registers, u, count):
        matches = U32(0)
        for i in range(count):
            matches = U32(matches + U32(condition(registers[u, i])))
        return np.int64(matches)

    return loop


def _count_loop_of_two(condition):
    @scalar
    def loop(registers, u, v, count):
        matches = U32(0)
        for i in range(count):
            matches = U32(matches + U32(condition(registers[u, i], registers[v, i])))
        return np.int64(matches)

    return loop


_zeros = _count_loop_of_one(scalar(lambda x: x == ZERO))
_zero_sums = _count_loop_of_two(scalar(lambda x, y: x == -y))
_zero_products = _count_loop_of_two(scalar(lambda x, y: (x == ZERO) | (y == ZERO)))
_zero_quotients = _count_loop_of_two(scalar(lambda x, y: (x == ZERO) | (abs(y) == INFINITY)))


@scalar
def _numbers_equal_to(registers, u, y, count):
    matches = U32(0)
    for i in range(count):
        matches = U32(matches + U32(F64(registers[u, i]) == y))
    return np.int64(matches)


@scalar
def exact_zeros(what, registers, u, v, y, count):
    """Return the number of results of registers u and v, or u and scalar y, that are exactly zero; none may be NaN."""
    if what == SUM:
        return _zero_sums(registers, u, v, count)
    if what == PRODUCT:
        return _zero_products(registers, u, v, count)
    if what == QUOTIENT:
        return _zero_quotients(registers, u, v, count)
    if what == SUM_WITH_SCALAR:
        return _numbers_equal_to(registers, u, -y, count)
    if (what == PRODUCT_WITH_SCALAR or what == FILL) and y == 0.0:
        return np.int64(count)
    if what == PRODUCT_WITH_SCALAR or what == QUOTIENT_BY_SCALAR or what == ROOT:
        return _zeros(registers, u, count)
    return np.int64(0)


@scalar
def lost_addends(registers, u, v, to, either, count):
    """Return the number of finite sums that lost the nonzero addend v, or with `either` any nonzero addend."""
    losses, first = U32(0), either != 0
    for i in range(count):
        x, y, after = registers[u, i], registers[v, i], registers[to, i]
        lost = ((y != ZERO) & (after == x)) | (first & (x != ZERO) & (after == y))
        losses = U32(losses + U32(lost & (abs(after) < INFINITY)))
    return np.int64(losses)


@scalar
def lost_scalar_addends(registers, u, y, to, count):
    """Return the number of finite sums of a register and a scalar that lost a nonzero addend."""
    losses, is_lost = U32(0), y != 0.0
    for i in range(count):
        x, after = registers[u, i], registers[to, i]
        lost = (is_lost & (after == x)) | ((x != ZERO) & (F64(after) == y))
        losses = U32(losses + U32(lost & (abs(after) < INFINITY)))
    return np.int64(losses)
