"""A program of rounded operations on float32 vectors, carried out in one go.

A program is a table of instructions (`program_table`), which are carried out block by block. Registers hold a block of
numbers as float64. An instruction's result goes to another register than its operands are in, so that its loop, of few
operations, vectorises. One compiled loop serves all programs.

Which instruction serves, that is, what is known of operands, is the caller's matter (`arithmetic/program_writer.py`).
Operands are float32 numbers, and scalars float64 numbers that are not extreme (see `machine.is_extreme`). Then float64
holds products of two registers, and quotients and roots that it rounds to nearest lie on a number of 25 bits, or on the
middle between two of 24 bits, only where they are exact: numerators that differ from a multiple of the divisor do so by
a part of at least 2^-50. The same holds of sums of numbers of one grid, for an addend that float64 loses is less than a
quarter of a spacing of the other. So a later rounding to nearest even is the rounding of the exact result.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.drawn import stochastic
from simfloat.kernels.general import general
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import fma, root
from simfloat.kernels.plain import directed, in_range_quickly, nearest, one_nan, power_below, to_odd
from simfloat.kernels.program_table import (
    DIRECTED,
    FILL,
    LARGEST,
    LOAD,
    NEAREST,
    NEAREST_PRODUCT,
    NEAREST_PRODUCT_WITH_SCALAR,
    NEAREST_QUOTIENT,
    NEAREST_ROOT,
    NEAREST_SUM,
    NEGATE,
    NOT,
    PRODUCT,
    PRODUCT_WITH_SCALAR,
    QUOTIENT,
    QUOTIENT_BY_SCALAR,
    ROOT,
    SIGN,
    SINGLE,
    SINGLE_PRODUCT,
    SINGLE_QUOTIENT,
    SINGLE_ROOT,
    SINGLE_SUM,
    STOCHASTIC,
    STORE,
    SUM,
    SUM_WITH_SCALAR,
    TO_ODD,
)
from simfloat.kernels.random import U64, are_bytes, words_at
from simfloat.kernels.unrounded import add_odd, divide_odd, multiply_odd, sqrt_odd

#: Elements a block: a register and the numbers of some others stay in the first-level cache.
BLOCK = 512


@scalar
def _single(x, grid):
    """Round to nearest even to FP32."""
    return np.float64(np.float32(x))


@scalar
def _nearest_product(x, y, grid):
    """x * y rounded once to nearest even: a sum with an anchor, of which the product is a part, rounds it exactly."""
    near = x * y
    anchor = power_below(abs(near), grid) * (1.5 * grid.magic)
    return in_range_quickly(near, abs(fma(x, y, anchor) - anchor), grid)


def _of_two(function):
    """The loop of a function of two registers and a grid."""

    @scalar
    def loop(u, v, grid, out):
        for i in range(out.size):
            out[i] = function(u[i], v[i], grid)

    return loop


def _with_scalar(function):
    @scalar
    def loop(u, y, grid, out):
        for i in range(out.size):
            out[i] = function(u[i], y, grid)

    return loop


def _of_one(function):
    @scalar
    def loop(u, grid, out):
        for i in range(out.size):
            out[i] = function(u[i], grid)

    return loop


def _rounding(function):
    @scalar
    def loop(exact, words, grid, out):
        for i in range(out.size):
            out[i] = function(exact[i], words[i], grid)

    return loop


def _undrawn(function):
    return _rounding(scalar(lambda x, word, grid: function(x, grid)))


_sum = _of_two(scalar(lambda x, y, sign: add_odd(x, y, sign)))
_sum_with_scalar = _with_scalar(scalar(lambda x, y, sign: add_odd(x, y, sign)))
_product = _of_two(scalar(lambda x, y, grid: x * y))
_product_with_scalar = _with_scalar(scalar(lambda x, y, grid: multiply_odd(x, y)))
_quotient = _of_two(scalar(lambda x, y, grid: divide_odd(x, y)))
_quotient_by_scalar = _with_scalar(scalar(lambda x, y, grid: divide_odd(x, y)))
_root = _of_one(scalar(lambda x, grid: sqrt_odd(x)))

_nearest_sums = _of_two(scalar(lambda x, y, grid: nearest(x + y, grid)))
_nearest_products = _of_two(scalar(lambda x, y, grid: nearest(x * y, grid)))
_nearest_products_with_scalar = _with_scalar(_nearest_product)
_nearest_quotients = _of_two(scalar(lambda x, y, grid: nearest(x / y, grid)))
_nearest_roots = _of_one(scalar(lambda x, grid: nearest(root(x), grid)))

_single_sums = _of_two(scalar(lambda x, y, grid: _single(x + y, grid)))
_single_products = _of_two(scalar(lambda x, y, grid: _single(x * y, grid)))
_single_quotients = _of_two(scalar(lambda x, y, grid: np.float64(np.float32(x) / np.float32(y))))
_single_roots = _of_one(scalar(lambda x, grid: np.float64(root(np.float32(x)))))

_round_single, _round_nearest = _undrawn(_single), _undrawn(nearest)
_round_directed, _round_to_odd = _undrawn(directed), _undrawn(to_odd)
_round_stochastic, _round_general = _rounding(stochastic), _rounding(general)

_negate = _of_one(scalar(lambda x, grid: -x))
_sign = _of_one(scalar(lambda x, grid: math.copysign(1.0, x) if abs(x) > 0.0 else x + 0.0))
_largest = _of_two(scalar(lambda x, y, grid: x if (x >= y) | (x != x) else y))


@scalar
def _load(x, out):
    for i in range(out.size):
        out[i] = np.float64(x[i])


@scalar
def _store(register, out):
    for i in range(out.size):
        out[i] = np.float32(one_nan(register[i]))


@scalar
def _fill_words(words, packed, first, draw, short):
    """The random words of elements from `first` on, a multiple of 16, of a call."""
    share = 4 if short else 1
    made, seed, call = packed if short else words, draw[0], draw[1]
    group, count = U64(first // (4 * share)), -(-words.size // (4 * share))
    for i in range(count):
        w0, w1, w2, w3 = words_at(group + U64(i), U64(0), call, U64(0), seed)
        made[4 * i], made[4 * i + 1], made[4 * i + 2], made[4 * i + 3] = w0, w1, w2, w3
    if short:
        for i in range(words.size):
            words[i] = np.uint32(packed[i >> 2] >> np.uint32(8 * (i & 3))) << np.uint32(24)


@scalar
def _round(how, exact, words, grid, out):
    """Round a block of exact results in one of the ways of HOW."""
    if how == SINGLE:
        _round_single(exact, words, grid, out)
    elif how == NEAREST:
        _round_nearest(exact, words, grid, out)
    elif how == DIRECTED:
        _round_directed(exact, words, grid, out)
    elif how == TO_ODD:
        _round_to_odd(exact, words, grid, out)
    elif how == STOCHASTIC:
        _round_stochastic(exact, words, grid, out)
    else:
        _round_general(exact, words, grid, out)


@kernel
def run(table, registers, scalars, grids, signs, draws, first, inputs, outputs):
    """Carry out a program on vectors that begin with the element of number `first`; all are as long as the first input.

    `draws` holds, in the row of an instruction that draws, the seed and the call; outputs may be inputs.
    """
    held, made = np.empty((registers, BLOCK), np.float64), np.empty(BLOCK, np.float64)
    words, packed = np.zeros(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    total = inputs[0].size
    for start in range(0, total, BLOCK):
        stop = min(start + BLOCK, total)
        count = stop - start
        for n in range(table.shape[0]):
            what, to, a, b, how, row = table[n]
            grid = unpack(grids[row])
            out = held[to, :count]
            exact = out if how == NOT else made[:count]
            if what == LOAD:
                _load(inputs[a][start:stop], out)
            elif what == STORE:
                _store(held[a, :count], outputs[b][start:stop])
            elif what == FILL:
                out[:] = scalars[a]
            elif what == NEGATE:
                _negate(held[a, :count], grid, exact)
            elif what == SIGN:
                _sign(held[a, :count], grid, exact)
            elif what == LARGEST:
                _largest(held[a, :count], held[b, :count], grid, exact)
            elif what == SUM:
                _sum(held[a, :count], held[b, :count], signs[row], exact)
            elif what == SUM_WITH_SCALAR:
                _sum_with_scalar(held[a, :count], scalars[b], signs[row], exact)
            elif what == PRODUCT:
                _product(held[a, :count], held[b, :count], grid, exact)
            elif what == QUOTIENT:
                _quotient(held[a, :count], held[b, :count], grid, exact)
            elif what == PRODUCT_WITH_SCALAR:
                _product_with_scalar(held[a, :count], scalars[b], grid, exact)
            elif what == QUOTIENT_BY_SCALAR:
                _quotient_by_scalar(held[a, :count], scalars[b], grid, exact)
            elif what == ROOT:
                _root(held[a, :count], grid, exact)
            elif what == NEAREST_SUM:
                _nearest_sums(held[a, :count], held[b, :count], grid, exact)
            elif what == NEAREST_PRODUCT:
                _nearest_products(held[a, :count], held[b, :count], grid, exact)
            elif what == NEAREST_QUOTIENT:
                _nearest_quotients(held[a, :count], held[b, :count], grid, exact)
            elif what == NEAREST_ROOT:
                _nearest_roots(held[a, :count], grid, exact)
            elif what == SINGLE_SUM:
                _single_sums(held[a, :count], held[b, :count], grid, exact)
            elif what == SINGLE_PRODUCT:
                _single_products(held[a, :count], held[b, :count], grid, exact)
            elif what == SINGLE_QUOTIENT:
                _single_quotients(held[a, :count], held[b, :count], grid, exact)
            elif what == SINGLE_ROOT:
                _single_roots(held[a, :count], grid, exact)
            elif what == NEAREST_PRODUCT_WITH_SCALAR:
                _nearest_products_with_scalar(held[a, :count], scalars[b], grid, exact)
            if how != NOT:
                if grid.random_step != 0.0:
                    _fill_words(words[:count], packed, first + start, draws[n], are_bytes(grid))
                _round(how, exact, words, grid, out)
