"""The problem: a small GPT on the letters of Python's documentation."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.models.gpt import GPT
from experiments.problem import Problem, turned
from experiments.training import Problems

#: Letters of the context, the width of the layers, and the number of held-out pieces of text.
CONTEXT, WIDTH, HELD_OUT = 32, 32, 32


@cache
def letters() -> tuple[NDArray[np.int64], int]:
    """Return the text as numbers, and the size of the alphabet."""
    text = "\n".join(datasets.python_topics().values())
    known, numbers = np.unique(list(text), return_inverse=True)
    return numbers, len(known)


def gpt(seed: int, tiny: bool) -> Problem:
    """Predict the next letter with one block and two heads; the seed chooses the held-out tenth of the text."""
    text, count = letters()
    text = turned(text, seed)
    pieces = np.lib.stride_tricks.sliding_window_view(text, CONTEXT + 1)
    train, test = pieces[: 9 * len(pieces) // 10], pieces[9 * len(pieces) // 10 + CONTEXT :]
    test = test[:: len(test) // (4 if tiny else HELD_OUT)]
    return Problem(
        x=train[:, :-1],
        y=train[:, 1:],
        model=lambda: GPT(count, CONTEXT, WIDTH, layers=1, heads=2, seed=seed),
        loss=lambda output, y: sf.nn.cross_entropy(output.reshape(-1, count), y.ravel()),
        optimizer=partial(sf.optim.Adam, lr=3e-3),
        batch=1 if tiny else 8,
        steps=1 if tiny else 200,
        test=(test[:, :-1], test[:, 1:]),
    )


PROBLEMS: Problems = {"gpt": gpt}
