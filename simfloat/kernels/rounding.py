"""The rounding of one number, compiled: the same steps as the definition, in float arithmetic.

Adding to a magnitude an anchor whose last bit is worth one spacing, and subtracting it again, leaves the nearest
multiple of the spacing, ties to even: the hardware rounds. What was cut off is then known exactly, and decides the
other modes. Below the smallest normal number the spacing, and with it the anchor, stops shrinking: underflow is
gradual without a special case. An anchor is a power of two times another, so a fused multiply-add makes and adds it
in one go.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.exact import power_of_two, scaled
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel, scalar, specialize
from simfloat.kernels.machine import binade, fma

#: Grids that reach the ends of float64 are brought nearer to one by this power of two first.
SHIFT = 2.0**128


@scalar
def nearest(x, grid):
    """Round to nearest even, for plain grids. Works in float32 and float64."""
    magnitude = abs(x)
    power = min(max(binade(magnitude), grid.min_normal), grid.top)
    rounded = fma(-power, grid.magic, fma(power, grid.magic, magnitude))
    rounded = grid.overflow_positive if rounded > grid.max else rounded
    return math.copysign(rounded, x) + grid.zero


@scalar
def directed(x, grid):
    """Round toward zero or an infinity, or to nearest with ties away, for plain grids. float32 and float64."""
    magnitude = abs(x)
    power = max(min(binade(magnitude), grid.top), grid.min_normal)
    spacing = power * grid.epsilon
    near = fma(-power, grid.magic, fma(power, grid.magic, magnitude))
    lower = near - spacing if near > magnitude else near
    rest = magnitude - lower
    part = grid.away_negative if x < 0.0 else grid.away_positive
    rounded = lower + spacing if (rest > 0.0) & (rest >= part * spacing) else lower
    return bounded(x, rounded, grid)


@scalar
def to_odd(x, grid):
    """Round to the neighbour with an odd significand, for plain grids. float32 and float64."""
    magnitude = abs(x)
    power = max(min(binade(magnitude), grid.top), grid.min_normal)
    spacing = power * grid.epsilon
    near = fma(-power, grid.magic, fma(power, grid.magic, magnitude))
    lower = near - spacing if near > magnitude else near
    # Of two neighbours the even one is the nearest multiple of two spacings.
    double = power + power
    even = fma(-double, grid.magic, fma(double, grid.magic, magnitude))
    rounded = lower + spacing if (magnitude > lower) & (even == lower) else lower
    return bounded(x, rounded, grid)


@scalar
def stochastic(x, word, grid):
    """Round up or down at random, for plain grids; `word` holds 32 random bits, of which the upper ones are used."""
    return stochastic_from(x, threshold(word, grid), grid)


@scalar
def stochastic_from(x, part, grid):
    """Round away from zero what lies at least `part` of its binade above its lower neighbour, for plain grids."""
    magnitude = abs(x)
    power = max(min(binade(magnitude), grid.top), grid.min_normal)
    near = fma(-power, grid.magic, fma(power, grid.magic, magnitude))
    lower = fma(-power, grid.epsilon, near) if near > magnitude else near
    rounded = fma(power, grid.epsilon, lower) if magnitude - lower >= part * power else lower
    rounded = grid.overflow_positive if rounded > grid.max else rounded
    return math.copysign(rounded, x) + grid.zero


@scalar
def threshold(word, grid):
    """How far above its lower neighbour a number is rounded away from zero, as part of its binade, if the upper bits of
    `word` are the draw.

    In all three variants of P3109 it falls with the draw. It has at most 33 bits, so it is exact, and the last bit of
    its image is free: variant C rounds a distance half a step below the draw's to even, so that an odd draw must be
    exceeded, and with its last bit set no distance meets the threshold.
    """
    draw = (np.uint64(word) & np.uint64(0xFFFFFFFF)) >> np.uint64(grid.random_shift)
    part = fma(-np.float64(draw), grid.random_step, grid.random_start)
    return np.uint64(np.float64(part).view(np.uint64) | (draw & np.uint64(grid.random_strict))).view(np.float64)


@scalar
def bounded(x, rounded, grid):
    """Give a rounded magnitude the sign of `x`, and what the format has beyond its largest number."""
    beyond = grid.overflow_negative if x < 0.0 else grid.overflow_positive
    beyond = grid.infinite if abs(x) == np.inf else beyond
    rounded = beyond if rounded > grid.max else rounded
    return math.copysign(rounded, x) + grid.zero


@scalar
def general(x, word, grid):
    """Round in any mode to any grid (float64): one significand bit, no subnormals, no sign, exponents of 11 bits."""
    scale = _toward_one(abs(x), grid)
    magnitude = abs(x) * scale
    lower, rest, spacing, near = _neighbours(magnitude, scale, grid)
    if grid.nearest_even != 0.0:
        rounded = near
    elif grid.random_step != 0.0:
        rounded = lower + spacing if rest >= threshold(word, grid) * (spacing / grid.epsilon) else lower
    else:
        part = grid.away_negative if x < 0.0 else grid.away_positive
        part += grid.away_odd if _is_odd(lower, magnitude, scale, grid) else 0.0
        rounded = lower + spacing if rest > 0.0 and rest >= part * spacing else lower
    return in_range(x, rounded / scale, grid)


@scalar
def stochastic_pair(high, low, exponent, word, grid):
    """Round (high + low) * 2^exponent at random, to any grid of at most 50 bits.

    For draws so long that the exact result needs more than float64's bits: p + bits + 2 > 53.
    """
    if high == 0.0 or not abs(high) < np.inf:
        return in_range(high, abs(high), grid)
    magnitude, below = abs(high), low if high > 0.0 else -low
    floor = power_of_two(min(max(np.int64(grid.emin) - exponent, -300), 300))
    power = max(binade(magnitude), floor)
    spacing, anchor = power * grid.epsilon, power * grid.magic
    near = (magnitude + anchor) - anchor
    lower = near - spacing if near > magnitude else near
    if lower == magnitude and below < 0.0:
        # The exact result lies just under a number of the grid; under a power of two the spacing is half.
        spacing = 0.5 * spacing if magnitude == power and magnitude > floor else spacing
        lower = magnitude - spacing
    draw = np.uint32(word) >> np.uint32(grid.random_shift)
    excess = (magnitude - lower) - (grid.random_start - draw * grid.random_step) * (spacing / grid.epsilon)
    meets = grid.random_strict == 0.0 or draw % np.uint32(2) == 0
    rounded = lower + spacing if excess > -below or (excess == -below and meets) else lower
    return in_range(high, scaled(rounded, exponent), grid)


@scalar
def _toward_one(magnitude, grid):
    """The power of two that keeps anchors and spacings inside float64."""
    if grid.extended == 0.0:
        return 1.0
    if magnitude > 2.0**512:
        return 1.0 / SHIFT
    return SHIFT if magnitude < 2.0**-512 and grid.min_normal < 1.0 else 1.0


@scalar
def _neighbours(magnitude, scale, grid):
    """The number at or below a magnitude, what lies between, their spacing, and the nearest number."""
    low = magnitude < grid.min_normal * scale
    power = min(binade(magnitude), grid.top * scale)
    spacing = (grid.min_normal * scale if low else power) * grid.epsilon
    anchor = grid.low_anchor * scale if low else power * grid.magic
    if grid.single_bit != 0.0 and not low and not _odd_code(magnitude, grid):
        # The significand is 1 on both sides of the tie; one spacing more swaps which side counts as even.
        anchor += spacing
    near = (magnitude + anchor) - anchor
    lower = near - spacing if near > magnitude else near
    return lower, magnitude - lower, spacing, near


@scalar
def _is_odd(lower, magnitude, scale, grid):
    """Whether the lower neighbour has an odd significand, or with one bit an odd code."""
    low = magnitude < grid.min_normal * scale
    if grid.single_bit != 0.0:
        return not low and _odd_code(magnitude, grid)
    # Of two neighbours the even one is the nearest multiple of two spacings.
    anchor = 2.0 * (grid.low_anchor * scale if low else min(binade(magnitude), grid.top * scale) * grid.magic)
    return (magnitude + anchor) - anchor != lower


@scalar
def _odd_code(magnitude, grid):
    """Whether the exponent field of the binade is odd."""
    field = np.float64(magnitude).view(np.uint64) >> np.uint64(52)
    return np.float64(field & np.uint64(1)) != grid.code_parity


@scalar
def in_range(x, rounded, grid):
    """Give a rounded magnitude the sign of `x`, and what the format has where it lies out of range."""
    beyond = grid.overflow_negative if x < 0.0 else grid.overflow_positive
    beyond = grid.infinite if abs(x) == np.inf else beyond
    rounded = beyond if rounded > grid.max else rounded
    rounded = grid.small if rounded < grid.least else rounded
    rounded = grid.at_zero if x == 0.0 else rounded
    signed = math.copysign(rounded, x) + grid.zero
    return np.nan if signed < grid.lowest else signed


@scalar
def one_nan(x):
    """`x`, with every NaN replaced by the positive quiet one: machines differ in the NaN they make."""
    return x if x == x else np.nan


# Every loop takes (x, words, out, numbers), so that a plan can hold any of them; only random ones read `words`.


@kernel
def copy(x, words, out, numbers):
    """Every element as it is, for formats that have all of the carrier's numbers."""
    for i in range(x.size):
        out[i] = one_nan(x[i])


def _round_plain(x, words, out, numbers):
    """Deterministic modes, for plain grids."""
    grid = unpack(numbers)
    for i in range(x.size):
        out[i] = one_nan(round_one(np.float64(x[i]), grid))  # noqa: F821


round_nearest = specialize(_round_plain, "round_nearest", round_one=nearest)
round_directed = specialize(_round_plain, "round_directed", round_one=directed)
round_to_odd = specialize(_round_plain, "round_to_odd", round_one=to_odd)


@kernel
def round_image(x, words, out, numbers):
    """Round float32 to nearest even where only its fraction gets shorter, in its integer image.

    Adding just under half of what is cut off, and the last bit that is kept, carries into the kept bits when it
    should; a carry out of the fraction moves on to the exponent, and from the largest number to infinity. Half as
    many operations as `nearest`, which makes it as quick as a copy.
    """
    u = np.uint32
    drop = u(23.0 - unpack(numbers).mantissa_bits)
    half = u((u(1) << u(drop - u(1))) - u(1))
    kept = u(~u((u(1) << drop) - u(1)))
    for i in range(x.size):
        image = np.float32(x[i]).view(u)
        # Every step is cast: Numba would widen it to 64 bits, and LLVM use half the lanes.
        rounded = u(u(image + u(half + u(u(image >> drop) & u(1)))) & kept)
        out[i] = rounded.view(np.float32) if x[i] == x[i] else np.float32(np.nan)


@kernel
def round_stochastic(x, words, out, numbers):
    """Round each element by its random word, for plain grids."""
    grid = unpack(numbers)
    for i in range(x.size):
        out[i] = one_nan(stochastic(np.float64(x[i]), words[i], grid))


@kernel
def round_general(x, words, out, numbers):
    """Round in any mode to any grid; without draws one word stands for all."""
    grid = unpack(numbers)
    step = np.int64(words.size == x.size)
    for i in range(x.size):
        out[i] = one_nan(general(np.float64(x[i]), words[i * step], grid))
