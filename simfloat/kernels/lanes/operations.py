"""Rounding of float32's sums to shorter formats, on lanes.

Float32 rounds an exact result down, up or toward zero (`kernels/lanes/rounding.py`): that is where the bits that a
format drops are cut off, and what lies below them has no say but through whether it is zero. The larger neighbour is
one more in the image's bits that are kept. No mode needs to know anything of the operands:

* toward zero: the truncated image without the dropped bits;
* nearest with ties away: half a unit is added to it first;
* upward: the image that is rounded up, to which all dropped bits are added first if it is positive; downward is upward
  with all signs turned (see `LaneCut.scale`);
* in FP32 toward zero and upward: what is rounded so, for no bit is dropped;
* nearest even, and to odd: of the images rounded down and up the smaller is the truncated one, and if they differ the
  result is inexact. The truncated image and half a unit carry into the bits that are kept where the nearest number is
  the larger one; at a tie, which is exact, one less does if the smaller one is even.

Where float32's nearest number, rounded again, is known to be the exact result rounded once (plain, see
`sums/lanes.py`), one operation takes the place of two: half a unit, or one less, is added to its image.

Sums and the left factors are multiplied by a power of two that brings the format's smallest normal number to float32's:
then underflow is float32's own, and gradual. Overflow is float32's own where the format has its exponents; otherwise a
loop looks whether an image was larger than the largest number's.

Some processors are a hundred times as slow with float32's subnormal numbers. In a format of few exponents sums often
are that small. There they are not multiplied, and rounded by an anchor: one and a half times the power of two at which
float32's last bit is the last that the sum keeps. It is added, rounded as the mode says, and subtracted. A sum below
the smallest normal number has the anchor of that. One beyond float32 makes a result that is too large, or NaN.
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
    """A format as lanes are rounded to it."""

    dropped: int  # the bits of an image that the format lacks
    kept_mask: int
    half: int  # a tie's
    unit: int  # the last bit that is kept
    largest: int  # the image of the largest number, shifted left by one
    least: int  # that of the smallest normal number
    anchor: float  # of numbers from 1 to 2
    half_unit: float  # of these numbers' last bit that is kept
    sign: int  # the sign's bit, which is read when the loop runs
    scale: float  # of sums and left factors
    unscale: float


@scalar
def lifted_cut(grid, sign):
    """The cut of a grid; `sign` is -1 where the loop rounds upward and downward is meant."""
    return _make_cut(grid, sign, power_of_two(np.int64(-126.0 - grid.emin)))


@scalar
def cut_in_place(grid, sign):
    """The cut of a grid for sums that are not multiplied."""
    return _make_cut(grid, sign, 1.0)


@scalar
def _make_cut(grid, sign, scale):
    # All fields are numbers of the loop, not constants of its code: one compiled loop serves every format. `sign` in
    # particular has to be read at run time, or LLVM moves the negation of `rounding._by_mode_upward` through the
    # operation, and both neighbours become the same number.
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
    # A positive image grows with its number, so adding all dropped bits carries into the kept ones unless they are
    # zeros. A negative image grows as its number falls: there, upward is truncation, and nothing is added.
    up = image(upper)
    return number(choose(up < SIGN, up + cut.dropped, up) & cut.kept_mask)


@on_lanes
def _nearest(lower, upper, cut):
    # Both neighbours have one sign, so the smaller image is the one nearer to zero. At an exact tie both are equal, and
    # one less than half a unit is added if the kept bits are even; where they differ, the exact result lies above the
    # truncated one, so half a unit always carries rightly.
    truncated = smaller(image(lower), image(upper))
    less = (image(lower) == image(upper)) & ((truncated & cut.unit) == U32(0))
    return number((truncated + choose(less, cut.half - U32(1), cut.half)) & cut.kept_mask)


@on_lanes
def _nearest_again(near, cut):
    # One operation instead of two: valid only where `sums/lanes.py` knows that float32's nearest number,
    # rounded once more, is the exact result rounded once. For any float32 operands such a way was tried and was wrong
    # in 8 lanes; the one by both neighbours was not.
    near_image = image(near)
    is_even = (near_image & cut.unit) == U32(0)
    return number((near_image + choose(is_even, cut.half - U32(1), cut.half)) & cut.kept_mask)


@on_lanes
def _to_odd(lower, upper, cut):
    truncated = smaller(image(lower), image(upper))
    # As numbers: an exact zero is -0 rounded down and +0 rounded up.
    exact = (lower == upper) & ((truncated & cut.dropped) == U32(0))
    return number((truncated & cut.kept_mask) | choose(exact, U32(0), cut.unit))


@on_lanes
def _power_of(lanes, cut):
    """The powers of two at or below magnitudes, those of normal numbers at least."""
    return number(larger(image(lanes) & EXPONENT, cut.least))


@on_lanes
def _signed(lanes, signs):
    """Numbers that are positive, or have these signs already, with the signs: what is rounded to zero keeps its own."""
    return number(image(lanes) | (image(signs) & SIGN))


def _anchoring(fma: Any) -> Any:
    """What rounds numbers by the anchors of powers of two, with a fused multiply-add that is rounded in one way."""

    @on_lanes
    def by_anchor(lanes, power, cut):
        # The anchor's last bit is the last that the sum keeps, so float32 itself rounds the sum there, in the direction
        # that the instruction or the mode says. Scaled sums of formats with few exponents are float32's subnormal
        # numbers, with which an Intel Xeon was a hundred times as slow: one such sum in fifty halved the rate.
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
    # Rounded down by the anchor, the sum's last kept bit is the anchored image's last bit, so a sticky bit is set by an
    # or. It is set unless nothing was dropped, neither by the anchor nor by float32 before (lower == upper).
    anchored = fma_down(cut.anchor, power, lower, cut.sign)
    exact = (fma_down(-cut.anchor, power, anchored, cut.sign) == upper) & (lower == upper)
    odd = fma_down(-cut.anchor, power, number(image(anchored) | U32(1)), cut.sign)
    return number(choose(exact, image(truncated), image(odd)))


class LaneOperations(NamedTuple):
    """Rounded operations on lanes: each gets the cut last, and the processor's mode is `mode` meanwhile."""

    mode: int
    fma: Any  # (x, lanes, sums, cut), x being a number
    multiply: Any  # (x, lanes, cut)
    add: Any  # (a, b, cut)
    make_cut: Any = lifted_cut


def _by_one(round_lanes: Any, mode: int, fma: Any, multiply: Any, add: Any) -> LaneOperations:
    """Operations that round what float32 rounds in one way."""

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
    """Operations that need to know both neighbours of the exact result."""

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

#: By the mode's steps; downward is upward with all signs turned, plain is nearest even.
LANE_OPERATIONS = {
    "truncated": _by_one(_cut_off, TO_ZERO, *_ZERO),
    "away": _by_one(_away, TO_ZERO, *_ZERO),
    "upward": _by_one(_upward, DOWN, *_UP),
    "nearest": _by_two(_nearest),
    "sticky": _by_two(_to_odd),
    "plain": _by_one(_nearest_again, NEAREST, *_NEAR),
}

#: The same by anchors, which need two bits more than the format has: not nearest even, whose mode would have to change.
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

#: The operations of loops that look for what is too large; of plain ones those by anchors are as quick.
WATCHED = LANE_OPERATIONS | {"plain": ANCHORED["plain"]}

#: The same for FP32, whose numbers are float32's.
WHOLE_OPERATIONS = {
    "whole_truncated": _by_one(_drop_bits, TO_ZERO, *_ZERO),
    "whole_upward": _by_one(_drop_bits, DOWN, *_UP),
}
