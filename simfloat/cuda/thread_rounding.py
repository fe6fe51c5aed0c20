"""Rounding: see `kernels/rounding_loops.py`. Loops that may draw have a thread for every four elements."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.thread_loops import kept, threads_over
from simfloat.cuda.thread_random import FOUR, four_words
from simfloat.kernels.drawn import stochastic
from simfloat.kernels.general import general
from simfloat.kernels.grid import unpack
from simfloat.kernels.halves import half
from simfloat.kernels.plain import directed, nearest, to_odd
from simfloat.kernels.rounding_loops import image_cut_of, rounded_in_image


@threads_over("out")
def copy(i, x, words, out, numbers):
    """Every element as it is."""
    out[i] = kept(x[i], out)


def rounding(round_one):
    """The loop of a deterministic mode, for plain grids, in the type of their numbers."""

    @threads_over("out")
    def loop(i, x, words, out, numbers):
        grid = unpack(numbers)
        out[i] = kept(round_one(type(grid.max)(x[i]), grid), out)

    return loop


round_nearest, round_directed, round_to_odd = rounding(nearest), rounding(directed), rounding(to_odd)


@threads_over("out")
def round_half(i, x, words, out, numbers):
    """Round to nearest even to FP16, as one instruction."""
    out[i] = kept(half(x[i]), out)


@threads_over("out")
def round_image(i, x, words, out, numbers):
    """Round float32 to formats that are float32 with a shorter fraction."""
    out[i] = rounded_in_image(x[i], image_cut_of(unpack(numbers)))


def rounding_four(round_one):
    """The loop of a rounding that takes a word."""

    @threads_over("out", each=FOUR)
    def loop(j, x, words, out, numbers):
        grid, four = unpack(numbers), four_words(words, j)
        for k in range(FOUR):
            i = FOUR * j + k
            if i < out.size:
                out[i] = kept(round_one(np.float64(x[i]), np.uint32(four[k]), grid), out)

    return loop


round_stochastic, round_general = rounding_four(stochastic), rounding_four(general)
