"""Counting what roundings did, in the layout of `kernels/events.py`."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.events import EXPONENTS, NAN, OVERFLOW, SUBNORMAL, TOTAL, UNDERFLOW, ZERO
from simfloat.kernels.exact import split
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import exponent_field

#: From so many results on they take LANES counters of each exponent in turn: neighbours of one exponent then need not
#: wait for each other's counter.
MANY = 4096
LANES = 8


@kernel
def count_events(exact, out, numbers, events):
    """Add to the vector `events` what the rounding of the exact results to `out` did.

    Returns how many finite exact results beyond the largest number did not become infinite: whether they overflowed
    or were rounded back to it, only their rounding without a largest number can tell.
    """
    grid = unpack(numbers)
    zeros, underflow, beyond = np.int64(0), np.int64(0), np.int64(0)
    for i in range(out.size):
        zero = out[i] == 0.0
        zeros += zero
        underflow += zero & (exact[i] != 0.0)
        beyond += abs(np.float64(exact[i])) > grid.max
    events[TOTAL] += out.size
    events[ZERO] += zeros
    events[UNDERFLOW] += underflow
    special = _count_exponents(out, zeros, grid, events)
    if beyond == 0 and special == 0:
        return beyond
    overflow, undecided = np.int64(0), np.int64(0)
    for i in range(out.size):
        before, after = np.float64(exact[i]), out[i]
        finite, infinite = abs(before) < np.inf, abs(after) == np.inf
        overflow += finite & infinite
        undecided += finite & (abs(before) > grid.max) & (not infinite)
        events[NAN] += after != after
    events[OVERFLOW] += overflow
    return undecided


@scalar
def _count_exponents(out, zeros, grid, events):
    """Count the exponents of results, of which `zeros` are zero, and the subnormal ones; returns how many have none,
    being infinite or NaN.
    """
    one = out.dtype.type(1)
    bias, last = exponent_field(one), exponent_field(one / out.dtype.type(0))
    counts = np.zeros(last + 1, np.int64)
    if out.size < MANY:
        _count_fields(out, 1, counts)
    else:
        _count_fields(out, LANES, counts)
    events[EXPONENTS - bias + 1 : EXPONENTS - bias + last] += counts[1:last]
    events[SUBNORMAL] += counts[1 : min(max(np.int64(grid.emin) + bias, 1), last)].sum()
    if counts[0] > zeros:
        _count_small(out, grid.min_normal, events)
    return counts[last]


@scalar
def _count_fields(out, lanes, counts):
    """Count results by the exponent field of their images."""
    counters = np.zeros((counts.size, lanes), np.int64)
    for i in range(out.size):
        counters[np.uint64(exponent_field(out[i])), np.uint64(i & (lanes - 1))] += 1
    for field in range(counts.size):
        for lane in range(lanes):
            counts[field] += counters[field, lane]


@scalar
def _count_small(out, min_normal, events):
    """Count the exponents of results that are subnormal numbers of their array's type."""
    for i in range(out.size):
        if out[i] != 0.0 and exponent_field(out[i]) == 0:
            _, exponent = split(np.float64(out[i]))
            events[EXPONENTS + exponent] += 1
            events[SUBNORMAL] += abs(out[i]) < min_normal


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
