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
from simfloat.kernels.machine import left
from simfloat.kernels.random import as_word, lift_of, row_of, words_at, words_of_sum

U64 = np.uint64

#: The elements that share a group of four words, or one of their words where draws are bytes.
FOUR = 4


class WordPlace(NamedTuple):
    """Where a call finds its words; all uint64."""

    call: int
    stage: int
    seed: int
    short: int  # 1 if draws are bytes


place_of = reader(WordPlace)


@scalar
def words_of_place(numbers, j):
    """The words of the elements 4 j to 4 j + 3."""
    place, group = place_of(numbers), U64(j)
    if place.short == U64(0):
        return words_at(group, U64(0), place.call, place.stage, place.seed)
    word = np.uint32(words_at(group >> U64(2), U64(0), place.call, place.stage, place.seed)[j & 3])
    return (
        U64(left(word, lift_of(0, True))),
        U64(left(word, lift_of(1, True))),
        U64(left(word, lift_of(2, True))),
        U64(left(word, lift_of(3, True))),
    )


@scalar
def one_word(words, j):
    """One word for four elements, where nothing draws."""
    word = U64(words[0])
    return word, word, word, word


@scalar
def given_words(words, j):
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
        return (words_of_place if len(words) > 1 else one_word)(words, j)
    return given_words(words, j)


@overload(four_words, jit_options={"forceinline": True})
def _four_words(words, j):
    if isinstance(words, types.UniTuple):
        chosen = words_of_place if words.count > 1 else one_word
    else:
        chosen = given_words
    return lambda words, j: chosen(words, j)


#: The words of the steps of a sum, four at a time, which the thread keeps that draws them: none yet.
NO_WORDS = (U64(0), U64(0), U64(0), U64(0))


@scalar
def words_from(words, counter, element, k, stage, seed, short):
    """The words of the steps k to k + 3, k being a multiple of four; `words` are those of the four before.

    Where draws are bytes, the first word is that of all four, and the others are of the next steps.
    """
    if short and k % 16 > 0:
        return words[1], words[2], words[3], words[0]
    return words_of_sum(counter, element, row_of(counter.step + k, short), stage, seed)


@scalar
def word_of(words, k, short):
    """The word of step k, with its draw on top."""
    return left(np.uint32(words[0] if short else words[k % 4]), lift_of(k, short))
