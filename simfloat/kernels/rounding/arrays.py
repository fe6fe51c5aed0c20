"""Loops that round arrays, and loops that examine the contents of arrays.

Every rounding loop takes (x, words, out, numbers), so that a plan can store any of them. Only random modes read
`words`, which are words or bytes (see `random.as_word`).

The other loops count the effects of roundings, in the layout of `kernels/rounding/events.py`, and find the precision of
values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from simfloat.kernels.compile.intrinsics import PIECE, count_bytes, exponent_field, shift_left, shift_right
from simfloat.kernels.compile.jit import kernel, out_of_line, overload, scalar
from simfloat.kernels.elementwise.exact import split
from simfloat.kernels.elementwise.half import round_to_half
from simfloat.kernels.rounding.events import (
    EXPONENTS,
    INFINITE,
    NAN,
    OVERFLOW,
    PRECISE,
    SUBNORMAL,
    TOTAL,
    UNCHANGED,
    UNDERFLOW,
    WIDE,
    ZERO,
)
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import (
    nearest,
    one_nan,
    round_by_threshold,
    round_in_direction,
    round_to_any_grid,
    to_odd,
)
from simfloat.kernels.rounding.random import as_word

U8, U32 = np.uint8, np.uint32


@kernel
def copy(x, words, out, grid_numbers):
    """Copy every element, for formats that contain all numbers of the carrier."""
    for i in range(x.size):
        out[i] = one_nan(x[i])


def round_each(round_one):
    """Return a loop that rounds a vector in a deterministic mode to a plain grid, in the type of the grid's numbers."""

    @out_of_line
    def round_vector(x, out, grid_numbers):
        grid = unpack_grid(grid_numbers)
        for i in range(x.size):
            out[i] = one_nan(round_one(type(grid.max)(x[i]), grid))

    return round_vector


def rounding(round_vector):
    """Return the kernel of a mode without random bits."""

    @kernel
    def loop(x, words, out, grid_numbers):
        round_vector(x, out, grid_numbers)

    return loop


round_each_nearest, round_each_directed, round_each_to_odd = (
    round_each(nearest),
    round_each(round_in_direction),
    round_each(to_odd),
)


@kernel
def round_half(x, words, out, grid_numbers):
    """Round to nearest even to FP16 by the hardware instruction (`processor.CONVERTS_FP16`), at the speed of a copy."""
    for i in range(x.size):
        out[i] = one_nan(round_to_half(x[i]))


class ImageCut(NamedTuple):
    """The constants for rounding bit patterns to a grid that is float32 with a shorter fraction, in one mode."""

    drop: int
    dropped: int
    positive: int  # added to the bit pattern of a positive number; the sum carries if the mode rounds up
    negative: int
    even: int  # 1 if the last bit that is kept is also added, so that ties go to even
    odd: int  # the last bit that is kept, if it is set whenever a dropped bit is set
    beyond: int  # the bit pattern of results beyond the largest number


@scalar
def unpack_image_cut(grid):
    """Return the constants of a grid in a deterministic mode."""
    drop = U32(23.0 - grid.mantissa_bits)
    last = shift_left(U32(1), drop)
    even, to_odd = grid.nearest_even != 0.0, grid.away_odd != 0.0
    # A carry past the largest number gives the bit pattern of infinity. `beyond` caps bit patterns at infinity, or at
    # the largest number in modes that saturate. This is one minimum instead of a comparison for every mode.
    beyond = np.float32(grid.infinite if grid.max < np.inf else np.inf)
    return ImageCut(
        drop,
        U32(last - U32(1)),
        _carrying(grid.away_positive, last, even, to_odd),
        _carrying(grid.away_negative, last, even, to_odd),
        U32(grid.nearest_even),
        last if to_odd else U32(0),
        beyond.view(U32),
    )


@scalar
def _carrying(part, last, even, to_odd):
    """Return the addend that makes `part` of the last bit, or more, carry into that bit.

    If ties go to even, the last bit itself is also added, and a tie carries if it is set.
    """
    half = shift_right(last, U32(1))
    least = U32(half + U32(1)) if even or 0.5 < part < 1.0 else half if part == 0.5 else U32(1)
    return U32(0) if to_odd or (part > 1.0 and not even) else U32(last - least)


@scalar
def round_image_in_any_mode(x, cut):
    """Round float32 by integer operations on its bit pattern, for formats that only shorten the fraction.

    The addend carries into the kept bits exactly if the mode rounds up. For nearest even, it is just under half of the
    dropped part, plus the last kept bit. A carry out of the fraction moves to the exponent, and from the largest number
    to infinity. This takes half as many operations as the rounding of floats, which makes it as fast as a copy.
    """
    image = np.float32(x).view(U32)
    sign = U32(image & U32(0x80000000))
    # Every step is cast: otherwise Numba would widen it to 64 bits, and LLVM would use half of the lanes.
    carrying = U32((cut.negative if sign != U32(0) else cut.positive) + U32(shift_right(image, cut.drop) & cut.even))
    moved = U32(U32(image + carrying) | (cut.odd if U32(image & cut.dropped) != U32(0) else U32(0)))
    magnitude = U32(moved & U32(U32(0x7FFFFFFF) & U32(~cut.dropped)))
    rounded = U32(min(magnitude, cut.beyond) | sign).view(np.float32)
    return rounded if x == x else np.float32(np.nan)


@scalar
def round_image_to_nearest(x, cut):
    """Round float32 by its bit pattern in the modes to nearest, which treat positive and negative numbers alike."""
    image = np.float32(x).view(U32)
    carrying = U32(cut.positive + U32(shift_right(image, cut.drop) & cut.even))
    magnitude = U32(U32(image + carrying) & U32(U32(0x7FFFFFFF) & U32(~cut.dropped)))
    rounded = U32(min(magnitude, cut.beyond) | U32(image & U32(0x80000000))).view(np.float32)
    return rounded if x == x else np.float32(np.nan)


@out_of_line
def round_each_image(x, out, grid_numbers):
    """Round float32 to formats that are float32 with a shorter fraction, in any deterministic mode."""
    cut = unpack_image_cut(unpack_grid(grid_numbers))
    for i in range(x.size):
        out[i] = round_image_in_any_mode(x[i], cut)


round_nearest, round_directed, round_to_odd = (
    rounding(round_each_nearest),
    rounding(round_each_directed),
    rounding(round_each_to_odd),
)
round_image = rounding(round_each_image)


@kernel
def round_stochastic(x, words, out, grid_numbers):
    """Round each element by its random word, for plain grids."""
    grid = unpack_grid(grid_numbers)
    for i in range(x.size):
        out[i] = one_nan(round_by_threshold(np.float64(x[i]), as_word(words[i]), grid))


@kernel
def round_general(x, words, out, grid_numbers):
    """Round in any mode to any grid. For a deterministic mode, `words` has a single element."""
    grid = unpack_grid(grid_numbers)
    step = np.int64(words.size == x.size)
    for i in range(x.size):
        out[i] = one_nan(round_to_any_grid(np.float64(x[i]), as_word(words[i * step]), grid))


#: If there are fewer results, each is added to the events directly: a pass through all exponents would take longer.
FEW = 128

#: For at least this number of float64 results, each exponent has LANES counters that take turns: neighbours with the
#: same exponent need not wait for each other's counter. For fewer results, it would take longer to clear and to add
#: them.
MANY = 4096
LANES = 4

#: The number of float32 results with exponents that are counted together, and the largest number of exponents that are
#: searched, while fewer than half of these results remain, or more. Values of a tensor usually have few exponents. If
#: they have many, another loop is faster.
TOGETHER = 1024
MOST_SEARCHES, SOME_SEARCHES = 48, 8


@kernel
def count_results(out, grid_numbers, events, lost, is_wide, is_precise):
    """Count the events that rounded results show without the exact ones; `out` has fewer than 2^32 elements.

    Adds to the vector `events`, also the number of lost addends. All results are counted as wide or precise if the
    format has the range or the precision of FP32. Returns 0 if `count_ends` has nothing to count, which is the usual
    case. Otherwise the return value is twice the number of results that are zero or subnormal in their array's type,
    plus one if some are as large as the largest number of the format.
    """
    events[UNCHANGED] += lost
    events[WIDE] += out.size if is_wide else 0
    events[PRECISE] += out.size if is_precise else 0
    grid = unpack_grid(grid_numbers)
    one = out.dtype.type(1)
    bias, last = exponent_field(one), exponent_field(one / out.dtype.type(0))
    top, bottom = exponent_field(out.dtype.type(grid.max)), exponent_field(out.dtype.type(grid.overflow_negative))
    if out.size < FEW:
        small, large = _count_few(out, bias, last, top, bottom, grid, events)
    else:
        counts = np.zeros(last + 1, np.int64)
        count_fields(out, counts)
        _add_field_count(counts, out.size, bias, grid, events)
        small, large = counts[0], counts[last] > 0 or counts[top] > 0 or counts[bottom] > 0
    large |= grid.below == 0.0 and grid.lowest == 0.0 and small > 0
    return 2 * small + np.int64(large)


@scalar
def _least_normal(bias, grid):
    """Return the exponent field of the smallest normal number of a format; 0 for fixed point."""
    return np.int64(0) if grid.uniform != 0.0 else np.int64(grid.emin) + bias


@scalar
def _count_few(out, bias, last, top, bottom, grid, events):
    """Add few results to the events; return the number with the exponent field 0, and True if any may be too large."""
    small, subnormal, large, least = np.int64(0), np.int64(0), False, _least_normal(bias, grid)
    for i in range(out.size):
        field = exponent_field(out[i])
        large |= (field == last) | (field == top) | (field == bottom)
        if field == 0:
            small += 1
        elif field < last:
            events[EXPONENTS - bias + field] += 1
            subnormal += np.int64(field < least)
    events[TOTAL] += out.size
    events[SUBNORMAL] += subnormal
    return small, large


@scalar
def _add_field_count(counts, total, bias, grid, events):
    """Add `total` results to the events; `counts[field]` of them have the exponent field `field`."""
    last = counts.size - 1
    events[TOTAL] += total
    for field in range(1, last):
        events[EXPONENTS - bias + field] += counts[field]
    # In the loop above, this sum would be stored for every exponent. For few results, this took most of the time.
    subnormal = np.int64(0)
    for field in range(1, min(_least_normal(bias, grid), last)):
        subnormal += counts[field]
    events[SUBNORMAL] += subnormal


@scalar
def add_counts(counts, total, grid, events):
    """Add `total` float32 results to the events; `count_fields` counted their exponents."""
    _add_field_count(counts, total, np.int64(127), grid, events)


@kernel
def count_ends(exact, out, grid_numbers, events, shown):
    """Count events at both ends of the range, from the exact results and their roundings in `out`.

    Returns the number of finite exact results beyond the largest number that did not become infinite. Only a rounding
    without a largest number can decide if they overflowed or were rounded back to it.
    """
    grid, small = unpack_grid(grid_numbers), shown // 2
    if small > 0 and small > _count_zeros(exact, out, grid, events):
        count_small(out, grid, events)
    return _count_beyond(exact, out, grid, events) if shown % 2 == 1 else np.int64(0)


@scalar
def _count_zeros(exact, out, grid, events):
    """Count the zeros among results and the underflows to zero; return the number of zeros."""
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
    """Count overflows, infinities and NaN; return the number of exact results beyond the format that stayed finite."""
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


def count_fields(out, counts):
    """Add to `counts[field]` the number of results with this exponent field; return the largest field."""
    for x in out:
        counts[exponent_field(x)] += 1
    return max([exponent_field(x) for x in out], default=np.int64(0))


@overload(count_fields)
def _count_fields(out, counts):
    if out.dtype == types.float32:
        return lambda out, counts: _count_single_fields(out, counts)
    return lambda out, counts: _count_double_fields(out, counts)


@out_of_line
def _count_single_fields(out, counts):
    """Count the exponents of float32 results, by a search for each exponent among the bytes of many results.

    With a counter for each exponent, an addition would wait for the previous addition to the same counter. This took up
    to six times as long.
    """
    fields, largest = np.empty(TOGETHER, np.uint8), U32(0)
    for start in range(0, out.size, TOGETHER):
        part = out[start : min(start + TOGETHER, out.size)]
        count, most = part.size, U32(0)
        for i in range(count):
            field = U32(U32(np.float32(part[i]).view(U32) >> U32(23)) & U32(0xFF))
            fields[i] = U8(field)
            most = max(most, field)
        largest = max(largest, most)
        # Only whole pieces are searched. The bytes after the last result are zeros, and are subtracted.
        size = -(-count // PIECE) * PIECE
        for i in range(count, size):
            fields[i] = U8(0)
        zeros = _search(fields, size, U8(0)) - (size - count)
        counts[0] += zeros
        left, searches, field = count - zeros, 0, np.int64(most)
        while left > 0 and searches < (MOST_SEARCHES if 2 * left < count else SOME_SEARCHES):
            matches = _search(fields, size, U8(field))
            counts[field] += matches
            left, searches, field = left - matches, searches + 1, field - 1
        if left > 0:
            for i in range(count):
                if U8(0) < fields[i] <= U8(field):
                    counts[np.uint64(fields[i])] += 1
    return np.int64(largest)


@scalar
def _search(fields, size, field):
    """Return how many of the first `size` bytes have this value; `size` is a multiple of PIECE."""
    matches = np.int64(0)
    for start in range(0, size, PIECE):
        matches += count_bytes(fields, start, field)
    return matches


@scalar
def _count_double_fields(out, counts):
    """Count the exponents of float64 results; `counts` are zeros."""
    lanes = 1 if out.size < MANY else LANES
    counters = np.zeros((lanes, counts.size), np.uint32)
    whole = out.size - out.size % lanes
    for i in range(0, whole, lanes):
        # Results near one another mostly have the same exponent. An addition to the counter that was just written would
        # wait for that store, so the counters take turns.
        for lane in range(lanes):
            counters[np.uint64(lane), np.uint64(exponent_field(out[i + lane]))] += np.uint32(1)
    for i in range(whole, out.size):
        counters[np.uint64(0), np.uint64(exponent_field(out[i]))] += np.uint32(1)
    # The inner loop goes along rows of counters, so it is vectorised.
    for lane in range(lanes):
        for field in range(counts.size):
            counts[field] += np.int64(counters[lane, field])
    largest = np.int64(counts.size - 1)
    while largest > 0 and counts[largest] == 0:
        largest -= 1
    return largest


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
    """Count the finite sums a + sign * b that equal one addend although the other is not zero.

    The lost addend is b, or with `either` any of the two. A vector of length 1 is a scalar.
    """
    a_step, b_step = np.int64(a.size == out.size), np.int64(b.size == out.size)
    count = np.int64(0)
    for i in range(out.size):
        x, y, after = a[i * a_step], b[i * b_step] * b.dtype.type(sign), out[i]
        lost = ((y != 0.0) & (after == x)) | (either & (x != 0.0) & (after == y))
        count += lost & (abs(after) < np.inf)
    return count


@kernel
def move_events(events, totals, repeats):
    """Add events to totals, `repeats` times, and set the events to zero; most events never occur."""
    for start in range(0, events.size, 64):
        part, total, used = events[start : start + 64], totals[start : start + 64], np.int64(0)
        for i in range(part.size):
            used |= part[i]
        if used != 0:
            for i in range(part.size):
                total[i] += repeats * part[i]
                part[i] = 0


#: Initial values: below no exponent field, and above none, has been found.
NO_FIRST, NO_LAST = 4095, -1


@kernel
def bit_facts(x):
    """Return (precision, low, least, high, finite) of a vector.

    These are the fields of `sums.bounds.Bounds` for its finite nonzero elements as float64. Without such elements they
    are the fields of the number one.
    """
    fractions, first, last, finite = np.uint64(0), np.int64(NO_FIRST), np.int64(NO_LAST), True
    for i in range(x.size):
        field, fraction = exponent_and_fraction(x[i])
        counts = (field < 2047) & (x[i] != 0.0)
        finite &= field < 2047
        # The bitwise or of all fractions shows the last bit that any of them uses. One pass without a branch finds the
        # precision of the values: this takes half a microsecond for an operand of a small product.
        fractions |= fraction if counts else np.uint64(0)
        first = min(first, field if counts else np.int64(NO_FIRST))
        last = max(last, field if counts else np.int64(NO_LAST))
    return _combine_facts(fractions, first, last, finite)


@scalar
def exponent_and_fraction(x):
    """Return the biased exponent and the fraction of a number as float64."""
    image = np.float64(x).view(np.uint64)
    return np.int64((image >> np.uint64(52)) & np.uint64(0x7FF)), image & np.uint64(0xFFFFFFFFFFFFF)


def combine_facts(fractions, first, last, finite):
    """Return the facts for the union of fraction bits, and for exponent fields from `first` to `last`."""
    # Without compilation, as in debugging, the arguments are NumPy scalars.
    low, high, finite = int(first) - 1023, int(last) - 1022, bool(finite)
    if last < 0:
        return 1, 0, 0, 1, finite
    if first == 0:
        # A subnormal float64 is a multiple of the smallest one.
        return 53, -1074, -1074, max(high, -1021), finite
    # Precision after the hidden bit: the number of leading fraction bits that are used.
    used = 52 if fractions != np.uint64(0) else 0
    while used > 0 and fractions & np.uint64(1) == np.uint64(0):
        fractions >>= np.uint64(1)
        used -= 1
    return used + 1, low - used, low, high, finite


_combine_facts = scalar(combine_facts)
