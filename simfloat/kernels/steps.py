"""The rounded operations that sums are made of, in the kinds that their loops are specialised for.

Every kind has two functions: `product(x, y, grid, sign, pair, word)` and `add(a, b, grid, sign, pair, word)`, each the
exact result rounded once. They differ in what they must take care of:

* native: the carrier's own operations are wanted (FP64, and FP32 on FP32 operands);
* plain: the carrier's sum, rounded again, is right (nearest even);
* odd: the carrier's sum is moved to odd first (nearest even);
* directed: the other deterministic modes; `sign` is -1 under toward_negative, where x - x is -0;
* random: stochastic modes of few bits, by the random `word`;
* wide: any operands, grid and mode, without haste; `pair` if draws need more than float64's bits.
"""

from __future__ import annotations

import numba
import numpy as np

from simfloat.kernels.exact import add_odd, add_wide, multiply_wide, odd_of, odd_sum
from simfloat.kernels.jit import scalar
from simfloat.kernels.random import words_at
from simfloat.kernels.rounding import directed, general, nearest, stochastic, stochastic_pair

U64 = np.uint64


@scalar
def native_product(x, y, grid, sign, pair, word):
    """The carrier's product."""
    return x * y


@scalar
def native_add(a, b, grid, sign, pair, word):
    """The carrier's sum."""
    return a + b


@scalar
def nearest_product(x, y, grid, sign, pair, word):
    """A product that the carrier holds, rounded to nearest even."""
    return nearest(x * y, grid)


@scalar
def plain_add(a, b, grid, sign, pair, word):
    """A sum whose second rounding does no harm."""
    return nearest(a + b, grid)


@scalar
def odd_add(a, b, grid, sign, pair, word):
    """A sum that is rounded to odd before it is rounded to nearest even."""
    return nearest(odd_sum(a, b), grid)


@scalar
def directed_product(x, y, grid, sign, pair, word):
    """A product that the carrier holds, in a directed mode."""
    return directed(x * y, grid)


@scalar
def directed_add(a, b, grid, sign, pair, word):
    """A sum in a directed mode."""
    return directed(add_odd(a, b, sign), grid)


@scalar
def random_product(x, y, grid, sign, pair, word):
    """A product that the carrier holds, rounded at random."""
    return stochastic(x * y, word, grid)


@scalar
def random_add(a, b, grid, sign, pair, word):
    """A sum rounded at random."""
    return stochastic(odd_sum(a, b), word, grid)


# Not inlined: a loop holds several of them.
@numba.njit(error_model="numpy")
def round_wide(high, low, exponent, grid, pair, word):
    """(high + low) * 2^exponent rounded once, in any mode to any grid."""
    if pair:
        return stochastic_pair(high, low, exponent, np.uint32(word), grid)
    return general(odd_of(high, low, exponent), np.uint32(word), grid)


@numba.njit(error_model="numpy")
def wide_product(x, y, grid, sign, pair, word):
    """A product of any operands."""
    high, low, exponent = multiply_wide(x, y)
    return round_wide(high, low, exponent, grid, pair, word)


@numba.njit(error_model="numpy")
def wide_add(a, b, grid, sign, pair, word):
    """A sum of any operands."""
    high, low, exponent = add_wide(a, b, sign)
    return round_wide(high, low, exponent, grid, pair, word)


#: What a loop binds for a kind of step.
KINDS = {
    "native": dict(product=native_product, add=native_add, draws=False),
    "plain": dict(product=nearest_product, add=plain_add, draws=False),
    "odd": dict(product=nearest_product, add=odd_add, draws=False),
    "directed": dict(product=directed_product, add=directed_add, draws=False),
    "random": dict(product=random_product, add=random_add, draws=True),
    "wide": dict(product=wide_product, add=wide_add, draws=True),
}


@scalar
def fill_words(words, columns, place, i, left, step, stage, seed):
    """The words of the steps step to step + 3, at a row of elements; `place` is that of accumulate.Place."""
    element = U64(place[0] + i * place[1] + left * place[2])
    for j in range(columns):
        w0, w1, w2, w3 = words_at(
            element + U64(j) * U64(place[2]), U64(place[5] + step), U64(place[3]), U64(place[4] + stage), seed
        )
        words[0, j], words[1, j], words[2, j], words[3, j] = w0, w1, w2, w3
