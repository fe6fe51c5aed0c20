"""The rounded operations that sums are made of, in the kinds that their loops are specialised for.

Every kind has two functions: `product(x, y, grid, sign, pair, draw)` and `add(a, b, grid, sign, pair, draw)`, each the
exact result rounded once. They differ in what they must take care of:

* native: the carrier's own operations are wanted (FP64, and FP32 on FP32 operands);
* plain: the carrier's sum, rounded again, is right (nearest even);
* odd: the carrier's sum is moved to odd first (nearest even);
* directed and to_odd: the other deterministic modes; `sign` is -1 under toward_negative, where x - x is -0;
* random_plain and random_odd: stochastic modes of few bits, without and with moving sums to odd; `draw` is the
  threshold of a random word;
* wide: any operands, grid and mode, without haste; `draw` is the word, `pair` if it has more bits than float64 shows.
"""

from __future__ import annotations

import numba
import numpy as np

from simfloat.kernels.exact import add_odd, add_wide, double_of, multiply_wide, odd_of, odd_sum
from simfloat.kernels.jit import scalar
from simfloat.kernels.random import words_at
from simfloat.kernels.rounding import (
    directed,
    general,
    in_range,
    nearest,
    stochastic_from,
    stochastic_pair,
    threshold,
    to_odd,
)

U64 = np.uint64


@scalar
def native_product(x, y, grid, sign, pair, draw):
    """The carrier's product."""
    return x * y


@scalar
def native_add(a, b, grid, sign, pair, draw):
    """The carrier's sum."""
    return a + b


@scalar
def nearest_product(x, y, grid, sign, pair, draw):
    """A product that the carrier holds, rounded to nearest even."""
    return nearest(x * y, grid)


@scalar
def plain_add(a, b, grid, sign, pair, draw):
    """A sum whose second rounding does no harm."""
    return nearest(a + b, grid)


@scalar
def odd_add(a, b, grid, sign, pair, draw):
    """A sum that is rounded to odd before it is rounded to nearest even."""
    return nearest(odd_sum(a, b), grid)


@scalar
def directed_product(x, y, grid, sign, pair, draw):
    """A product that the carrier holds, in a directed mode."""
    return directed(x * y, grid)


@scalar
def directed_add(a, b, grid, sign, pair, draw):
    """A sum in a directed mode."""
    return directed(add_odd(a, b, sign), grid)


@scalar
def to_odd_product(x, y, grid, sign, pair, draw):
    """A product that the carrier holds, rounded to odd."""
    return to_odd(x * y, grid)


@scalar
def to_odd_add(a, b, grid, sign, pair, draw):
    """A sum rounded to odd."""
    return to_odd(odd_sum(a, b), grid)


@scalar
def random_product(x, y, grid, sign, pair, draw):
    """A product that the carrier holds, rounded at random."""
    return stochastic_from(x * y, draw, grid)


@scalar
def random_add(a, b, grid, sign, pair, draw):
    """A sum rounded at random where a draw cannot tell the carrier's sum from the exact one."""
    return stochastic_from(a + b, draw, grid)


@scalar
def random_odd_add(a, b, grid, sign, pair, draw):
    """A sum rounded at random, moved to odd first."""
    return stochastic_from(odd_sum(a, b), draw, grid)


# Not inlined: a loop holds several of them.
@numba.njit(error_model="numpy")
def round_wide(high, low, exponent, grid, pair, draw):
    """(high + low) * 2^exponent rounded once, in any mode to any grid."""
    if pair:
        return stochastic_pair(high, low, exponent, np.uint32(draw), grid)
    if grid.mantissa_bits == 52.0:
        # For FP64 itself, round-to-odd has no bits to spare.
        double = double_of(high, low, exponent)
        return in_range(double, abs(double), grid)
    return general(odd_of(high, low, exponent), np.uint32(draw), grid)


@numba.njit(error_model="numpy")
def wide_product(x, y, grid, sign, pair, draw):
    """A product of any operands."""
    high, low, exponent = multiply_wide(x, y)
    return round_wide(high, low, exponent, grid, pair, draw)


@numba.njit(error_model="numpy")
def wide_add(a, b, grid, sign, pair, draw):
    """A sum of any operands."""
    high, low, exponent = add_wide(a, b, sign)
    return round_wide(high, low, exponent, grid, pair, draw)


#: What a loop binds for a kind of step: its two functions, and whether it draws words, or thresholds.
KINDS = {
    "native": dict(product=native_product, add=native_add, words=False, thresholds=False),
    "plain": dict(product=nearest_product, add=plain_add, words=False, thresholds=False),
    "odd": dict(product=nearest_product, add=odd_add, words=False, thresholds=False),
    "directed": dict(product=directed_product, add=directed_add, words=False, thresholds=False),
    "to_odd": dict(product=to_odd_product, add=to_odd_add, words=False, thresholds=False),
    "random_plain": dict(product=random_product, add=random_add, words=False, thresholds=True),
    "random_odd": dict(product=random_product, add=random_odd_add, words=False, thresholds=True),
    "wide": dict(product=wide_product, add=wide_add, words=True, thresholds=False),
}


@scalar
def fill_draws(draws, columns, place, i, left, step, stage, seed, grid, words):
    """The draws of the steps step to step + 3 at a row of elements, as words or else as thresholds.

    `place` is that of accumulate.Place.
    """
    element, column_step, first = U64(place[0] + i * place[1] + left * place[2]), U64(place[2]), U64(place[5] + step)
    call, number = U64(place[3]), U64(place[4] + stage)
    for j in range(columns):
        w0, w1, w2, w3 = words_at(element, first, call, number, seed)
        if words:
            draws[0, j], draws[1, j], draws[2, j], draws[3, j] = w0, w1, w2, w3
        else:
            draws[0, j], draws[1, j] = threshold(w0, grid), threshold(w1, grid)
            draws[2, j], draws[3, j] = threshold(w2, grid), threshold(w3, grid)
        element += column_step
