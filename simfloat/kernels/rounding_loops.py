"""Loops that round arrays.

Every loop takes (x, words, out, numbers), so that a plan can hold any of them; only random ones read `words`, which
are words or bytes (see `random.as_word`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simfloat.kernels.drawn import round_by_threshold
from simfloat.kernels.general import round_to_any_grid
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.halves import round_to_half
from simfloat.kernels.jit import kernel, out_of_line, scalar
from simfloat.kernels.machine import shift_left, shift_right
from simfloat.kernels.plain import nearest, one_nan, round_in_direction, to_odd
from simfloat.kernels.random import as_word

U32 = np.uint32


@kernel
def copy(x, words, out, grid_numbers):
    """Every element as it is, for formats that have all of the carrier's numbers."""
    for i in range(x.size):
        out[i] = one_nan(x[i])


def round_each(round_one):
    """Round a vector in a deterministic mode, for plain grids, in the type of their numbers."""

    @out_of_line
    def round_vector(x, out, grid_numbers):
        grid = unpack_grid(grid_numbers)
        for i in range(x.size):
            out[i] = one_nan(round_one(type(grid.max)(x[i]), grid))

    return round_vector


def rounding(round_vector):
    """The loop of a mode that draws no words."""

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
    """Round to nearest even to FP16 where the hardware does it (`processor.CONVERTS_FP16`), at the speed of a copy."""
    for i in range(x.size):
        out[i] = one_nan(round_to_half(x[i]))


class ImageCut(NamedTuple):
    """A grid that is float32 with a shorter fraction, and a mode, as images are rounded by them."""

    drop: int
    dropped: int
    positive: int  # what is added to the image of a positive number, so that it carries where the mode goes up
    negative: int
    even: int  # 1 where the last bit that is kept is added, too, for ties go to even
    odd: int  # that bit, where it is set if one is dropped
    beyond: int  # the image of what lies beyond the largest number


@scalar
def unpack_image_cut(grid):
    """The cut of a grid in a deterministic mode."""
    drop = U32(23.0 - grid.mantissa_bits)
    last = shift_left(U32(1), drop)
    even, to_odd = grid.nearest_even != 0.0, grid.away_odd != 0.0
    # A carry past the largest number gives infinity's image. `beyond` caps images there, at infinity or at the largest
    # number in modes that saturate: one minimum instead of a comparison for every mode.
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
    """What makes a part of the last bit, or more, carry into it; ties do where the last bit is added as well."""
    half = shift_right(last, U32(1))
    least = U32(half + U32(1)) if even or 0.5 < part < 1.0 else half if part == 0.5 else U32(1)
    return U32(0) if to_odd or (part > 1.0 and not even) else U32(last - least)


@scalar
def round_image_in_any_mode(x, cut):
    """Round float32 where only its fraction gets shorter, in its integer image.

    What is added carries into the kept bits when it should: to nearest even just under half of what is cut off, and the
    last bit that is kept. A carry out of the fraction moves on to the exponent, and from the largest number to
    infinity. Half as many operations as those of floats take, which makes it as quick as a copy.
    """
    image = np.float32(x).view(U32)
    sign = U32(image & U32(0x80000000))
    # Every step is cast: Numba would widen it to 64 bits, and LLVM use half the lanes.
    carrying = U32((cut.negative if sign != U32(0) else cut.positive) + U32(shift_right(image, cut.drop) & cut.even))
    moved = U32(U32(image + carrying) | (cut.odd if U32(image & cut.dropped) != U32(0) else U32(0)))
    magnitude = U32(moved & U32(U32(0x7FFFFFFF) & U32(~cut.dropped)))
    rounded = U32(min(magnitude, cut.beyond) | sign).view(np.float32)
    return rounded if x == x else np.float32(np.nan)


@scalar
def round_image_to_nearest(x, cut):
    """Round float32 in its image in the modes to nearest, which take positive and negative numbers alike."""
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
    """Round in any mode to any grid; without draws one word stands for all."""
    grid = unpack_grid(grid_numbers)
    step = np.int64(words.size == x.size)
    for i in range(x.size):
        out[i] = one_nan(round_to_any_grid(np.float64(x[i]), as_word(words[i * step]), grid))
