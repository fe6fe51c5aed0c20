"""Counting what roundings did, in the layout of `kernels/events.py`."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.events import EVENTS, EXPONENTS, NAN, OVERFLOW, SUBNORMAL, TOTAL, UNDERFLOW, ZERO
from simfloat.kernels.exact import split
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel

#: From so many results on they are counted in tables in turn: neighbours of one exponent then need not wait for each
#: other's entry.
MANY = 4096
TABLES = 4


@kernel
def count_events(exact, out, numbers, events):
    """Add to the vector `events` what the rounding of the exact results to `out` did.

    Returns how many finite exact results beyond the largest number did not become infinite: whether they overflowed
    or were rounded back to it, only their rounding without a largest number can tell.
    """
    grid = unpack(numbers)
    underflow, subnormal, overflow, undecided = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for i in range(out.size):
        before, after = np.float64(exact[i]), np.float64(out[i])
        finite, infinite = abs(before) < np.inf, abs(after) == np.inf
        underflow += (after == 0.0) & (before != 0.0)
        subnormal += (abs(after) < grid.min_normal) & (after != 0.0)
        overflow += finite & infinite
        undecided += finite & (abs(before) > grid.max) & (not infinite)
    events[UNDERFLOW] += underflow
    events[SUBNORMAL] += subnormal
    events[OVERFLOW] += overflow
    if out.size < MANY:
        _count_exponents(out, events.reshape((1, EVENTS)))
    else:
        tables = np.zeros((TABLES, EVENTS), np.int64)
        _count_exponents(out, tables)
        for j in range(EVENTS):
            events[j] += tables[0, j] + tables[1, j] + tables[2, j] + tables[3, j]
    return undecided


@kernel
def _count_exponents(out, tables):
    """Count results, their exponents, zeros and NaN in one of the tables each."""
    tables[0, TOTAL] += out.size
    mask = np.int64(tables.shape[0] - 1)
    for i in range(out.size):
        value = np.float64(out[i])
        field = np.int64((value.view(np.uint64) >> np.uint64(52)) & np.uint64(0x7FF))
        place = ZERO if value == 0.0 else NAN if value != value else EXPONENTS - 1023 + field
        if field != 0 and field != 0x7FF or value == 0.0 or value != value:
            tables[i & mask, place] += 1
        elif field == 0:
            significand, exponent = split(value)
            tables[i & mask, EXPONENTS + exponent] += 1


@kernel
def count_unchanged(a, b, out, sign, either):
    """How many finite sums of a and sign * b lost an addend that is not zero: b, or with `either` one of them.

    A vector of length 1 is a scalar.
    """
    a_step, b_step = np.int64(a.size == out.size), np.int64(b.size == out.size)
    count = np.int64(0)
    for i in range(out.size):
        x, y, after = np.float64(a[i * a_step]), sign * np.float64(b[i * b_step]), np.float64(out[i])
        lost = ((y != 0.0) & (after == x)) | (either & (x != 0.0) & (after == y))
        count += lost & (abs(after) < np.inf)
    return count
