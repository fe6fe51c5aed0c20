"""Sums in ascending order of k, a thread for every element of the result or for a tile of them: see
`kernels/sequential.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.cuda import cut_steps, instructions
from simfloat.cuda.thread_loops import row_and_column, threads_over
from simfloat.cuda.thread_memory import numbers_from
from simfloat.cuda.thread_random import NO_WORDS, next_four_words, step_word
from simfloat.cuda.thread_tiles import ELEMENT, FEW, QUICK, SIDE_BY_SIDE, PairedLoop, Tile, TileLoop, sum_body
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.halves import fma_halves
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma
from simfloat.kernels.random import draws_are_bytes, element_at, unpack_counter
from simfloat.kernels.sequential import DRAWING
from simfloat.kernels.step_kinds import KINDS, StepOptions, converted_odd_add, native_product, round_wide, wide_product
from simfloat.kernels.unrounded import fma_wide


def stepping(product, add):
    """One product taken into a sum, in a deterministic mode."""

    @scalar
    def step(total, x, y, options):
        return add(total, product(x, y, 0.0, options), 0.0, options)

    return step


def chaining(fma):
    """One product taken into a sum by the hardware's fused multiply-add."""

    @scalar
    def step(total, x, y, options):
        return fma(x, y, total)

    return step


def sequential_random(product, add, rounds_products):
    """Stochastic steps, four at a time: so many have words of their own, or share one.

    Sums draw from the counter's stage, products from the next one.
    """

    @threads_over("out")
    def loop(t, a, b, out, grid_numbers, product_numbers, place, seed):
        options, counter = (
            StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), 1.0, False),
            unpack_counter(place),
        )
        depth, width, short, kind = a.shape[1], out.shape[1], draws_are_bytes(options.grid), out.dtype.type
        i, j = row_and_column(t, out.shape)
        row, column, element = numbers_from(a, i * depth), numbers_from(b, j), element_at(counter, i, j)
        total, words, product_words, k = out[i, j], NO_WORDS, NO_WORDS, 0
        while k < depth:
            words = next_four_words(words, counter, element, k, 0, seed, short)
            if rounds_products:
                product_words = next_four_words(product_words, counter, element, k, 1, seed, short)
            for s in range(4):
                if k + s < depth:
                    x, y, word = row[k + s], column[(k + s) * width], step_word(product_words, s, short)
                    p = kind(product(x, y, word, options))
                    total = kind(add(total, p, step_word(words, s, short), options))
            k += 4
        out[i, j] = total

    return loop


@threads_over("out")
def sequential_wide(t, a, b, out, grid_numbers, product_numbers, sign, place, seed, pair, rounds_products):
    """Steps for any operands, any grid and any mode."""
    grid, counter = unpack_grid(grid_numbers), unpack_counter(place)
    options = StepOptions(grid, unpack_grid(product_numbers), sign, pair != 0)
    (i, j), draws, short = row_and_column(t, out.shape), grid.random_step != 0.0, draws_are_bytes(grid)
    total, element, words, product_words = out[i, j], element_at(counter, i, j), NO_WORDS, NO_WORDS
    for k in range(a.shape[1]):
        if draws and k % 4 == 0:
            words = next_four_words(words, counter, element, k, 0, seed, short)
            product_words = next_four_words(product_words, counter, element, k, 1, seed, short)
        x, y = np.float64(a[i, k]), np.float64(b[k, j])
        if rounds_products:
            x, y = wide_product(x, y, step_word(product_words, k, short), options), 1.0
        high, low, exponent = fma_wide(x, y, total, sign)
        total = round_wide(high, low, exponent, step_word(words, k, short), grid, options.pair)
    out[i, j] = total


def _both_loops(kind: str) -> dict[str, Any]:
    """The loops of a kind of step with exact products and with rounded ones."""
    product, add, *_ = KINDS[kind]
    fused, unfused = (stepping(multiply, add) for multiply in (native_product, product))
    return {f"fused_{kind}": TileLoop(sum_body(fused)), f"unfused_{kind}": TileLoop(sum_body(unfused))}


def _loops_by_instructions(kind: str, fused: Any, element: Tile = ELEMENT) -> dict[str, Any]:
    """Both loops in tiles: for steps of an instruction or a few, where to read the operands takes longer."""
    product, add, *_ = (KINDS | cut_steps.GPU_KINDS)[kind]
    steps = {f"fused_{kind}": fused, f"unfused_{kind}": stepping(product, add)}
    # BESIDE is for float32 by single instructions: 6.0 ms for 4096^3, where 8 by 4 read one by one takes 12.0, 8 by 8
    # 6.8 and 4 by 4 6.6. Reading a step ahead was no gain (7.0 to 7.3), and FP16's pairs were slower in all tiles but 8
    # by 4.
    tiles = (SIDE_BY_SIDE, QUICK) if kind == "native" or kind in instructions.MODES else (QUICK,)
    return {
        name: PairedLoop(sum_body(step), QUICK, element, pairs[name])
        if name in pairs
        else TileLoop(sum_body(step), *tiles, element=element)
        for name, step in steps.items()
    }


def _unfused_pairs(fma, one, minus_zero):
    """An unfused step on pairs of images, by the fused multiply-add alone."""

    @scalar
    def step(total, x, y, options):
        return fma(total, one, fma(x, y, minus_zero))

    return step


#: Loops over pairs of columns, which have all images of 16 bits twice or in twos.
pairs: dict[str, TileLoop] = {}
for _kind, _constants in instructions.PAIRS.items():
    pairs[f"fused_{_kind}"] = TileLoop(sum_body(chaining(_constants[0])), QUICK)
    pairs[f"unfused_{_kind}"] = TileLoop(sum_body(_unfused_pairs(*_constants)), QUICK)


steps: dict[str, Any] = {}
for _kind in ("plain", "odd", "directed", "sticky", "converted"):
    steps |= _both_loops(_kind)
steps["fused_converted_odd"] = TileLoop(sum_body(stepping(native_product, converted_odd_add)))
for _kind, _fma in ({"native": fma, "halves": fma_halves} | instructions.FUSED).items():
    steps |= _loops_by_instructions(_kind, chaining(_fma), FEW)
for _kind, _step in cut_steps.STEPS.items():
    steps |= _loops_by_instructions(_kind, _step)

random_steps = {f"fused_{kind}": sequential_random(native_product, KINDS[kind].add, False) for kind in DRAWING[:3]}
random_steps |= {f"unfused_{kind}": sequential_random(*KINDS[kind][:2], True) for kind in DRAWING}
