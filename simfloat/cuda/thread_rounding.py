"""Rounding: see `kernels/rounding_loops.py`. Loops that may draw have a thread for every four elements."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.thread_loops import cast_for_out, threads_over
from simfloat.cuda.thread_random import FOUR, four_words
from simfloat.kernels.drawn import round_by_threshold
from simfloat.kernels.general import round_to_any_grid
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.halves import round_to_half
from simfloat.kernels.plain import nearest, round_in_direction, to_odd
from simfloat.kernels.rounding_loops import round_image_in_any_mode, unpack_image_cut


@threads_over("out")
def copy(i, x, words, out, grid_numbers):
    """Every element as it is."""
    out[i] = cast_for_out(x[i], out)


def rounding(round_one):
    """The loop of a deterministic mode, for plain grids, in the type of their numbers."""

    @threads_over("out")
    def loop(i, x, words, out, grid_numbers):
        grid = unpack_grid(grid_numbers)
        out[i] = cast_for_out(round_one(type(grid.max)(x[i]), grid), out)

    return loop


round_nearest, round_directed, round_to_odd = rounding(nearest), rounding(round_in_direction), rounding(to_odd)


@threads_over("out")
def round_half(i, x, words, out, grid_numbers):
    """Round to nearest even to FP16, as one instruction."""
    out[i] = cast_for_out(round_to_half(x[i]), out)


@threads_over("out")
def round_image(i, x, words, out, grid_numbers):
    """Round float32 to formats that are float32 with a shorter fraction."""
    out[i] = round_image_in_any_mode(x[i], unpack_image_cut(unpack_grid(grid_numbers)))


def rounding_four(round_one):
    """The loop of a rounding that takes a word."""

    @threads_over("out", each=FOUR)
    def loop(j, x, words, out, grid_numbers):
        grid, four = unpack_grid(grid_numbers), four_words(words, j)
        for k in range(FOUR):
            i = FOUR * j + k
            if i < out.size:
                out[i] = cast_for_out(round_one(np.float64(x[i]), np.uint32(four[k]), grid), out)

    return loop


round_stochastic, round_general = rounding_four(round_by_threshold), rounding_four(round_to_any_grid)
