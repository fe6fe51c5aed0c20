"""Results of operations: see `kernels/elementwise.py`. An operand is a vector, or numbers by value: one."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.thread_loops import at, kept, threads_over
from simfloat.cuda.thread_random import FOUR, four_words
from simfloat.kernels.converted import CONVERTED
from simfloat.kernels.elementwise import NATIVE, OPERATIONS
from simfloat.kernels.general import round_pair
from simfloat.kernels.grid import unpack
from simfloat.kernels.machine import is_extreme
from simfloat.kernels.plain import directed, nearest, to_odd
from simfloat.kernels.rounding_loops import image_cut_of, rounded_in_image
from simfloat.kernels.single import SINGLE
from simfloat.kernels.unrounded import double_of, odd_of


def exact_loop(quick, wide):
    """Round-to-odd of the exact result for each element."""

    @threads_over("out")
    def loop(i, a, b, c, sign, out):
        x, y, z = np.float64(at(a, i)), np.float64(at(b, i)), np.float64(at(c, i))
        value = quick(x, y, z, sign)
        if is_extreme(x) or is_extreme(y) or is_extreme(z) or value != value:
            high, low, exponent = wide(x, y, z, sign)
            value = odd_of(high, low, exponent)
        out[i] = value

    return loop


def paired_loop(wide):
    """Each exact result rounded once from more bits than float64 shows."""

    @threads_over("out", each=FOUR)
    def loop(j, a, b, c, sign, words, out, numbers):
        grid, four = unpack(numbers), four_words(words, j)
        for k in range(FOUR):
            i = FOUR * j + k
            if i < out.size:
                high, low, exponent = wide(np.float64(at(a, i)), np.float64(at(b, i)), np.float64(at(c, i)), sign)
                out[i] = kept(round_pair(high, low, exponent, np.uint32(four[k]), grid), out)

    return loop


def double_loop(wide):
    """Each exact result rounded to nearest even in float64."""

    @threads_over("out")
    def loop(i, a, b, c, sign, out):
        high, low, exponent = wide(np.float64(at(a, i)), np.float64(at(b, i)), np.float64(at(c, i)), sign)
        out[i] = double_of(high, low, exponent)

    return loop


def native_loop(function):
    """What the hardware rounds to nearest even itself, in the type of `out`."""

    @threads_over("out")
    def loop(i, a, b, c, out):
        x, y, z = out.dtype.type(at(a, i)), out.dtype.type(at(b, i)), out.dtype.type(at(c, i))
        out[i] = kept(function(x, y, z, 1.0), out)

    return loop


def single_loop(function):
    """The exact result rounded to odd in float32, and once more by the kind of rounding."""

    @threads_over("out")
    def loop(i, a, b, c, sign, out, numbers, kind):
        grid, single = unpack(numbers), np.float32
        exact = function(single(at(a, i)), single(at(b, i)), single(at(c, i)), single(sign))
        if kind == 0:
            out[i] = rounded_in_image(exact, image_cut_of(grid))
        elif kind == 1:
            out[i] = kept(nearest(type(grid.max)(exact), grid), out)
        elif kind == 2:
            out[i] = kept(directed(type(grid.max)(exact), grid), out)
        else:
            out[i] = kept(to_odd(type(grid.max)(exact), grid), out)

    return loop


def converted_loop(function):
    """The operation on vectors, or on numbers by value."""

    @threads_over("out")
    def loop(i, a, b, c, out):
        out[i] = kept(function(np.float32(at(a, i)), np.float32(at(b, i)), np.float32(at(c, i)), 1.0), out)

    return loop


exact_results = {name: exact_loop(quick, wide) for name, (quick, wide) in OPERATIONS.items()}
paired_results = {name: paired_loop(wide) for name, (_, wide) in OPERATIONS.items()}
double_results = {name: double_loop(wide) for name, (_, wide) in OPERATIONS.items() if name not in NATIVE}
native_results = {name: native_loop(function) for name, function in NATIVE.items()}
converted_results = {name: converted_loop(function) for name, function in CONVERTED.items()}
single_results = {name: single_loop(function) for name, function in SINGLE.items()}
