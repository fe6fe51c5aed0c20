"""Stochastic rounding of one number to a plain grid, in float32 or float64.

Two ways to the same bits. `round_by_threshold` compares what was cut off with a threshold, for any number that can be rounded
at all. `round_at_random` adds the draw to the number's integer image: a sum that reaches the next number of the grid carries
into the bits that are kept. That takes half as many operations, but needs numbers that stay exact when the smallest
normal number is added to those below it: then they have its spacing, as the grid does there.

A draw is the upper bits of a word. Under variant C of P3109 an odd draw must be exceeded, not met, because a distance
that lies half a step below it counts as the even step below.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma, shift_left, shift_right
from simfloat.kernels.plain import in_range_quickly, lower_neighbour, power_below


@scalar
def round_by_threshold(x, word, grid):
    """Round up or down at random; `word` holds 32 random bits, of which the upper ones are used."""
    magnitude = abs(x)
    power = power_below(magnitude, grid)
    lower = lower_neighbour(magnitude, power, grid)
    rounded = fma(power, grid.epsilon, lower) if magnitude - lower >= threshold(word, grid) * power else lower
    return in_range_quickly(x, rounded, grid)


def _for_type(floating: Any, unsigned: Any, fraction: int) -> tuple[Any, Any]:
    """(threshold, drawn) in the arithmetic of a type with so many bits of fraction and its images."""
    word_type = np.uint32

    @scalar
    def threshold(word, grid):
        draw = shift_right(word_type(word), word_type(grid.random_shift))
        part = fma(-floating(draw), grid.random_step, grid.random_start)
        # A distance is a multiple of the number's own last bit, which a threshold with its last bit set never equals:
        # met exactly, an odd draw then does not round up.
        last = unsigned(word_type(draw & word_type(grid.random_strict)))
        return unsigned(floating(part).view(unsigned) | last).view(floating)

    @scalar
    def round_at_random(x, word, grid):
        one = unsigned(1)
        drop = unsigned(unsigned(fraction) - unsigned(grid.mantissa_bits))
        step = unsigned(drop - unsigned(floating(32.0) - grid.random_shift))  # bits of the image below a draw's
        mask = unsigned(~unsigned(shift_left(one, drop) - one))
        half = shift_right(shift_left(one, step), one) if grid.random_start < grid.epsilon else unsigned(0)
        draw = shift_right(word_type(word), word_type(grid.random_shift))
        strict = unsigned(word_type(draw & word_type(grid.random_strict)))
        # Half a step for variants B and C, whose thresholds lie in the middle of two steps; one tiny bit less for an
        # odd draw of variant C, which must be exceeded. What the sum carries into the kept bits is then the decision
        # itself.
        added = unsigned(unsigned(shift_left(unsigned(draw), step) + half) - strict)
        magnitude = abs(x)
        # Below the smallest normal number the grid's spacing stays: with that number added, the image has it too. The
        # sum is exact, or this way is not taken (see the first lines).
        base = grid.min_normal if magnitude < grid.min_normal else floating(0.0)
        image = floating(magnitude + base).view(unsigned)
        rounded = unsigned(unsigned(image + added) & mask).view(floating) - base
        # The bits of a NaN might carry into its sign.
        return in_range_quickly(x, rounded if x == x else x, grid)

    return threshold, round_at_random


_threshold32, _round_at_random32 = _for_type(np.float32, np.uint32, 23)
_threshold64, _round_at_random64 = _for_type(np.float64, np.uint64, 52)


@scalar
def round_total_at_random(x, word, grid):
    """Round a finite number in float64 at random in its image, by a draw of any length.

    Of a draw that is longer than what is cut off, the bits below decide nothing.
    """
    one, drop, bits = np.uint64(1), np.uint64(52.0 - grid.mantissa_bits), np.uint64(32.0 - grid.random_shift)
    mask = np.uint64(~np.uint64(shift_left(one, drop) - one))
    unread = np.uint64(drop - bits) if bits < drop else np.uint64(0)  # bits that are cut off, below those of a draw
    read = np.uint64(shift_left(one, drop) - shift_left(one, unread))
    half = shift_right(shift_left(one, unread), one) if grid.random_start < grid.epsilon else np.uint64(0)
    strict = np.uint64(grid.random_strict) if bits < drop else np.uint64(0)
    draw = np.uint64(shift_right(shift_left(np.uint64(word), np.uint64(32)), np.uint64(np.uint64(64) - drop)) & read)
    added = np.uint64(np.uint64(draw + half) - np.uint64(shift_right(draw, unread) & strict))
    magnitude = abs(x)
    base = grid.min_normal if magnitude < grid.min_normal else 0.0
    image = np.uint64(np.float64(magnitude + base).view(np.uint64) + added)
    return in_range_quickly(x, np.uint64(image & mask).view(np.float64) - base, grid)


def threshold(word, grid):
    """The part of its binade from which on a number above its lower neighbour is rounded away from zero.

    The larger the draw, the lower the threshold, in all three variants of P3109. A threshold has one bit more than the
    draw, which leaves the last one of the type free: where it is set, no distance meets the threshold.
    """
    return (_threshold32 if isinstance(grid.epsilon, np.float32) else _threshold64)(word, grid)


def round_at_random(x, word, grid):
    """Round up or down at random, in the image."""
    return (_round_at_random32 if isinstance(x, np.float32) else _round_at_random64)(x, word, grid)


@overload(threshold, jit_options={"forceinline": True})
def _overload_threshold(word, grid):
    chosen = _threshold32 if grid.types[0] == types.float32 else _threshold64
    return lambda word, grid: chosen(word, grid)


@overload(round_at_random, jit_options={"forceinline": True})
def _overload_round_at_random(x, word, grid):
    chosen = _round_at_random32 if x == types.float32 else _round_at_random64
    return lambda x, word, grid: chosen(x, word, grid)
