"""What arrays hold: what roundings did, in the layout of `kernels/events.py`, and how many bits numbers have."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.events import EXPONENTS, INFINITE, NAN, OVERFLOW, SUBNORMAL, TOTAL, UNDERFLOW, ZERO
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import exponent_field, signed_field
from simfloat.kernels.unrounded import split

#: From so many results on they take LANES counters of each exponent in turn: neighbours of one exponent then need not
#: wait for each other's counter.
MANY = 4096
LANES = 8


@kernel
def count_results(out, grid_numbers, events):
    """Add to the vector `events` what rounded results show by themselves, of fewer than 2^32.

    Returns what `count_ends` has to see beside the exact results, 0 if nothing, as in most arrays: twice how many are
    zero or subnormal numbers of their array's type, and one more if some are as large as the format's largest number.
    """
    grid = unpack_grid(grid_numbers)
    one = out.dtype.type(1)
    bias, last = exponent_field(one), exponent_field(one / out.dtype.type(0))
    counts = np.zeros(last + 1, np.int64)
    if out.size < MANY:
        _count_fields(out, 1, counts)
    else:
        _count_fields(out, LANES, counts)
    _add_field_count(counts, out.size, bias, grid, events)
    large = counts[last] > 0 or counts[exponent_field(out.dtype.type(grid.max))] > 0
    large |= counts[exponent_field(out.dtype.type(grid.overflow_negative))] > 0
    large |= grid.below == 0.0 and grid.lowest == 0.0 and counts[0] > 0
    return 2 * counts[0] + np.int64(large)


@scalar
def _add_field_count(counts, total, bias, grid, events):
    """Add so many results to the events, of which so many have which exponent field."""
    last = counts.size - 1
    events[TOTAL] += total
    least_normal = np.int64(0) if grid.uniform != 0.0 else np.int64(grid.emin) + bias
    for field in range(1, last):
        events[EXPONENTS - bias + field] += counts[field]
        events[SUBNORMAL] += counts[field] if field < least_normal else 0


@scalar
def add_counts(counters, total, grid, events):
    """Add so many float32 results to the events, whose fields LANES counters each have counted by `add_fields`."""
    counts = np.zeros(256, np.int64)
    _add_counters(counters, counts)
    _add_field_count(counts, total, np.int64(127), grid, events)


@kernel
def count_ends(exact, out, grid_numbers, events, shown):
    """Add what the rounding of the exact results to `out` did at both ends of the format's range.

    Returns how many finite exact results beyond the largest number did not become infinite: whether they overflowed
    or were rounded back to it, only their rounding without a largest number can tell.
    """
    grid, small = unpack_grid(grid_numbers), shown // 2
    if small > 0 and small > _count_zeros(exact, out, grid, events):
        count_small(out, grid, events)
    return _count_beyond(exact, out, grid, events) if shown % 2 == 1 else np.int64(0)


@scalar
def _count_zeros(exact, out, grid, events):
    """Count results that are zero, and those that were not before; returns how many are."""
    zeros, underflow = np.int64(0), np.int64(0)
    for i in range(out.size):
        zero = out[i] == 0.0
        zeros += zero
        underflow += zero & (exact[i] != 0.0)
    events[ZERO] += zeros
    events[UNDERFLOW] += np.int64(0) if grid.uniform != 0.0 else underflow
    return zeros


@scalar
def _count_beyond(exact, out, grid, events):
    """Count results that are infinite, or became so, or are NaN; returns how many are none, though too large before."""
    overflow, undecided, infinite, nan = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for i in range(out.size):
        before, after = abs(np.float64(exact[i])), np.float64(abs(out[i]))
        overflow += (before < np.inf) & (after == np.inf)
        undecided += (before < np.inf) & (before > grid.max or exact[i] < grid.lowest) & (after != np.inf)
        infinite += after == np.inf
        nan += after != after
    events[OVERFLOW] += overflow
    events[INFINITE] += infinite
    events[NAN] += nan
    return undecided


@scalar
def _count_fields(out, lanes, counts):
    """Count results by the exponent field of their images."""
    counters = np.zeros((2 * counts.size, lanes), np.uint32)
    add_fields(out, lanes, counters)
    _add_counters(counters, counts)


@scalar
def add_fields(out, lanes, counters):
    """Count results by the sign and the exponent field of their images, in so many counters of each in turn."""
    whole = out.size - out.size % lanes
    for i in range(0, whole, lanes):
        # LANES counters of each exponent, in turn: results near one another have one exponent mostly, and to add to one
        # counter again is to wait for the store before.
        for lane in range(lanes):
            counters[np.uint64(signed_field(out[i + lane])), np.uint64(lane)] += np.uint32(1)
    for i in range(whole, out.size):
        counters[np.uint64(signed_field(out[i])), np.uint64(0)] += np.uint32(1)


@scalar
def _add_counters(counters, counts):
    for field in range(counts.size):
        for lane in range(counters.shape[1]):
            counts[field] += np.int64(counters[field, lane]) + np.int64(counters[field + counts.size, lane])


@scalar
def count_small(out, grid, events):
    """Count the exponents of results that are subnormal numbers of their array's type."""
    min_normal = 0.0 if grid.uniform != 0.0 else grid.min_normal
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
        x, y, after = a[i * a_step], b[i * b_step] * b.dtype.type(sign), out[i]
        lost = ((y != 0.0) & (after == x)) | (either & (x != 0.0) & (after == y))
        count += lost & (abs(after) < np.inf)
    return count


#: What is found of no numbers: below the lowest exponent field and above the highest.
NO_FIRST, NO_LAST = 4095, -1


@kernel
def bit_facts(x):
    """(precision, low, least, high, finite) of a vector: the fields of accumulate.Bounds, of its finite nonzero
    elements as float64; those of the number one if there are none.
    """
    fractions, first, last, finite = np.uint64(0), np.int64(NO_FIRST), np.int64(NO_LAST), True
    for i in range(x.size):
        field, fraction = exponent_and_fraction(x[i])
        counts = (field < 2047) & (x[i] != 0.0)
        finite &= field < 2047
        # The or of all fractions shows the last bit that any of them has: one pass, without a branch, tells how many
        # bits the numbers need. Facts of an operand take half a microsecond in a small product.
        fractions |= fraction if counts else np.uint64(0)
        first = min(first, field if counts else np.int64(NO_FIRST))
        last = max(last, field if counts else np.int64(NO_LAST))
    return _combine_facts(fractions, first, last, finite)


@scalar
def exponent_and_fraction(x):
    """The biased exponent and the fraction in a number's image as float64."""
    image = np.float64(x).view(np.uint64)
    return np.int64((image >> np.uint64(52)) & np.uint64(0x7FF)), image & np.uint64(0xFFFFFFFFFFFFF)


def combine_facts(fractions, first, last, finite):
    """The facts of numbers whose fractions use these bits together, and whose fields lie from `first` to `last`."""
    # Without compilation, when the loops are debugged, these are NumPy's numbers so far.
    low, high, finite = int(first) - 1023, int(last) - 1022, bool(finite)
    if last < 0:
        return 1, 0, 0, 1, finite
    if first == 0:
        # A subnormal float64 is a multiple of the smallest one.
        return 53, -1074, -1074, max(high, -1021), finite
    # Below the hidden bit, as many bits as the fractions use together.
    used = 52 if fractions != np.uint64(0) else 0
    while used > 0 and fractions & np.uint64(1) == np.uint64(0):
        fractions >>= np.uint64(1)
        used -= 1
    return used + 1, low - used, low, high, finite


_combine_facts = scalar(combine_facts)
