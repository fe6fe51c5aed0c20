"""Which samples a run is trained on, and which are held out: drawn from its seed, as all else of it is.

Verdicts over seeds are then verdicts over splits too: a claim does not hang on the one that happened to be drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def split(count: int, held_out: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the samples to train on, and of those that are held out, both in random order.

    The split is independent of the run's initial weights and batches, which have other streams of the same seed.
    """
    order = np.random.default_rng([seed, 4]).permutation(count)
    return order[held_out:], order[:held_out]


def turned(text: NDArray, seed: int) -> NDArray:
    """The text as a ring that begins elsewhere, so that another part of it is the last one, which is held out."""
    return np.roll(text, np.random.default_rng([seed, 4]).integers(len(text)))


def split_quarter(count: int, seed: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same, with a quarter held out; without a seed, one split for all runs of an experiment."""
    held_out = count - 3 * count // 4
    if seed is not None:
        return split(count, held_out, seed)
    order = np.random.default_rng(0).permutation(count)
    return order[:-held_out], order[-held_out:]
