"""Stochastic rounding in float32 from the upper bits of the sum and of the draw, which decide almost every case.

A magnitude x rounds to its larger neighbour if x plus the draw, in units of the spacing, reaches this neighbour. Let U
be the last bit of float32 numbers in the binade of x. A spacing is 2^d U, with d = 23 - mantissa bits.

Float32 represents x with an error below 3/4 U. The operation contributes at most 1/2 U. If x is below the smallest
normal number, this number is added, so that the sum has its spacing. The addition contributes at most 1/2 U, and the
operation then at most 1/4 U. The upper d bits of the draw are a multiple of U. Its lower bits, plus half a step, minus
the tiny bit of a strict odd draw (see `one_number.py`), are at least -1/4 U and less than U.

The true sum of x and the draw, and the sum of the float32 bit pattern and the upper bits, therefore differ by -1, 0 or
1 in whole units of U. Their kept bits are equal, unless the dropped bits of the second sum are all zeros or all ones.
The likely result is therefore exact except in two of 2^d cases, which are reported.

This also applies if the float32 number is a power of two and x is below it, where the spacing is half as large. Its
dropped bits are zeros, and x is less than U/2 away from it, so every draw with nonzero upper bits reaches the power. An
infinite sum of finite terms is such a power, 2^128. There are no other conditions: the terms may have any bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, rotate_right, shift_left, shift_right
from simfloat.kernels.compile.jit import scalar

U32 = np.uint32

#: The bit pattern of the positive quiet NaN: larger payloads might carry into the sign.
NAN = U32(0x7FC00000)

#: If `round_unless_in_doubt` returns a second value below this number, the result is in doubt.
SURE_FROM = U32(2)

#: The initial value of a minimum of these second values: the largest number.
NONE_UNSURE = U32(0xFFFFFFFF)


class DroppedBits(NamedTuple):
    """A grid and a stochastic mode, in the form for `round_unless_in_doubt`."""

    turn: int  # right rotation of a word that moves the upper bits of a draw to the dropped bits
    read: int  # the dropped bits that a draw covers
    half: int  # half a step of a draw, if it is one of the dropped bits
    dropped: int
    kept_mask: int
    min_normal: float
    max: float
    overflow_positive: float


@scalar
def dropped_bits(grid):
    """Return these constants for a plain grid in float64."""
    # The word is rotated, not shifted, so that the upper bits of the draw are at the dropped bits for every `lift`;
    # `read` masks the rest of the word.
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
    """Return (float32 rounded by the upper bits of a draw, a number below SURE_FROM if the lower bits might change it).

    `word` contains 32 random bits; the draw is at the top after a shift left by `lift`. x is the float32 number nearest
    to the exact value.
    """
    magnitude = abs(x)
    low = magnitude < cut.min_normal
    # The sum of a smaller number and the smallest normal number has the spacing of the latter, as on the grid. This
    # addition may round; the module docstring explains why the error is small enough.
    image = np.float32(magnitude + cut.min_normal if low else magnitude).view(np.uint32)
    draw = U32(rotate_right(U32(word), U32(cut.turn - lift)) & cut.read)
    # One more than the sum of bit pattern and draw, in one operation less. The two differ only if the result is not
    # certain.
    moved = U32((image if image < NAN else NAN) - U32(~U32(draw | cut.half)))
    cut_number = U32(moved & cut.kept_mask).view(np.float32)
    rounded = cut_number - cut.min_normal if low else cut_number
    rounded = cut.overflow_positive if rounded > cut.max else rounded
    return math.copysign(rounded, x), U32(moved & cut.dropped)


def _row_loop(exact):
    """Return the loop that rounds the results of `exact` for a number and two rows; `doubts` keeps the minimum per
    column.

    Each loop rounds once: a rounding is a long chain of instructions, and a processor looks ahead for independent work
    only so far.
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
    """Write the likely roundings of x times a plus b; return the minimum of the doubts."""
    least = NONE_UNSURE
    for j in range(out.size):
        out[j], certain = round_unless_in_doubt(fma(x, a[j], b[j]), words[j], lift, cut)
        least = min(least, certain)
    return least


#: Loops over rows: (out, doubts, x, a, b, words, lift, cut) for x times a plus b, x times a, a plus b, and a minus b.
#: The rows must not overlap.
fuse_unless_in_doubt, multiply_unless_in_doubt = _row_loop(fma), _row_loop(_product)
add_unless_in_doubt, subtract_unless_in_doubt = _row_loop(_sum), _row_loop(_difference)


@scalar
def first_unsure_column(doubts):
    """Return the first column of a row with an uncertain result; the size of the row if all are certain."""
    # A minimum over the row, which is vectorised, precedes any search: most rows have no doubt and need no other test.
    least = NONE_UNSURE
    for j in range(doubts.size):
        least = min(least, doubts[j])
    return next_unsure_column(doubts, -1) if least < SURE_FROM else doubts.size


@scalar
def next_unsure_column(doubts, j):
    """Return the next uncertain column after column j, and clear the doubt of column j."""
    if j >= 0:
        doubts[j] = NONE_UNSURE
    j += 1
    while j < doubts.size and doubts[j] >= SURE_FROM:
        j += 1
    return j
