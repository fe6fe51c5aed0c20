"""Sums in ascending order of k, a thread for every element of the result: see `kernels/sequential.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.cuda.loop import threads_over
from simfloat.cuda.words import NO_WORDS, word_of, words_for
from simfloat.kernels.exact import fma_wide
from simfloat.kernels.grid import unpack
from simfloat.kernels.halves import fma_halves
from simfloat.kernels.machine import fma
from simfloat.kernels.random import are_bytes, counter_of, element_at
from simfloat.kernels.sequential import DRAWING
from simfloat.kernels.steps import KINDS, converted_odd_add, native_product, round_wide, wide_product


def sequential(product, add):
    """Deterministic steps."""

    @threads_over("out")
    def loop(t, a, b, out, grid_numbers, product_numbers, sign):
        grid, products, kind = unpack(grid_numbers), unpack(product_numbers), out.dtype.type
        i, j = t // out.shape[1], t % out.shape[1]
        total = out[i, j]
        for k in range(a.shape[1]):
            p = kind(product(a[i, k], b[k, j], products, sign, False, 0.0))
            total = kind(add(total, p, grid, sign, False, 0.0))
        out[i, j] = total

    return loop


def chain(fma):
    """Steps that are the hardware's fused multiply-add."""

    @threads_over("out")
    def loop(t, a, b, out, grid_numbers, product_numbers, sign):
        i, j = t // out.shape[1], t % out.shape[1]
        total = out[i, j]
        for k in range(a.shape[1]):
            total = fma(a[i, k], b[k, j], total)
        out[i, j] = total

    return loop


def sequential_random(product, add, rounds_products):
    """Stochastic steps. Sums draw from the counter's stage, products from the next one."""

    @threads_over("out")
    def loop(t, a, b, out, grid_numbers, product_numbers, place, seed):
        grid, products, counter = unpack(grid_numbers), unpack(product_numbers), counter_of(place)
        i, j, short, kind = t // out.shape[1], t % out.shape[1], are_bytes(grid), out.dtype.type
        total, element, words, product_words = out[i, j], element_at(counter, i, j), NO_WORDS, NO_WORDS
        for k in range(a.shape[1]):
            words = words_for(words, counter, element, k, 0, seed, short)
            word = np.uint32(0)
            if rounds_products:
                product_words = words_for(product_words, counter, element, k, 1, seed, short)
                word = word_of(product_words, counter, k, short)
            p = kind(product(a[i, k], b[k, j], products, 1.0, False, word))
            total = kind(add(total, p, grid, 1.0, False, word_of(words, counter, k, short)))
        out[i, j] = total

    return loop


@threads_over("out")
def sequential_wide(t, a, b, out, grid_numbers, product_numbers, sign, place, seed, pair, rounds_products):
    """Steps for any operands, any grid and any mode."""
    grid, products, counter = unpack(grid_numbers), unpack(product_numbers), counter_of(place)
    i, j, draws, short = t // out.shape[1], t % out.shape[1], grid.random_step != 0.0, are_bytes(grid)
    total, element, words, product_words = out[i, j], element_at(counter, i, j), NO_WORDS, NO_WORDS
    for k in range(a.shape[1]):
        if draws:
            words = words_for(words, counter, element, k, 0, seed, short)
            product_words = words_for(product_words, counter, element, k, 1, seed, short)
        x, y = np.float64(a[i, k]), np.float64(b[k, j])
        if rounds_products:
            x, y = wide_product(x, y, products, sign, pair != 0, word_of(product_words, counter, k, short)), 1.0
        high, low, exponent = fma_wide(x, y, total, sign)
        total = round_wide(high, low, exponent, grid, pair != 0, word_of(words, counter, k, short))
    out[i, j] = total


def _fused_and_unfused(kind: str) -> dict[str, Any]:
    """The loops of a kind of step with exact products and with rounded ones."""
    product, add, *_ = KINDS[kind]
    return {f"fused_{kind}": sequential(native_product, add), f"unfused_{kind}": sequential(product, add)}


steps: dict[str, Any] = {}
for _kind in ("plain", "odd", "directed", "to_odd", "converted"):
    steps |= _fused_and_unfused(_kind)
steps["fused_converted_odd"] = sequential(native_product, converted_odd_add)
steps |= {"fused_native": chain(fma), "unfused_native": sequential(*KINDS["native"][:2])}
steps |= {"fused_halves": chain(fma_halves), "unfused_halves": sequential(*KINDS["halves"][:2])}

random_steps = {f"fused_{kind}": sequential_random(native_product, KINDS[kind].add, False) for kind in DRAWING[:3]}
random_steps |= {f"unfused_{kind}": sequential_random(*KINDS[kind][:2], True) for kind in DRAWING}
