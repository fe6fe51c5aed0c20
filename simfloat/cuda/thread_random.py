"""Random words where they are needed: a thread makes the four of its elements, and nothing is kept in memory.

Words come to a loop in one of three forms: a WordPlace, from which threads find theirs; the user's own draws, on the
GPU; and a single word, which none reads, where no rounding draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from simfloat.kernels.jit import reader, scalar
from simfloat.kernels.machine import shift_left
from simfloat.kernels.random import as_word, draw_shift, word_index, words_at, words_of_sum

U64 = np.uint64

#: The elements that share a group of four words, or one of their words where draws are bytes.
FOUR = 4


class WordPlace(NamedTuple):
    """Where a call finds its words; all uint64."""

    call: int
    stage: int
    seed: int
    short: int  # 1 if draws are bytes


unpack_place = reader(WordPlace)


@scalar
def drawn_words(place_numbers, j):
    """The words of the elements 4 j to 4 j + 3."""
    place, group = unpack_place(place_numbers), U64(j)
    if place.short == U64(0):
        return words_at(group, U64(0), place.call, place.stage, place.seed)
    word = np.uint32(words_at(group >> U64(2), U64(0), place.call, place.stage, place.seed)[j & 3])
    return (
        U64(shift_left(word, draw_shift(0, True))),
        U64(shift_left(word, draw_shift(1, True))),
        U64(shift_left(word, draw_shift(2, True))),
        U64(shift_left(word, draw_shift(3, True))),
    )


@scalar
def repeated_word(words, j):
    """One word for four elements, where nothing draws."""
    word = U64(words[0])
    return word, word, word, word


@scalar
def user_words(words, j):
    """The user's draws of the elements 4 j to 4 j + 3; past the last element the last one again."""
    first, last = 4 * j, words.size - 1
    return (
        U64(as_word(words[first])),
        U64(as_word(words[min(first + 1, last)])),
        U64(as_word(words[min(first + 2, last)])),
        U64(as_word(words[min(first + 3, last)])),
    )


def four_words(words, j):
    """The words of the elements 4 j to 4 j + 3, whatever form words come in."""
    if isinstance(words, tuple):
        return (drawn_words if len(words) > 1 else repeated_word)(words, j)
    return user_words(words, j)


@overload(four_words, jit_options={"forceinline": True})
def _four_words(words, j):
    if isinstance(words, types.UniTuple):
        chosen = drawn_words if words.count > 1 else repeated_word
    else:
        chosen = user_words
    return lambda words, j: chosen(words, j)


#: The words of the steps of a sum, four at a time, which the thread keeps that draws them: none yet.
NO_WORDS = (U64(0), U64(0), U64(0), U64(0))


@scalar
def next_four_words(words, counter, element, k, stage, seed, short):
    """The words of the steps k to k + 3, k being a multiple of four; `words` are those of the four before.

    Where draws are bytes, the first word is that of all four, and the others are of the next steps.
    """
    if short and k % 16 > 0:
        return words[1], words[2], words[3], words[0]
    return words_of_sum(counter, element, word_index(counter.step + k, short), stage, seed)


@scalar
def step_word(words, k, short):
    """The word of step k, with its draw on top."""
    return shift_left(np.uint32(words[0] if short else words[k % 4]), draw_shift(k, short))
