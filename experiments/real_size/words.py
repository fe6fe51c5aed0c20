"""Words: from letters to phonemes, by LSTMs with attention; in a tiny run Python's words backwards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.judging import RECORDS, measured_as
from experiments.models import SequenceToSequence
from experiments.problem import Problem, reserved, split
from experiments.real_size.optimizers import adam

#: The longest words, in letters and in phonemes, which include nine in ten words; and those of a tiny run.
LONGEST, TINY_LONGEST = 10, 3

#: The number of held-out words, among those that a seed may use.
HELD_OUT = 500

#: Tokens other than letters and phonemes: padding, and the end of a word, which is also before its first phoneme.
PADDING, END = 0, 1


class Speller(SequenceToSequence):
    """The model on rows of letters, followed by the phoneme before each target phoneme."""

    def forward(self, rows: NDArray[np.integer]) -> sf.Tensor:  # type: ignore[override]
        """Return logits of phonemes (N, n + 1, phonemes) for rows (N, n + n + 1)."""
        longest = rows.shape[1] // 2
        return super().forward(rows[:, :longest], rows[:, longest:])


def as_rows(words: Mapping[str, Sequence[str]], longest: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """Return letters with the phonemes before each (N, n + n + 1), phonemes with an end (N, n + 1), and their numbers.

    Words of more than `longest` letters or phonemes are excluded; letters are padded at the start, phonemes at the end.
    """
    words = {word: said for word, said in words.items() if max(len(word), len(said)) <= longest}
    letters = {letter: place for place, letter in enumerate(sorted(set().union(*words)), 1)}
    phonemes = {phoneme: place for place, phoneme in enumerate(sorted(set().union(*words.values())), END + 1)}
    x, y = np.full((len(words), 2 * longest + 1), PADDING), np.full((len(words), longest + 1), PADDING)
    for row, (word, said) in enumerate(words.items()):
        x[row, longest - len(word) : longest] = [letters[letter] for letter in word]
        y[row, : len(said) + 1] = [*(phonemes[phoneme] for phoneme in said), END]
    x[:, longest], x[:, longest + 1 :] = END, np.where(y == END, PADDING, y)[:, :-1]
    return x, y, len(letters) + 1, len(phonemes) + 2


@cache
def pronounced() -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """Return the words of the dictionary that are short enough, as rows."""
    return as_rows(datasets.pronunciations(), LONGEST)


@cache
def backwards() -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """Return words of Python's documentation, and the same words backwards."""
    words = sorted(set(re.findall("[a-z]+", " ".join(datasets.python_topics().values()))))
    return as_rows({word: word[::-1] for word in words}, TINY_LONGEST)


def phoneme_loss(logits: sf.Tensor, following: NDArray[np.int64]) -> sf.Tensor:
    """Return the cross-entropy of all phonemes and ends."""
    return sf.nn.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1), ignore_index=PADDING)


def phoneme_accuracy(output: NDArray, labels: NDArray) -> float:
    """Return the share of phonemes and ends that are predicted right if the earlier ones are given."""
    return float(np.mean((output.argmax(axis=-1) == labels)[labels != PADDING]))


def phonemes(seed: int, tiny: bool, rate: float) -> Problem:
    """Predict the pronunciation of a word, phoneme by phoneme; 500 words are held out."""
    x, y, letters, sounds = backwards() if tiny else pronounced()
    seen = reserved(len(x), seed)
    train, test = (seen[rows] for rows in split(len(seen), 20 if tiny else HELD_OUT, seed))
    return Problem(
        x=x[train],
        y=y[train],
        model=partial(Speller, letters, sounds, 16, 48, seed=seed),
        loss=phoneme_loss,
        optimizer=adam(rate),
        batch=64,
        steps=1 if tiny else 160,
        test=(x[test], y[test]),
        measures=measured_as("accuracy", phoneme_accuracy),
        records=RECORDS,
    )
