"""Loops that round arrays.

Every loop takes (x, words, out, numbers), so that a plan can hold any of them; only random ones read `words`, which
are words or bytes (see `random.as_word`).
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.drawn import stochastic
from simfloat.kernels.general import general
from simfloat.kernels.grid import unpack
from simfloat.kernels.halves import half
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.plain import directed, nearest, one_nan, to_odd
from simfloat.kernels.random import as_word


@kernel
def copy(x, words, out, numbers):
    """Every element as it is, for formats that have all of the carrier's numbers."""
    for i in range(x.size):
        out[i] = one_nan(x[i])


def rounding(round_one):
    """The loop of a deterministic mode, for plain grids."""

    @kernel
    def loop(x, words, out, numbers):
        grid = unpack(numbers)
        for i in range(x.size):
            out[i] = one_nan(round_one(np.float64(x[i]), grid))

    return loop


round_nearest, round_directed, round_to_odd = rounding(nearest), rounding(directed), rounding(to_odd)


@kernel
def round_half(x, words, out, numbers):
    """Round to nearest even to FP16 where the hardware does it (`processor.CONVERTS_FP16`), at the speed of a copy."""
    for i in range(x.size):
        out[i] = one_nan(half(x[i]))


@scalar
def image_of_cut(grid):
    """(bits that are dropped, one less than half of the lowest bit that is kept, bits that are kept) of an image."""
    u = np.uint32
    drop = u(23.0 - grid.mantissa_bits)
    return drop, u((u(1) << u(drop - u(1))) - u(1)), u(~u((u(1) << drop) - u(1)))


@scalar
def nearest_in_image(x, drop, half, kept):
    """Round float32 to nearest even where only its fraction gets shorter, in its integer image.

    Adding just under half of what is cut off, and the last bit that is kept, carries into the kept bits when it
    should; a carry out of the fraction moves on to the exponent, and from the largest number to infinity. Half as
    many operations as `nearest`, which makes it as quick as a copy.
    """
    u = np.uint32
    image = np.float32(x).view(u)
    # Every step is cast: Numba would widen it to 64 bits, and LLVM use half the lanes.
    rounded = u(u(image + u(half + u(u(image >> drop) & u(1)))) & kept)
    return rounded.view(np.float32) if x == x else np.float32(np.nan)


@kernel
def round_image(x, words, out, numbers):
    """Round float32 to nearest even to formats that are float32 with a shorter fraction."""
    drop, half, kept = image_of_cut(unpack(numbers))
    for i in range(x.size):
        out[i] = nearest_in_image(x[i], drop, half, kept)


@kernel
def round_stochastic(x, words, out, numbers):
    """Round each element by its random word, for plain grids."""
    grid = unpack(numbers)
    for i in range(x.size):
        out[i] = one_nan(stochastic(np.float64(x[i]), as_word(words[i]), grid))


@kernel
def round_general(x, words, out, numbers):
    """Round in any mode to any grid; without draws one word stands for all."""
    grid = unpack(numbers)
    step = np.int64(words.size == x.size)
    for i in range(x.size):
        out[i] = one_nan(general(np.float64(x[i]), as_word(words[i * step]), grid))
