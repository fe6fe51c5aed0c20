"""Random words of the steps of a sum: four at a time, kept by the thread that draws them."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import left
from simfloat.kernels.random import lift_of, row_of, words_of_sum

U64 = np.uint64

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
