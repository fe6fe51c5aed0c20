"""Sums of products on a GPU, with a thread for every element of the result: the loops of `kernels/sums`.

* Sequential, with a thread for an element or for a tile of elements: see `kernels/sums/sequential.py`.
* By the steps of an order: see `kernels/sums/rows.py`.
* Pairwise: see `kernels/sums/trees.py`. The tree is walked in the same way, product by product: sums that wait for
  their right neighbours are on the thread's stack, each with the word of its first product.
* In the order of a program: see `kernels/sums/trees.py`.
* Exact, in pieces on a few grids: see `kernels/sums/exact.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, shift_left
from simfloat.kernels.compile.jit import scalar, scalar_from_text, tuple_text
from simfloat.kernels.elementwise.exact import fma_wide, odd_sum, two_product
from simfloat.kernels.elementwise.half import fma_halves
from simfloat.kernels.gpu import instructions
from simfloat.kernels.gpu.elementwise import NO_WORDS, next_four_words, step_word
from simfloat.kernels.gpu.instructions import GPU_KINDS
from simfloat.kernels.gpu.threads import (
    first_factors,
    next_factors,
    numbers_from,
    row_and_column,
    thread_stack,
    threads_over,
)
from simfloat.kernels.gpu.tiles import ELEMENT, FEW, QUICK, SIDE_BY_SIDE, PairedLoop, Tile, TileLoop, sum_body
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.random import (
    draw_shift,
    draws_are_bytes,
    element_at,
    unpack_counter,
    word_index,
    words_of_sum,
)
from simfloat.kernels.sums.orders import (
    KINDS,
    KINDS_OF_ONE_FORMAT,
    Order,
    StepKind,
    StepOptions,
    converted_odd_add,
    native_product,
    round_wide,
    running_sum,
    wide_product,
)
from simfloat.kernels.sums.rows import finish_in_kind, make_loops, row_of_left, step_in_kind, top_of_right
from simfloat.kernels.sums.sequential import DRAWING


def stepping(product, add):
    """Return the step that adds one product to a sum, in a deterministic mode."""

    @scalar
    def step(total, x, y, options):
        return add(total, product(x, y, 0.0, options), 0.0, options)

    return step


def chaining(fma):
    """Return the step that adds one product to a sum by the fused multiply-add of the hardware."""

    @scalar
    def step(total, x, y, options):
        return fma(x, y, total)

    return step


def sequential_random(product, add, rounds_products):
    """Return the loop of stochastic steps, four at a time.

    One call of Philox has the words of four steps, or one word has their draws. Sums draw from the stage of the
    counter, products from the next stage.
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
    """Sum with any operands, any grid and any mode."""
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
    """Return the loops of a kind of step with exact products and with rounded ones."""
    product, add, *_ = KINDS[kind]
    fused, unfused = (stepping(multiply, add) for multiply in (native_product, product))
    return {f"fused_{kind}": TileLoop(sum_body(fused)), f"unfused_{kind}": TileLoop(sum_body(unfused))}


def _loops_by_instructions(kind: str, fused: Any, element: Tile = ELEMENT) -> dict[str, Any]:
    """Return both loops in tiles, for steps of few instructions, which take less time than reading the operands."""
    product, add, *_ = (KINDS | instructions.GPU_KINDS)[kind]
    steps = {f"fused_{kind}": fused, f"unfused_{kind}": stepping(product, add)}
    # SIDE_BY_SIDE is for float32 by single instructions: 6.0 ms for 4096^3, compared with 12.0 for 8 by 4 read one by
    # one, 6.8 for 8 by 8 and 6.6 for 4 by 4. Reading a step ahead was no gain (7.0 to 7.3), and FP16 pairs were slower
    # in all tiles except 8 by 4.
    tiles = (SIDE_BY_SIDE, QUICK) if kind == "native" or kind in instructions.MODES else (QUICK,)
    return {
        name: PairedLoop(sum_body(step), QUICK, element, pairs[name])
        if name in pairs
        else TileLoop(sum_body(step), *tiles, element=element)
        for name, step in steps.items()
    }


def _unfused_pairs(fma, one, minus_zero):
    """Return an unfused step on pairs of bit patterns, by the fused multiply-add only."""

    @scalar
    def step(total, x, y, options):
        return fma(total, one, fma(x, y, minus_zero))

    return step


#: Loops over pairs of columns. Words contain 16-bit patterns of `a` twice, and of `b` and `out` in pairs.
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
for _kind, _step in instructions.STEPS.items():
    steps |= _loops_by_instructions(_kind, _step)

random_steps = {f"fused_{kind}": sequential_random(native_product, KINDS[kind].add, False) for kind in DRAWING[:3]}
random_steps |= {f"unfused_{kind}": sequential_random(*KINDS[kind][:2], True) for kind in DRAWING}


def loop(step: Any, finish: Any, state: int, stages: int, drawing: bool | None) -> Any:
    """Return the loop for steps; `drawing` is True for stochastic steps, and None if the grid decides."""
    first_state = scalar_from_text("first_state", "number, zero", f"(number, {tuple_text('zero', state - 1)[1:]}")
    state_in_type = scalar_from_text("kept_state", "state, kind", tuple_text("kind(state[{}])", state))
    no_words, finishes = (NO_WORDS,) * stages, finish is not running_sum
    draws_of = scalar_from_text(
        "draws_of", "words, k, short", tuple_text("word_of(words[{}], k, short)", stages), word_of=step_word
    )
    next_words = scalar_from_text(
        "next_words",
        "words, counter, element, k, seed, short",
        tuple_text("words_from(words[{}], counter, element, k, {}, seed, short)", stages),
        words_from=next_four_words,
    )

    @threads_over("out")
    def loop(t, a, b, out, grid_numbers, sign, pair, place, seed):
        grid, counter, kind = unpack_grid(grid_numbers), unpack_counter(place), out.dtype.type
        options = StepOptions(grid, grid, sign, pair != 0)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        i, j = row_and_column(t, out.shape)
        depth, width, element = a.shape[1], out.shape[1], element_at(counter, i, j)
        row, column = (
            numbers_from(a, row_of_left(a, i) * depth),
            numbers_from(b, top_of_right(a, b, out, i) * width + j),
        )
        numbers_of_state, words = first_state(out[i, j], kind(0)), no_words
        x, y = first_factors(a, b, row, column)
        for k in range(depth):
            if draws and k % 4 == 0:
                words = next_words(words, counter, element, k, seed, short)
            next_x, next_y = next_factors(row, column, k, depth, width)
            new = step(numbers_of_state, x, y, draws_of(words, k, short), options)
            numbers_of_state, x, y = state_in_type(new, kind), next_x, next_y
        if draws and finishes:
            words = next_words(words, counter, element, 0, seed, short)
        out[i, j] = kind(finish(numbers_of_state, draws_of(words, 0, short)[stages - 1], options))

    return loop


def _loop(order: Order, name: str, kind: StepKind) -> Any:
    """Return the loop of an order with a kind of operations."""
    return loop(step_in_kind(order, kind), finish_in_kind(order, kind), order.state, order.stages, kind.draws)


stepwise_loops = make_loops(_loop, GPU_KINDS)


def pairwise(product, add, drawing):
    """Return the loop for pairwise sums; `drawing` is True for stochastic steps, and None if the grid decides."""

    @threads_over("out")
    def loop(t, a, b, out, grid_numbers, sign, pair, place, seed):
        grid, counter, terms = unpack_grid(grid_numbers), unpack_counter(place), a.shape[1]
        options = StepOptions(grid, grid, sign, pair != 0)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        i, j = row_and_column(t, out.shape)
        width = out.shape[1]
        row, column = (
            numbers_from(a, row_of_left(a, i) * terms),
            numbers_from(b, top_of_right(a, b, out, i) * width + j),
        )
        x, y = first_factors(a, b, row, column)
        element, words, product_words = element_at(counter, i, j), NO_WORDS, NO_WORDS
        stack, waiting, depth = thread_stack(out[i, j]), thread_stack(step_word(words, 0, short)), 0
        for k in range(terms):
            if draws and k % 4 == 0:
                words = next_four_words(words, counter, element, k, 0, seed, short)
                product_words = next_four_words(product_words, counter, element, k, 1, seed, short)
            next_x, next_y = next_factors(row, column, k, terms, width)
            stack[depth] = product(x, y, step_word(product_words, k, short), options)
            x, y = next_x, next_y
            waiting[depth] = step_word(words, k, short)
            # `complete` has a 1 for every neighbour that waits to be added; at the end all bits are 1.
            depth, complete = depth + 1, k if k + 1 < terms else -1
            while depth > 1 and complete & 1:
                depth, complete = depth - 1, complete >> 1
                stack[depth - 1] = add(stack[depth - 1], stack[depth], waiting[depth], options)
        if terms > 0:
            out[i, j] = stack[0]

    return loop


pairwise_loops = {
    name: pairwise(kind.product, kind.add, kind.draws) for name, kind in (KINDS_OF_ONE_FORMAT | GPU_KINDS).items()
}


@scalar
def word_at(counter, element, step, stage, seed, short):
    """Return the word of a step, with its draw on top."""
    first = step - step % (16 if short else 4)
    words = words_of_sum(counter, element, word_index(counter.step + first, short), stage, seed)
    return shift_left(np.uint32(words[step % 16 // 4 if short else step % 4]), draw_shift(step, short))


def program_order_loop(product, add, drawing):
    """Return the loop for sums in program order; `drawing` is True for stochastic steps, None if the grid decides."""

    @threads_over("out")
    def loop(t, a, b, out, program, grid_numbers, sign, pair, place, seed):
        grid, counter, terms = unpack_grid(grid_numbers), unpack_counter(place), a.shape[1]
        options = StepOptions(grid, grid, sign, pair != 0)
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), draws_are_bytes(grid)
        i, j = row_and_column(t, out.shape)
        row, top = row_of_left(a, i), top_of_right(a, b, out, i)
        element, word = element_at(counter, i, j), np.uint32(0)
        stack, depth = thread_stack(out[i, j]), 0
        for n in range(program.size):
            k = program[n]
            if draws and k < terms:
                word = word_at(counter, element, k if k >= 0 else -1 - k, 1 if k >= 0 else 0, seed, short)
            if k >= terms:
                stack[depth] = 0
                depth += 1
            elif k >= 0:
                stack[depth] = product(a[row, k], b[top + k, j], word, options)
                depth += 1
            else:
                depth -= 1
                stack[depth - 1] = add(stack[depth - 1], stack[depth], word, options)
        out[i, j] = stack[0]

    return loop


tree_loops = {
    name: program_order_loop(kind.product, kind.add, kind.draws)
    for name, kind in (KINDS_OF_ONE_FORMAT | GPU_KINDS).items()
}


@scalar
def _add_pieces(rest, bins, i, j, anchors):
    """Add the pieces of a number to the bins; the remainder becomes zero."""
    for t in range(len(anchors)):
        piece = (rest + anchors[t]) - anchors[t]
        bins[t, i, j] += piece
        rest -= piece


@threads_over("start")
def bin_sums(t, a, b, start, bins, anchors, exact_products):
    """Compute bins (t, m, n): pieces of start + a (m, k) times b (k, n) on the grids of `anchors` (t), coarse to
    fine.
    """
    i, j = t // start.shape[1], t % start.shape[1]
    for g in range(len(anchors)):
        bins[g, i, j] = 0.0
    _add_pieces(start[i, j], bins, i, j, anchors)
    for k in range(a.shape[1]):
        product, error = two_product(a[i, k], b[k, j])
        if exact_products == 0:
            _add_pieces(error if abs(product) < np.inf else 0.0, bins, i, j, anchors)
        _add_pieces(product, bins, i, j, anchors)


@threads_over("bins")
def _carry(t, bins, anchors):
    i, j = t // bins.shape[2], t % bins.shape[2]
    for g in range(len(anchors) - 1, 0, -1):
        piece = (bins[g, i, j] + anchors[g - 1]) - anchors[g - 1]
        # The remainder of an infinite product is NaN; the infinity itself is in the first bin.
        bins[g - 1, i, j] += piece if piece == piece else 0.0
        bins[g, i, j] -= piece


def carry(bins, anchors):
    """Round each bin to the grid of the next coarser bin, and move that part there; the total does not change."""
    _carry.start(bins[0].size, bins, anchors)


@threads_over("out")
def odd_totals(t, bins, out):
    """Round the totals of carried bins to odd in at least 52 bits; infinite and NaN totals are in the first bin."""
    i, j = t // out.shape[1], t % out.shape[1]
    total = 0.0
    for g in range(bins.shape[0] - 1, -1, -1):
        total = odd_sum(bins[g, i, j], total)
    out[i, j] = total if abs(bins[0, i, j]) < np.inf else bins[0, i, j]
