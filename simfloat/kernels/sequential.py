"""Sums in ascending order of k, rounded at every step: sum = round(sum + a * b).

`a` is (m, k), `b` is (k, n), `out` is (m, n), all of one type, the carrier in which the steps compute. The innermost
loop runs over columns, whose sums are independent, so LLVM vectorises it; a block of `b` is used for every row while
it stays in the cache. The steps differ, the loop does not.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.exact import add_odd, fma_wide, multiply_wide, odd_of, odd_sum
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel, scalar, specialize
from simfloat.kernels.machine import fma
from simfloat.kernels.random import words_at
from simfloat.kernels.rounding import directed, general, nearest, stochastic_from, stochastic_pair, threshold, to_odd

COLUMNS, DEPTH = 512, 16
U64 = np.uint64


def _sequential(a, b, out, grid_numbers, product_numbers, sign):
    """Deterministic steps. Each waits for the one before it, so short rows take turns: COLUMNS sums are under way."""
    grid, products = unpack(grid_numbers), unpack(product_numbers)
    out[:] = 0
    for left in range(0, out.shape[1], COLUMNS):
        right = min(left + COLUMNS, out.shape[1])
        rows = COLUMNS // (right - left)
        for first in range(0, a.shape[1], DEPTH):
            for top in range(0, out.shape[0], rows):
                for k in range(first, min(first + DEPTH, a.shape[1])):
                    for i in range(top, min(top + rows, out.shape[0])):
                        x, row, sums = a[i, k], b[k, left:right], out[i, left:right]
                        for j in range(sums.size):
                            sums[j] = step(sums[j], x, row[j], grid, products, sign)  # noqa: F821


@kernel
def fma_chain(a, b, out, grid_numbers, product_numbers, sign):
    """Steps that are the hardware's fused multiply-add: four at a time, so that a sum is loaded once for all four."""
    out[:] = 0
    for left in range(0, out.shape[1], COLUMNS):
        right = min(left + COLUMNS, out.shape[1])
        for first in range(0, a.shape[1], DEPTH):
            last = min(first + DEPTH, a.shape[1])
            for i in range(out.shape[0]):
                sums = out[i, left:right]
                for k in range(first, last - 3, 4):
                    w, x, y, z = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
                    p, q, r, s = b[k, left:right], b[k + 1, left:right], b[k + 2, left:right], b[k + 3, left:right]
                    for j in range(sums.size):
                        sums[j] = fma(z, s[j], fma(y, r[j], fma(x, q[j], fma(w, p[j], sums[j]))))
                for k in range(last - (last - first) % 4, last):
                    w, p = a[i, k], b[k, left:right]
                    for j in range(sums.size):
                        sums[j] = fma(w, p[j], sums[j])


def _sequential_random(a, b, out, grid_numbers, product_numbers, place, seed):
    """Stochastic steps; `place` is that of accumulate.Place. Sums draw from its stage, products from the next one."""
    grid, products = unpack(grid_numbers), unpack(product_numbers)
    call, stage = U64(place[3]), U64(place[4])
    parts, product_parts = np.empty((4, COLUMNS)), np.empty((4, COLUMNS))
    out[:] = 0
    for left in range(0, out.shape[1], COLUMNS):
        right = min(left + COLUMNS, out.shape[1])
        for i in range(out.shape[0]):
            sums = out[i, left:right]
            element = U64(place[0] + i * place[1] + left * place[2])
            for first in range(0, a.shape[1], 4):
                step = U64(place[5] + first)
                _draw(parts, sums.size, element, U64(place[2]), step, call, stage, seed, grid)
                if rounds_products:  # noqa: F821
                    next_stage = stage + U64(1)
                    _draw(product_parts, sums.size, element, U64(place[2]), step, call, next_stage, seed, products)
                for k in range(first, min(first + 4, a.shape[1])):
                    x, row, draws, product_draws = a[i, k], b[k, left:right], parts[k - first], product_parts[k - first]
                    for j in range(sums.size):
                        product = x * row[j]
                        if rounds_products:  # noqa: F821
                            product = stochastic_from(product, product_draws[j], products)
                        sums[j] = stochastic_from(add(sums[j], product), draws[j], grid)  # noqa: F821


@scalar
def _draw(parts, columns, element, column_step, step, call, stage, seed, grid):
    """The thresholds of four steps for a row of elements, as parts of a binade."""
    for j in range(columns):
        w0, w1, w2, w3 = words_at(element, step, call, stage, seed)
        parts[0, j], parts[1, j] = threshold(w0, grid), threshold(w1, grid)
        parts[2, j], parts[3, j] = threshold(w2, grid), threshold(w3, grid)
        element += column_step


@kernel
def sequential_wide(a, b, out, grid_numbers, product_numbers, sign, place, seed, pair, rounds_products):
    """Steps for any operands, any grid and any mode, without haste; `pair` if draws need more than float64's bits."""
    grid, products = unpack(grid_numbers), unpack(product_numbers)
    u = U64
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            element = u(place[0] + i * place[1] + j * place[2])
            total, words, product_words = 0.0, (u(0), u(0), u(0), u(0)), (u(0), u(0), u(0), u(0))
            for k in range(a.shape[1]):
                if k % 4 == 0 and grid.random_step != 0.0:
                    words = words_at(element, u(place[5] + k), u(place[3]), u(place[4]), seed)
                    product_words = words_at(element, u(place[5] + k), u(place[3]), u(place[4] + 1), seed)
                x, y = np.float64(a[i, k]), np.float64(b[k, j])
                if rounds_products:
                    product = _round_wide(multiply_wide(x, y), product_words[k % 4], products, pair)
                    exact = fma_wide(product, 1.0, total, sign)
                else:
                    exact = fma_wide(x, y, total, sign)
                total = _round_wide(exact, words[k % 4], grid, pair)
            out[i, j] = total


@scalar
def _round_wide(exact, word, grid, pair):
    high, low, exponent = exact
    if pair:
        return stochastic_pair(high, low, exponent, np.uint32(word), grid)
    return general(odd_of(high, low, exponent), np.uint32(word), grid)


@scalar
def _fused_plain(total, x, y, grid, products, sign):
    return nearest(total + x * y, grid)


@scalar
def _fused_odd(total, x, y, grid, products, sign):
    return nearest(odd_sum(total, x * y), grid)


@scalar
def _unfused_plain(total, x, y, grid, products, sign):
    return nearest(total + nearest(x * y, products), grid)


@scalar
def _unfused_odd(total, x, y, grid, products, sign):
    return nearest(odd_sum(total, nearest(x * y, products)), grid)


@scalar
def _fused_directed(total, x, y, grid, products, sign):
    return directed(add_odd(total, x * y, sign), grid)


@scalar
def _unfused_directed(total, x, y, grid, products, sign):
    return directed(add_odd(total, directed(x * y, products), sign), grid)


@scalar
def _fused_to_odd(total, x, y, grid, products, sign):
    return to_odd(odd_sum(total, x * y), grid)


@scalar
def _unfused_to_odd(total, x, y, grid, products, sign):
    return to_odd(odd_sum(total, to_odd(x * y, products)), grid)


#: Loops by the kind of step; (a, b, out, grid_numbers, product_numbers, sign).
steps = {
    name: specialize(_sequential, f"sequential_{name}", step=step)
    for name, step in {
        "fused_plain": _fused_plain,
        "fused_odd": _fused_odd,
        "unfused_plain": _unfused_plain,
        "unfused_odd": _unfused_odd,
        "fused_directed": _fused_directed,
        "unfused_directed": _unfused_directed,
        "fused_to_odd": _fused_to_odd,
        "unfused_to_odd": _unfused_to_odd,
    }.items()
}
steps["native"] = fma_chain


@scalar
def _plain_sum(a, b):
    return a + b


#: Stochastic loops; (a, b, out, grid_numbers, product_numbers, place, seed).
random_steps = {
    f"{kind}_{sum}": specialize(
        _sequential_random, f"sequential_random_{kind}_{sum}", rounds_products=kind == "unfused", add=add
    )
    for kind in ("fused", "unfused")
    for sum, add in {"plain": _plain_sum, "odd": odd_sum}.items()
}
