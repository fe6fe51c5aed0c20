"""Stochastic rounding in float32 that reads no more of a sum and of its draw than decides almost always.

A magnitude x and a draw make the larger neighbour where x plus the draw, in units of the spacing, reaches it. Let U be
the last bit of float32's numbers of x's size, of which a spacing has 2^d, d = 23 - mantissa bits. Float32 holds x but
for an error t below 3/4 of U: half of it from the operation, and below the smallest normal number, which is added there
to give all numbers its spacing, half of it again from that addition, while the first half is a quarter or less. The
draw's upper d bits are a whole number of U; what lies below them, with half a step and a strict odd draw's tiny bit
less (see `one_number.py`), is at least -1/4 and below one of U. So the true sum's whole part in U differs from that of
the float32 image plus the upper bits by -1, 0 or 1, and the bits that are kept are the same unless those that are
dropped were all zeros or all ones: the likely result is the exact one but in two of 2^d cases, which are told. That is
so too where float32's number is a power of two, and x lies below it among numbers of half the spacing: its dropped bits
are zeros, and any draw whose upper bits are not reaches the power, since x is less than half a U away from it.

An infinite sum of finite terms is such a power, 2^128. Nothing else is asked of the terms: they may have any bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, rotate_right, shift_left, shift_right
from simfloat.kernels.compile.jit import scalar

U32 = np.uint32

#: The image of the positive quiet NaN: payloads beyond it might carry into the sign.
NAN = U32(0x7FC00000)

#: What `round_unless_in_doubt` tells at least of a result that is certain.
SURE_FROM = U32(2)

#: More than it ever tells.
NONE_UNSURE = U32(0xFFFFFFFF)


class DroppedBits(NamedTuple):
    """A grid and a stochastic mode, as `round_unless_in_doubt` takes them."""

    turn: int  # by how many bits a word is turned right for a draw's upper bits to be above those that are kept
    read: int  # those of the dropped bits that a draw has
    half: int  # half a step of a draw, if it is one of them
    dropped: int
    kept_mask: int
    min_normal: float
    max: float
    overflow_positive: float


@scalar
def dropped_bits(grid):
    """The cut of a plain grid in float64."""
    # The word is turned right, not shifted, so that the draw's upper bits come to lie where the dropped bits are
    # whatever `lift` is; `read` masks the rest of the word away.
    drop, bits = U32(23.0 - grid.mantissa_bits), U32(32.0 - grid.random_shift)
    unread = U32(drop - bits) if bits < drop else U32(0)
    step = shift_left(U32(1), unread)
    dropped = U32(shift_left(U32(1), drop) - U32(1))
    return DroppedBits(
        U32(U32(32) - drop),
        U32(dropped & U32(~U32(step - U32(1)))),
        shift_right(step, U32(1)) if grid.random_start < grid.epsilon else U32(0),
        dropped,
        U32(~dropped),
        np.float32(grid.min_normal),
        np.float32(grid.max),
        np.float32(grid.overflow_positive),
    )


@scalar
def round_unless_in_doubt(x, word, lift, cut):
    """(float32 rounded by the upper bits of a draw, a number below CERTAIN if its lower bits might change that).

    `word` holds 32 random bits, of which the draw is on top once it is shifted left by `lift`; x is the nearest
    float32 of the number that is meant.
    """
    magnitude = abs(x)
    low = magnitude < cut.min_normal
    # Added to the smallest normal number, a smaller one has that number's spacing, as the grid has there. This addition
    # may round; the module's first lines say why that is no more than a quarter of U.
    image = np.float32(magnitude + cut.min_normal if low else magnitude).view(np.uint32)
    draw = U32(rotate_right(U32(word), U32(cut.turn - lift)) & cut.read)
    # One more than the sum of image and draw, in one operation less: it differs where the result is not certain.
    moved = U32((image if image < NAN else NAN) - U32(~U32(draw | cut.half)))
    cut_number = U32(moved & cut.kept_mask).view(np.float32)
    rounded = cut_number - cut.min_normal if low else cut_number
    rounded = cut.overflow_positive if rounded > cut.max else rounded
    return math.copysign(rounded, x), U32(moved & cut.dropped)


def _row_loop(exact):
    """The loop that rounds what `exact` makes of a number and two rows; `doubts` holds the least told of a column.

    One rounding a loop: each is a long chain of instructions, and a processor looks ahead for others only so far.
    """

    @scalar
    def loop(out, doubts, x, a, b, words, lift, cut):
        for j in range(out.size):
            out[j], certain = round_unless_in_doubt(exact(x, a[j], b[j]), words[j], lift, cut)
            doubts[j] = min(doubts[j], certain)

    return loop


@scalar
def _product(x, a, b):
    return x * a


@scalar
def _sum(x, a, b):
    return a + b


@scalar
def _difference(x, a, b):
    return a - b


@scalar
def fused_row_and_least_doubt(out, x, a, b, words, lift, cut):
    """x times a plus b, rounded by what is likely, and the least that is told of a column."""
    least = NONE_UNSURE
    for j in range(out.size):
        out[j], certain = round_unless_in_doubt(fma(x, a[j], b[j]), words[j], lift, cut)
        least = min(least, certain)
    return least


#: Loops over rows: (out, doubts, x, a, b, words, lift, cut), no row being another one; x times a plus b, x times a,
#: a plus b, and a minus b.
fuse_unless_in_doubt, multiply_unless_in_doubt = _row_loop(fma), _row_loop(_product)
add_unless_in_doubt, subtract_unless_in_doubt = _row_loop(_sum), _row_loop(_difference)


@scalar
def first_unsure_column(doubts):
    """The first column of a row whose result is not certain; the row's size if all are."""
    # A minimum over the row, which vectorises, before any search: rows without a doubt, most of them, take no other
    # look.
    least = NONE_UNSURE
    for j in range(doubts.size):
        least = min(least, doubts[j])
    return next_unsure_column(doubts, -1) if least < SURE_FROM else doubts.size


@scalar
def next_unsure_column(doubts, j):
    """The next one after column j, whose doubt is removed."""
    if j >= 0:
        doubts[j] = NONE_UNSURE
    j += 1
    while j < doubts.size and doubts[j] >= SURE_FROM:
        j += 1
    return j
