"""What the results of an instruction of a program show, counted in float32's lanes: a block of a register each.

That an exact result is zero shows in the operands, so it need not be made. Results that are infinite or NaN, or as
large as the format's largest number, are not counted here.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import scalar
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

F32, F64, U32 = np.float32, np.float64, np.uint32

ZERO, LEAST_NORMAL, INFINITY = F32(0.0), F32(2.0**-126), F32(np.inf)


@scalar
def count_ends(registers, u, largest, count):
    """How many results are zero, how many others are subnormal numbers of float32, and whether any is too large."""
    zeros, small, large, most = U32(0), U32(0), U32(0), F32(largest)
    for i in range(count):
        x = abs(registers[u, i])
        zeros = U32(zeros + U32(x == ZERO))
        small = U32(small + U32((x > ZERO) & (x < LEAST_NORMAL)))
        large = U32(large | U32((x >= most) | (x != x)))
    return np.int64(zeros), np.int64(small), large != U32(0)


def _count_loop_of_one(condition):
    """How many numbers of a register meet a condition."""

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
    """How many exact results of registers u and v, or of u and the scalar y, are zero, where none is NaN."""
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
    """How many finite sums lost the addend v, which is not zero, or with `either` one of them."""
    losses, first = U32(0), either != 0
    for i in range(count):
        x, y, after = registers[u, i], registers[v, i], registers[to, i]
        lost = ((y != ZERO) & (after == x)) | (first & (x != ZERO) & (after == y))
        losses = U32(losses + U32(lost & (abs(after) < INFINITY)))
    return np.int64(losses)


@scalar
def lost_scalar_addends(registers, u, y, to, count):
    """How many finite sums of a register and a scalar lost one of the two, which is not zero."""
    losses, is_lost = U32(0), y != 0.0
    for i in range(count):
        x, after = registers[u, i], registers[to, i]
        lost = (is_lost & (after == x)) | ((x != ZERO) & (F64(after) == y))
        losses = U32(losses + U32(lost & (abs(after) < INFINITY)))
    return np.int64(losses)
