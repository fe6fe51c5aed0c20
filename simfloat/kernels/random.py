"""Random bits from a counter: each number depends on where it is used, never on what was drawn before.

The generator is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011), which passes BigCrush; the tests hold it to the known answers of its authors' Random123 library. A seed
is the key. The counter is (element, step / 4, call, stage), so that any thread and any block finds its bits alone:

* element: position in the result, in C order (a plain rounding takes word i % 4 of element i / 4);
* step: the k of a sum, whose word is step % 4;
* call: the number that the stream gave to the call;
* stage: which rounding of the call draws; 0 is the result itself.

A draw is the upper bits of its word; one of at most 8 bits, of its byte: four draws share a word. Where a longer draw
is that of step (or element) n, a short one takes byte n % 4, the lowest first, of the word of n / 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from simfloat.kernels.jit import kernel, reader, scalar

U64 = np.uint64
LOW = U64(0xFFFFFFFF)
HALF = U64(32)
MULTIPLY_0, MULTIPLY_1 = U64(0xD2511F53), U64(0xCD9E8D57)
WEYL_0, WEYL_1 = U64(0x9E3779B9), U64(0xBB67AE85)


@scalar
def _turn(c0, c1, c2, c3, k0, k1):
    """One round of Philox4x32, on 32-bit words in 64-bit variables."""
    a, b = MULTIPLY_0 * c0, MULTIPLY_1 * c2
    return (b >> HALF) ^ c1 ^ k0, b & LOW, (a >> HALF) ^ c3 ^ k1, a & LOW


@scalar
def philox(c0, c1, c2, c3, k0, k1):
    """Four random words for a counter of four words and a key of two: Philox4x32-10.

    The ten rounds stand one by one, since a loop inside would keep LLVM from vectorising the loop outside.
    """
    c0, c1, c2, c3 = _turn(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3 = _turn(c0, c1, c2, c3, (k0 + U64(1) * WEYL_0) & LOW, (k1 + U64(1) * WEYL_1) & LOW)
    c0, c1, c2, c3 = _turn(c0, c1, c2, c3, (k0 + U64(2) * WEYL_0) & LOW, (k1 + U64(2) * WEYL_1) & LOW)
    c0, c1, c2, c3 = _turn(c0, c1, c2, c3, (k0 + U64(3) * WEYL_0) & LOW, (k1 + U64(3) * WEYL_1) & LOW)
    c0, c1, c2, c3 = _turn(c0, c1, c2, c3, (k0 + U64(4) * WEYL_0) & LOW, (k1 + U64(4) * WEYL_1) & LOW)
    c0, c1, c2, c3 = _turn(c0, c1, c2, c3, (k0 + U64(5) * WEYL_0) & LOW, (k1 + U64(5) * WEYL_1) & LOW)
    c0, c1, c2, c3 = _turn(c0, c1, c2, c3, (k0 + U64(6) * WEYL_0) & LOW, (k1 + U64(6) * WEYL_1) & LOW)
    c0, c1, c2, c3 = _turn(c0, c1, c2, c3, (k0 + U64(7) * WEYL_0) & LOW, (k1 + U64(7) * WEYL_1) & LOW)
    c0, c1, c2, c3 = _turn(c0, c1, c2, c3, (k0 + U64(8) * WEYL_0) & LOW, (k1 + U64(8) * WEYL_1) & LOW)
    return _turn(c0, c1, c2, c3, (k0 + U64(9) * WEYL_0) & LOW, (k1 + U64(9) * WEYL_1) & LOW)


@scalar
def words_at(element, step, call, stage, seed):
    """The four random words of an element for the steps 4 * (step / 4) to 4 * (step / 4) + 3.

    element < 2^44, step < 2^34, call < 2^44, stage < 2^8, seed < 2^64, all uint64.
    """
    high = (stage << U64(24)) | ((element >> HALF) << U64(12)) | (call >> HALF)
    return philox(element & LOW, step >> U64(2), call & LOW, high, seed & LOW, seed >> HALF)


#: Rows of words that are made at once for the steps of a sum.
ROWS = 16


class Counter(NamedTuple):
    """Where the sums of a tile find their random words; all integers."""

    element: int  # the tile's first element, as its number in the result
    row_step: int  # from an element to the one below it
    column_step: int  # and to the one on its right
    call: int
    stage: int  # of the accumulator's first rounding
    step: int  # of the tile's first product, a multiple of 4, or of 16 for draws that are bytes


#: The counter in an array of int64.
counter_of = reader(Counter)


@scalar
def element_at(counter, i, j):
    """The number in the result of the element (i, j) of a tile."""
    return U64(counter.element + i * counter.row_step + j * counter.column_step)


@scalar
def are_bytes(grid):
    """Whether the draws of a stochastic mode are bytes."""
    return grid.random_shift >= 24.0


@scalar
def words_of_sum(counter, element, row, stage, seed):
    """The four words from the row `row` on of a sum, for the rounding `stage` of those that a step makes."""
    return words_at(element, U64(row), U64(counter.call), U64(counter.stage + stage), seed)


@scalar
def steps_of_rows(short):
    """The steps whose draws are in ROWS words."""
    return 4 * ROWS if short else ROWS


@scalar
def row_of(step, short):
    """The word that holds a step's draw."""
    return step >> 2 if short else step


@scalar
def line_of(step, short):
    """The row of that word."""
    return row_of(step, short) % ROWS


@scalar
def lift_of(step, short):
    """By how many bits that word is shifted left for the draw to be on top."""
    return np.uint32(24 - 8 * (step & 3)) if short else np.uint32(0)


@scalar
def fill_rows(words, columns, counter, i, first_column, first, last, stage, seed, short):
    """The words of the steps from `first` on, a multiple of steps_of_rows, to before `last`, for a row of elements.

    Two times four at once: each is a chain of ten rounds that wait for each other.
    """
    start, column_step = element_at(counter, i, first_column), U64(counter.column_step)
    above = row_of(counter.step + first, short)
    for row in range(0, row_of(last - 1 - first, short) + 1, 8):
        w0, w1, w2, w3, w4, w5, w6, w7 = (
            words[row],
            words[row + 1],
            words[row + 2],
            words[row + 3],
            words[row + 4],
            words[row + 5],
            words[row + 6],
            words[row + 7],
        )
        element = start
        for j in range(columns):
            w0[j], w1[j], w2[j], w3[j] = words_of_sum(counter, element, above + row, stage, seed)
            w4[j], w5[j], w6[j], w7[j] = words_of_sum(counter, element, above + row + 4, stage, seed)
            element += column_step


def as_word(draw):
    """A word, or a byte as the top of one."""
    return np.uint32(np.uint32(draw) << np.uint32(24)) if isinstance(draw, np.uint8) else draw


@overload(as_word, jit_options={"forceinline": True})
def _as_word(draw):
    if draw == types.uint8:
        return lambda draw: np.uint32(np.uint32(draw) << np.uint32(24))
    return lambda draw: draw


@kernel
def fill_words(out, first, call, stage, seed):
    """Random words for the elements first, first + 1, ... of a call; `first` and out.size are multiples of 4."""
    call, stage, seed = U64(call), U64(stage), U64(seed)
    group = U64(first) >> U64(2)
    for i in range(out.size // 4):
        w0, w1, w2, w3 = words_at(group + U64(i), U64(0), call, stage, seed)
        out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3] = w0, w1, w2, w3
