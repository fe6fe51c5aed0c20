"""Results of operations: see `kernels/elementwise.py`. An operand is a vector, or numbers by value: one."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.thread_loops import cast_for_out, element_or_only, threads_over
from simfloat.cuda.thread_random import FOUR, four_words
from simfloat.kernels.converted import CONVERTED
from simfloat.kernels.elementwise import NATIVE, OPERATIONS
from simfloat.kernels.general import round_pair
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.machine import is_extreme
from simfloat.kernels.plain import nearest, round_in_direction, to_odd
from simfloat.kernels.rounding_loops import round_image_in_any_mode, unpack_image_cut
from simfloat.kernels.single import SINGLE
from simfloat.kernels.unrounded import round_pair_to_double, round_pair_to_odd


def exact_loop(quick, wide):
    """Round-to-odd of the exact result for each element."""

    @threads_over("out")
    def loop(i, a, b, c, sign, out):
        x, y, z = (
            np.float64(element_or_only(a, i)),
            np.float64(element_or_only(b, i)),
            np.float64(element_or_only(c, i)),
        )
        value = quick(x, y, z, sign)
        if is_extreme(x) or is_extreme(y) or is_extreme(z) or value != value:
            high, low, exponent = wide(x, y, z, sign)
            value = round_pair_to_odd(high, low, exponent)
        out[i] = value

    return loop


def paired_loop(wide):
    """Each exact result rounded once from more bits than float64 shows."""

    @threads_over("out", each=FOUR)
    def loop(j, a, b, c, sign, words, out, grid_numbers):
        grid, four = unpack_grid(grid_numbers), four_words(words, j)
        for k in range(FOUR):
            i = FOUR * j + k
            if i < out.size:
                high, low, exponent = wide(
                    np.float64(element_or_only(a, i)),
                    np.float64(element_or_only(b, i)),
                    np.float64(element_or_only(c, i)),
                    sign,
                )
                out[i] = cast_for_out(round_pair(high, low, exponent, np.uint32(four[k]), grid), out)

    return loop


def double_loop(wide):
    """Each exact result rounded to nearest even in float64."""

    @threads_over("out")
    def loop(i, a, b, c, sign, out):
        high, low, exponent = wide(
            np.float64(element_or_only(a, i)),
            np.float64(element_or_only(b, i)),
            np.float64(element_or_only(c, i)),
            sign,
        )
        out[i] = round_pair_to_double(high, low, exponent)

    return loop


def native_loop(function):
    """What the hardware rounds to nearest even itself, in the type of `out`."""

    @threads_over("out")
    def loop(i, a, b, c, out):
        x, y, z = (
            out.dtype.type(element_or_only(a, i)),
            out.dtype.type(element_or_only(b, i)),
            out.dtype.type(element_or_only(c, i)),
        )
        out[i] = cast_for_out(function(x, y, z, 1.0), out)

    return loop


def single_loop(function):
    """The exact result rounded to odd in float32, and once more by the kind of rounding."""

    @threads_over("out")
    def loop(i, a, b, c, sign, out, grid_numbers, kind):
        grid, single = unpack_grid(grid_numbers), np.float32
        exact = function(
            single(element_or_only(a, i)), single(element_or_only(b, i)), single(element_or_only(c, i)), single(sign)
        )
        if kind == 0:
            out[i] = round_image_in_any_mode(exact, unpack_image_cut(grid))
        elif kind == 1:
            out[i] = cast_for_out(nearest(type(grid.max)(exact), grid), out)
        elif kind == 2:
            out[i] = cast_for_out(round_in_direction(type(grid.max)(exact), grid), out)
        else:
            out[i] = cast_for_out(to_odd(type(grid.max)(exact), grid), out)

    return loop


def converted_loop(function):
    """The operation on vectors, or on numbers by value."""

    @threads_over("out")
    def loop(i, a, b, c, out):
        out[i] = cast_for_out(
            function(
                np.float32(element_or_only(a, i)),
                np.float32(element_or_only(b, i)),
                np.float32(element_or_only(c, i)),
                1.0,
            ),
            out,
        )

    return loop


exact_results = {name: exact_loop(quick, wide) for name, (quick, wide) in OPERATIONS.items()}
paired_results = {name: paired_loop(wide) for name, (_, wide) in OPERATIONS.items()}
double_results = {name: double_loop(wide) for name, (_, wide) in OPERATIONS.items() if name not in NATIVE}
native_results = {name: native_loop(function) for name, function in NATIVE.items()}
converted_results = {name: converted_loop(function) for name, function in CONVERTED.items()}
single_results = {name: single_loop(function) for name, function in SINGLE.items()}
