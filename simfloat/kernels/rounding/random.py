"""Random bits from a counter: each word depends on its position only, never on words that were used before.

The generator is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC
2011), which passes BigCrush. Tests compare it with the known answers of its authors' Random123 library. The seed is the
key. The counter is (element, step / 4, call, stage), so any thread and any block can compute its bits independently:

* element: position in the result, in C order (a plain rounding takes word i % 4 of element i / 4);
* step: the k of a sum, which uses word step % 4;
* call: the number that the stream gave to the call;
* stage: which rounding of the call uses the word; 0 is the result itself.

A draw is the upper bits of its word. A draw of at most 8 bits is the upper bits of a byte, and four such draws share a
word. Step (or element) n takes byte n % 4, the lowest first, of the word that step n / 4 has with longer draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from simfloat.kernels.compile.jit import kernel, overload, reader, scalar

U64 = np.uint64
LOW = U64(0xFFFFFFFF)
HALF = U64(32)
MULTIPLY_0, MULTIPLY_1 = U64(0xD2511F53), U64(0xCD9E8D57)
WEYL_0, WEYL_1 = U64(0x9E3779B9), U64(0xBB67AE85)


@scalar
def _philox_round(counter, k0, k1, n):
    """Return the words after round n of Philox4x32: 32-bit words in 64-bit variables."""
    c0, c1, c2, c3 = counter
    # With 32-bit words in 64-bit variables, one multiplication gives both halves of a product.
    a, b = MULTIPLY_0 * c0, MULTIPLY_1 * c2
    k0, k1 = (k0 + U64(n) * WEYL_0) & LOW, (k1 + U64(n) * WEYL_1) & LOW
    return (b >> HALF) ^ c1 ^ k0, b & LOW, (a >> HALF) ^ c3 ^ k1, a & LOW


@scalar
def _four_philox_rounds(counters, k0, k1, n):
    """Run round n on four counters: a round waits for the one before it, so four independent ones overlap."""
    one, two, three, four = counters
    return (
        _philox_round(one, k0, k1, n),
        _philox_round(two, k0, k1, n),
        _philox_round(three, k0, k1, n),
        _philox_round(four, k0, k1, n),
    )


def _ten_rounds(turn):
    """Return a function that runs all rounds, unrolled: an inner loop would keep LLVM from vectorising outer loops."""

    @scalar
    def rounds(counter, k0, k1):
        counter = turn(counter, k0, k1, 0)
        counter = turn(counter, k0, k1, 1)
        counter = turn(counter, k0, k1, 2)
        counter = turn(counter, k0, k1, 3)
        counter = turn(counter, k0, k1, 4)
        counter = turn(counter, k0, k1, 5)
        counter = turn(counter, k0, k1, 6)
        counter = turn(counter, k0, k1, 7)
        counter = turn(counter, k0, k1, 8)
        return turn(counter, k0, k1, 9)

    return rounds


_philox, _four_philox = _ten_rounds(_philox_round), _ten_rounds(_four_philox_rounds)


@scalar
def philox(c0, c1, c2, c3, k0, k1):
    """Return four random words for a counter of four words and a key of two: Philox4x32-10."""
    return _philox((c0, c1, c2, c3), k0, k1)


@scalar
def counter_at(element, step, call, stage):
    """Return the counter of an element's words for the steps 4 * (step / 4) to 4 * (step / 4) + 3.

    element < 2^44, step < 2^34, call < 2^44, stage < 2^8, all uint64.
    """
    high = (stage << U64(24)) | ((element >> HALF) << U64(12)) | (call >> HALF)
    return element & LOW, step >> U64(2), call & LOW, high & LOW


@scalar
def words_at(element, step, call, stage, seed):
    """Return the four random words of such a counter; seed < 2^64."""
    return philox(*counter_at(element, step, call, stage), seed & LOW, seed >> HALF)


#: Rows of words that are computed at once for the steps of a sum.
ROWS = 16

#: Sums of a row that are computed at once in stochastic modes, so that their words stay in the first-level cache.
RANDOM_COLUMNS = 128

#: An example array of words, for `empty_rows`.
WORD = np.zeros(1, np.uint32)


@scalar
def empty_rows(array, rows, columns):
    """Return an uninitialised matrix of the array's type, in which the first row begins at a cache line.

    So does every other row, if the rows are as long as whole lines.
    """
    space = np.empty(rows * columns + 64 // array.itemsize, array.dtype)
    first = (-space.ctypes.data % 64) // array.itemsize
    return space[first : first + rows * columns].reshape(rows, columns)


class Counter(NamedTuple):
    """The position of the random words for the sums of a tile; all integers."""

    element: int  # the first element of the tile, as its index in the result
    row_step: int  # from an element to the one below it
    column_step: int  # and to the one on its right
    call: int
    stage: int  # of the first rounding of the accumulator
    step: int  # of the first product of the tile, a multiple of 4, or of 16 for draws that are bytes


#: Reads the counter from an array of int64.
unpack_counter = reader(Counter)


@scalar
def element_at(counter, i, j):
    """Return the index in the result of element (i, j) of a tile."""
    return U64(counter.element + i * counter.row_step + j * counter.column_step)


@scalar
def draws_are_bytes(grid):
    """Return True if the draws of a stochastic mode are bytes."""
    return grid.random_shift >= 24.0


@scalar
def words_of_sum(counter, element, row, stage, seed):
    """Return the four words of a sum that begin at row `row`, for the rounding `stage` within a step."""
    return words_at(element, U64(row), U64(counter.call), U64(counter.stage + stage), seed)


@scalar
def steps_in_rows(short):
    """Return the number of steps that have their draws in ROWS words."""
    return 4 * ROWS if short else ROWS


@scalar
def word_index(step, short):
    """Return the index of the word that contains the draw of a step."""
    return step >> 2 if short else step


@scalar
def word_row(step, short):
    """Return the row of that word."""
    return word_index(step, short) % ROWS


@scalar
def draw_shift(step, short):
    """Return the left shift that moves the draw of a step to the top of its word."""
    return np.uint32(24 - 8 * (step & 3)) if short else np.uint32(0)


@scalar
def fill_rows(words, columns, counter, i, first_column, first, stage, seed, short):
    """Write ROWS words for the steps from `first`, a multiple of `steps_in_rows`, for each element of a row."""
    element, column_step = element_at(counter, i, first_column), U64(counter.column_step)
    above, k0, k1 = U64(word_index(counter.step + first, short)), seed & LOW, seed >> HALF
    call, of_stage = U64(counter.call), U64(counter.stage + stage)
    # Four counters are computed at a time, because the rounds of one wait for each other. 16 words then take 28
    # instructions, of which the ten rounds need 24 (Zen 4). Rows are taken out first, so that the loop over columns
    # works on plain vectors.
    r0, r1, r2, r3, r4, r5, r6, r7 = _eight_rows(words, 0)
    s0, s1, s2, s3, s4, s5, s6, s7 = _eight_rows(words, 8)
    for j in range(columns):
        one, two, three, four = _four_philox(
            (
                counter_at(element, above, call, of_stage),
                counter_at(element, above + U64(4), call, of_stage),
                counter_at(element, above + U64(8), call, of_stage),
                counter_at(element, above + U64(12), call, of_stage),
            ),
            k0,
            k1,
        )
        r0[j], r1[j], r2[j], r3[j] = one
        r4[j], r5[j], r6[j], r7[j] = two
        s0[j], s1[j], s2[j], s3[j] = three
        s4[j], s5[j], s6[j], s7[j] = four
        element += column_step


@scalar
def _eight_rows(words, first):
    """Return eight rows as a tuple."""
    return (
        words[first],
        words[first + 1],
        words[first + 2],
        words[first + 3],
        words[first + 4],
        words[first + 5],
        words[first + 6],
        words[first + 7],
    )


def as_word(draw):
    """Return a word unchanged, or a byte as the top of a word."""
    return np.uint32(np.uint32(draw) << np.uint32(24)) if isinstance(draw, np.uint8) else draw


@overload(as_word)
def _as_word(draw):
    if draw == types.uint8:
        return lambda draw: np.uint32(np.uint32(draw) << np.uint32(24))
    return lambda draw: draw


@kernel
def fill_words(out, first, call, stage, seed):
    """Write random words for the elements first, first + 1, ... of a call; `first` and out.size are multiples of 4."""
    call, stage, seed = U64(call), U64(stage), U64(seed)
    group = U64(first) >> U64(2)
    for i in range(out.size // 4):
        w0, w1, w2, w3 = words_at(group + U64(i), U64(0), call, stage, seed)
        out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3] = w0, w1, w2, w3
