"""Sums of products on a GPU, with a thread for every element of the result: the loops of `kernels/sums`.

* By the steps of an order: see `kernels/sums/rows.py`. In a sequential sum, a thread has an element or a tile of them.
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
from simfloat.kernels.elementwise.exact import odd_sum, two_product
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
from simfloat.kernels.gpu.tiles import ELEMENT, FEW, QUICK, SIDE_BY_SIDE, PairedLoop, TileLoop, sum_body
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
    KINDS_OF_ONE_FORMAT,
    Order,
    StepKind,
    StepOptions,
    running_sum,
)
from simfloat.kernels.sums.rows import finish_in_kind, make_loops, step_in_kind
from simfloat.kernels.sums.stacks import row_of_left, top_of_right


def one_sum(step, stages):
    """Return a step of an order with one value in its state, in a deterministic mode."""
    return scalar_from_text(
        f"one_sum(step={step.__name__})",
        "total, x, y, options",
        f"step((total,), x, y, {tuple_text('0.0', stages)}, options)[0]",
        step=step,
    )


def chaining(fma):
    """Return the step that adds one product to a sum by the fused multiply-add of the hardware."""

    @scalar
    def step(total, x, y, options):
        return fma(x, y, total)

    return step


def _unfused_pairs(fma, one, minus_zero):
    """Return an unfused step on pairs of bit patterns, by the fused multiply-add only."""

    @scalar
    def step(total, x, y, options):
        return fma(total, one, fma(x, y, minus_zero))

    return step


#: Loops over pairs of columns, fused and unfused. Words contain 16-bit patterns of `a` twice, and of `b` and `out` in
#: pairs.
pairs = {
    kind: {
        "fused": TileLoop(sum_body(chaining(constants[0])), QUICK),
        "unfused": TileLoop(sum_body(_unfused_pairs(*constants)), QUICK),
    }
    for kind, constants in instructions.PAIRS.items()
}

#: Fused steps of few instructions, which take less time than reading the operands, and the tile of an element.
BY_INSTRUCTIONS = {
    **{
        kind: (chaining(multiply_add), FEW)
        for kind, multiply_add in ({"native": fma, "halves": fma_halves} | instructions.FUSED).items()
    },
    **{kind: (step, ELEMENT) for kind, step in instructions.STEPS.items()},
}


def sequential_loop(order: Order, name: str, kind: StepKind) -> Any:
    """Return the loop of a sequential sum in a deterministic mode, in tiles if its steps are few instructions."""
    step = one_sum(step_in_kind(order, kind), order.stages)
    if name not in BY_INSTRUCTIONS:
        return TileLoop(sum_body(step))
    fused, element = BY_INSTRUCTIONS[name]
    body = sum_body(fused if order.fuses else step)
    if name in pairs:
        return PairedLoop(body, QUICK, element, pairs[name]["fused" if order.fuses else "unfused"])
    # SIDE_BY_SIDE is for float32 by single instructions: 6.0 ms for 4096^3, compared with 12.0 for 8 by 4 read one by
    # one, 6.8 for 8 by 8 and 6.6 for 4 by 4. Reading a step ahead was no gain (7.0 to 7.3), and FP16 pairs were slower
    # in all tiles except 8 by 4.
    tiles = (SIDE_BY_SIDE, QUICK) if name == "native" or name in instructions.MODES else (QUICK,)
    return TileLoop(body, *tiles, element=element)


def deterministic_loop(step: Any, finish: Any, state: int, stages: int) -> Any:
    """Return the loop for deterministic steps of states of several values."""
    first_state = scalar_from_text("first_state", "number, zero", f"(number, {tuple_text('zero', state - 1)[1:]}")
    state_in_type = scalar_from_text("kept_state", "state, kind", tuple_text("kind(state[{}])", state))
    no_draws = (0.0,) * stages

    @threads_over("out")
    def loop(t, a, b, out, grid_numbers, product_numbers, sign):
        kind = out.dtype.type
        options = StepOptions(unpack_grid(grid_numbers), unpack_grid(product_numbers), sign, False)
        i, j = row_and_column(t, out.shape)
        depth, width = a.shape[1], out.shape[1]
        row, column = (
            numbers_from(a, row_of_left(a, i) * depth),
            numbers_from(b, top_of_right(a, b, out, i) * width + j),
        )
        numbers_of_state = first_state(out[i, j], kind(0))
        x, y = first_factors(a, b, row, column)
        for k in range(depth):
            next_x, next_y = next_factors(row, column, k, depth, width)
            numbers_of_state = state_in_type(step(numbers_of_state, x, y, no_draws, options), kind)
            x, y = next_x, next_y
        out[i, j] = kind(finish(numbers_of_state, 0.0, options))

    return loop


def stochastic_loop(step: Any, finish: Any, state: int, stages: int, drawing: bool | None) -> Any:
    """Return the loop for steps that may be stochastic; `drawing` is None if the grid decides.

    One call of Philox has the words of four steps, or one word has their draws.
    """
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
    def loop(t, a, b, out, grid_numbers, product_numbers, sign, pair, place, seed):
        grid, counter, kind = unpack_grid(grid_numbers), unpack_counter(place), out.dtype.type
        options = StepOptions(grid, unpack_grid(product_numbers), sign, pair != 0)
        draws, short = drawing or grid.random_step != 0.0, draws_are_bytes(grid)
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
    if kind.draws is False and order.state == 1:
        return sequential_loop(order, name, kind)
    step, finish = step_in_kind(order, kind), finish_in_kind(order, kind)
    if kind.draws is False:
        return deterministic_loop(step, finish, order.state, order.stages)
    return stochastic_loop(step, finish, order.state, order.stages, kind.draws)


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
