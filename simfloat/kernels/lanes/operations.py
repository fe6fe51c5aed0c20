"""Rounding of float32 sums to shorter formats, on lanes.

Float32 rounds an exact result down, up or toward zero (`kernels/lanes/rounding.py`). The bits that a format drops are
truncated there; the bits below matter only through whether they are all zero. The larger neighbour is one more in the
kept bits of the bit pattern. No mode needs any property of the operands:

* toward zero: the truncated bit pattern without the dropped bits;
* nearest with ties away: half a unit is added to it first;
* upward: the bit pattern that is rounded up; if it is positive, all dropped bits are added first. Downward is upward
  with all signs turned (see `LaneCut.scale`);
* toward zero and upward in FP32: the result of the float32 operation, because no bit is dropped;
* nearest even, and to odd: the smaller of the bit patterns rounded down and up is the truncated one, and the result is
  inexact if they differ. For nearest even, half a unit is added to the truncated bit pattern; the sum carries into the
  kept bits if the larger neighbour is nearest. At a tie, which is exact, half a unit minus one is added if the smaller
  neighbour is even.

If the nearest float32 number, rounded again, is known to be the exact result rounded once (kind "plain", see
`sums/lanes.py`), one operation is enough: half a unit, or one less, is added to its bit pattern.

Sums and left factors are multiplied by a power of two, so that the smallest normal numbers of the format and of float32
coincide. Underflow is then handled by float32, and is gradual. Overflow is handled by float32 if the format has the
exponents of float32; otherwise a loop compares bit patterns with the largest number.

Some processors are a hundred times as slow with subnormal float32 numbers, and sums in a format with few exponents are
often that small. These sums are not multiplied, but rounded by an anchor: 1.5 times the power of two at which the last
bit of float32 is the last bit that the sum keeps. The anchor is added, rounded in the given mode, and subtracted. A sum
below the smallest normal number has the anchor of this number. A sum beyond float32 gives a result that is too large,
or NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.compile.intrinsics import shift_left, shift_right
from simfloat.kernels.compile.jit import on_lanes, scalar
from simfloat.kernels.elementwise.exact import power_of_two
from simfloat.kernels.lanes.lanes import choose, image, larger, number, smaller
from simfloat.kernels.lanes.rounding import (
    DOWN,
    NEAREST,
    TO_ZERO,
    add_down,
    add_near,
    add_to_zero,
    add_up,
    fma_down,
    fma_near,
    fma_to_zero,
    fma_up,
    multiply_down,
    multiply_near,
    multiply_to_zero,
    multiply_up,
)

U32 = np.uint32
SIGN, EXPONENT = U32(0x80000000), U32(0x7F800000)


class LaneCut(NamedTuple):
    """The constants by which lanes are rounded to a format."""

    dropped: int  # the bits of a bit pattern that the format drops
    kept_mask: int
    half: int  # half a unit, the dropped bits of a tie
    unit: int  # the last bit that is kept
    largest: int  # the bit pattern of the largest number, shifted left by one
    least: int  # the bit pattern of the smallest normal number
    anchor: float  # for values from 1 to 2
    half_unit: float  # half of their last kept bit
    sign: int  # the bit of the sign, a run-time value
    scale: float  # of sums and left factors
    unscale: float


@scalar
def lifted_cut(grid, sign):
    """Return the constants of a grid; `sign` is -1 if a loop that rounds upward is used to round downward."""
    return _make_cut(grid, sign, power_of_two(np.int64(-126.0 - grid.emin)))


@scalar
def cut_in_place(grid, sign):
    """Return the constants of a grid for sums that are not multiplied."""
    return _make_cut(grid, sign, 1.0)


@scalar
def _make_cut(grid, sign, scale):
    # All fields are run-time values, not constants of the code: one compiled loop serves every format. `sign` in
    # particular must be read at run time; otherwise LLVM moves the negation of `rounding._by_mode_upward` through the
    # operation, and both neighbours become equal.
    drop = U32(23.0 - grid.mantissa_bits)
    unit = shift_left(U32(1), drop)
    dropped = U32(unit - U32(1))
    largest = np.float32(grid.max * scale).view(np.uint32)
    return LaneCut(
        dropped,
        U32(~dropped),
        shift_right(unit, U32(1)),
        unit,
        shift_left(largest, U32(1)),
        np.float32(power_of_two(np.int64(grid.emin)) * scale).view(np.uint32),
        np.float32(1.5 * power_of_two(np.int64(drop))),
        np.float32(power_of_two(np.int64(drop) - 24)),
        np.float32(grid.zero).view(np.uint32),  # of -0
        np.float32(sign * scale),
        np.float32(sign / scale),
    )


@on_lanes
def _cut_off(truncated, cut):
    return number(image(truncated) & cut.kept_mask)


@on_lanes
def _drop_bits(rounded, cut):
    return rounded


@on_lanes
def _away(truncated, cut):
    return number((image(truncated) + cut.half) & cut.kept_mask)


@on_lanes
def _upward(upper, cut):
    # A positive bit pattern grows with its value, so adding all dropped bits carries into the kept bits unless the
    # dropped ones are zeros. A negative bit pattern grows as its value falls: upward is truncation, and nothing is
    # added.
    up = image(upper)
    return number(choose(up < SIGN, up + cut.dropped, up) & cut.kept_mask)


@on_lanes
def _nearest(lower, upper, cut):
    # Both neighbours have the same sign, so the smaller bit pattern is nearer to zero. At an exact tie both are equal,
    # and one less than half a unit is added if the kept bits are even. If they differ, the exact result is above the
    # truncated one, so adding half a unit always carries correctly.
    truncated = smaller(image(lower), image(upper))
    less = (image(lower) == image(upper)) & ((truncated & cut.unit) == U32(0))
    return number((truncated + choose(less, cut.half - U32(1), cut.half)) & cut.kept_mask)


@on_lanes
def _nearest_again(near, cut):
    # One operation instead of two. It is valid only if `sums/lanes.py` proves that the nearest float32 number, rounded
    # once more, is the exact result rounded once. For arbitrary float32 operands it was tried and gave 8 wrong lanes;
    # the method by both neighbours gave none.
    near_image = image(near)
    is_even = (near_image & cut.unit) == U32(0)
    return number((near_image + choose(is_even, cut.half - U32(1), cut.half)) & cut.kept_mask)


@on_lanes
def _to_odd(lower, upper, cut):
    truncated = smaller(image(lower), image(upper))
    # Compared as floats: an exact zero is -0 rounded down and +0 rounded up.
    exact = (lower == upper) & ((truncated & cut.dropped) == U32(0))
    return number((truncated & cut.kept_mask) | choose(exact, U32(0), cut.unit))


@on_lanes
def _power_of(lanes, cut):
    """Return the powers of two at or below magnitudes, but at least the smallest normal number."""
    return number(larger(image(lanes) & EXPONENT, cut.least))


@on_lanes
def _signed(lanes, signs):
    """Return lanes with the given signs, also for zeros; lanes must be positive or already have these signs."""
    return number(image(lanes) | (image(signs) & SIGN))


def _anchoring(fma: Any) -> Any:
    """Return a function that rounds by anchors of powers of two, with a fused multiply-add in one rounding mode."""

    @on_lanes
    def by_anchor(lanes, power, cut):
        # The last bit of the anchor is the last bit that the sum keeps, so float32 rounds the sum there, in the
        # direction of the instruction or the mode. In formats with few exponents, scaled sums would be subnormal in
        # float32: an Intel Xeon was a hundred times as slow with them, and one such sum in fifty halved the rate.
        anchored = fma(cut.anchor, power, lanes, cut.sign)
        return _signed(fma(-cut.anchor, power, anchored, cut.sign), lanes)

    return by_anchor


_near_by_anchor, _up_by_anchor, _to_zero_by_anchor = map(_anchoring, (fma_near, fma_up, fma_to_zero))


@on_lanes
def _nearest_by_anchor(near, cut):
    return _near_by_anchor(near, _power_of(near, cut), cut)


@on_lanes
def _upward_by_anchor(upper, cut):
    return _up_by_anchor(upper, _power_of(upper, cut), cut)


@on_lanes
def _cut_off_by_anchor(truncated, cut):
    return _to_zero_by_anchor(truncated, _signed(_power_of(truncated, cut), truncated), cut)


@on_lanes
def _away_by_anchor(truncated, cut):
    power = _signed(_power_of(truncated, cut), truncated)
    return _to_zero_by_anchor(fma_to_zero(cut.half_unit, power, truncated, cut.sign), power, cut)


@on_lanes
def _to_odd_by_anchor(lower, upper, cut):
    truncated = number(smaller(image(lower), image(upper)))
    power = _power_of(truncated, cut)
    # The anchored sum is rounded down, so its last bit is the last kept bit, and an or sets the sticky bit there. The
    # bit is set unless nothing was dropped, by the anchor or by the float32 operation (lower == upper).
    anchored = fma_down(cut.anchor, power, lower, cut.sign)
    exact = (fma_down(-cut.anchor, power, anchored, cut.sign) == upper) & (lower == upper)
    odd = fma_down(-cut.anchor, power, number(image(anchored) | U32(1)), cut.sign)
    return number(choose(exact, image(truncated), image(odd)))


class LaneOperations(NamedTuple):
    """Rounded operations on lanes, with the cut as last argument; the processor must be in the rounding mode `mode`."""

    mode: int
    fma: Any  # (x, lanes, sums, cut); x is a scalar
    multiply: Any  # (x, lanes, cut)
    add: Any  # (a, b, cut)
    make_cut: Any = lifted_cut


def _by_one(round_lanes: Any, mode: int, fma: Any, multiply: Any, add: Any) -> LaneOperations:
    """Return operations that round one float32 result, which is itself rounded in one mode."""

    @on_lanes
    def fused(x, lanes, sums, cut):
        return round_lanes(fma(x, lanes, sums, cut.sign), cut)

    @on_lanes
    def product(x, lanes, cut):
        return round_lanes(multiply(x, lanes, cut.sign), cut)

    @on_lanes
    def total(a, b, cut):
        return round_lanes(add(a, b, cut.sign), cut)

    return LaneOperations(mode, fused, product, total)


def _by_two(round_lanes: Any) -> LaneOperations:
    """Return operations that need both neighbours of the exact result."""

    @on_lanes
    def fused(x, lanes, sums, cut):
        return round_lanes(fma_down(x, lanes, sums, cut.sign), fma_up(x, lanes, sums, cut.sign), cut)

    @on_lanes
    def product(x, lanes, cut):
        return round_lanes(multiply_down(x, lanes, cut.sign), multiply_up(x, lanes, cut.sign), cut)

    @on_lanes
    def total(a, b, cut):
        return round_lanes(add_down(a, b, cut.sign), add_up(a, b, cut.sign), cut)

    return LaneOperations(DOWN, fused, product, total)


_ZERO, _UP = (fma_to_zero, multiply_to_zero, add_to_zero), (fma_up, multiply_up, add_up)
_NEAR = fma_near, multiply_near, add_near

#: Operations by the rounding steps of the mode. Downward is upward with all signs turned; "plain" is nearest even.
LANE_OPERATIONS = {
    "truncated": _by_one(_cut_off, TO_ZERO, *_ZERO),
    "away": _by_one(_away, TO_ZERO, *_ZERO),
    "upward": _by_one(_upward, DOWN, *_UP),
    "nearest": _by_two(_nearest),
    "sticky": _by_two(_to_odd),
    "plain": _by_one(_nearest_again, NEAREST, *_NEAR),
}

#: Operations by anchors, which need two bits more than the format has. Nearest even from two neighbours is missing: it
#: would have to change the mode.
ANCHORED = {
    steps: operations._replace(make_cut=cut_in_place)
    for steps, operations in {
        "truncated": _by_one(_cut_off_by_anchor, TO_ZERO, *_ZERO),
        "away": _by_one(_away_by_anchor, TO_ZERO, *_ZERO),
        "upward": _by_one(_upward_by_anchor, DOWN, *_UP),
        "sticky": _by_two(_to_odd_by_anchor),
        "plain": _by_one(_nearest_by_anchor, NEAREST, *_NEAR),
    }.items()
}

#: Operations of loops that detect results beyond the largest number. For "plain", the anchored ones are as fast.
WATCHED = LANE_OPERATIONS | {"plain": ANCHORED["plain"]}

#: Operations for FP32, which has the same numbers as float32.
WHOLE_OPERATIONS = {
    "whole_truncated": _by_one(_drop_bits, TO_ZERO, *_ZERO),
    "whole_upward": _by_one(_drop_bits, DOWN, *_UP),
}
