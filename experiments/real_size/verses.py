"""A book, character by character: the King James Bible; in a tiny run Python's documentation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.bfloat16_models.texts import next_characters
from experiments.judging import RECORDS, measured_as, perplexity
from experiments.models import GPT, LSTMLanguageModel
from experiments.problem import Problem, reserved, split
from experiments.real_size.optimizers import adam

#: Characters of a context, and in a tiny run; and the number of held-out windows.
CONTEXT, TINY_CONTEXT, HELD_OUT = 24, 2, 400


def windows(text: str, length: int) -> tuple[NDArray[np.int64], int]:
    """Return the text as numbers of characters, in successive windows (N, length), and the size of the alphabet."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    alphabet, tokens = np.unique(codes[: len(codes) // length * length], return_inverse=True)
    return tokens.reshape(-1, length), len(alphabet)


@cache
def bible() -> tuple[NDArray[np.int64], int]:
    """Return the verses as windows."""
    return windows(datasets.king_james_bible(), CONTEXT + 1)


@cache
def documentation() -> tuple[NDArray[np.int64], int]:
    """Return a topic of Python's documentation as windows."""
    return windows(datasets.python_topics()["types"], TINY_CONTEXT + 1)


def gpt(alphabet: int, seed: int) -> GPT:
    """Return a decoder of one layer, 32 wide."""
    return GPT(alphabet, CONTEXT, 32, layers=1, heads=2, seed=seed)


def lstm(alphabet: int, seed: int) -> LSTMLanguageModel:
    """Return a layer of 48 LSTM cells."""
    return LSTMLanguageModel(alphabet, 16, 48, seed)


def verses(
    model: Callable[[int, int], sf.nn.Module], batch: int, steps: int, seed: int, tiny: bool, rate: float
) -> Problem:
    """Predict the next character; 400 of about 165 000 windows of 25 characters are held out."""
    text, alphabet = documentation() if tiny else bible()
    seen = reserved(len(text), seed)
    train, test = (text[seen[rows]] for rows in split(len(seen), 20 if tiny else HELD_OUT, seed))
    return Problem(
        x=train[:, :-1],
        y=train[:, 1:],
        model=partial(model, alphabet, seed),
        loss=next_characters,
        optimizer=adam(rate),
        batch=batch,
        steps=1 if tiny else steps,
        test=(test[:, :-1], test[:, 1:]),
        measures=measured_as("perplexity", perplexity),
        records=RECORDS,
    )
