"""Random words of the steps of a sum: four at a time, kept by the thread that draws them."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import left
from simfloat.kernels.random import lift_of, row_of, words_of_sum

U64 = np.uint64

NO_WORDS = (U64(0), U64(0), U64(0), U64(0))


@scalar
def words_for(words, counter, element, k, stage, seed, short):
    """The four words among which that of step k is: those at hand, or the next ones where k begins a new four."""
    row = row_of(counter.step + k, short)
    if row % 4 == 0 and (k % 4 == 0 or not short):
        return words_of_sum(counter, element, row, stage, seed)
    return words


@scalar
def word_of(words, counter, k, short):
    """The word of step k, with its draw on top."""
    return left(np.uint32(words[row_of(counter.step + k, short) % 4]), lift_of(k, short))
