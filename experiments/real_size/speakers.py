"""Speech: several men speak one after the other, and a recurrent network with CTC identifies them in order."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.judging import RECORDS, measured_as
from experiments.models import SpeechRecognizer
from experiments.problem import Problem, reserved, split
from experiments.real_size.optimizers import adam

#: The number of utterances in a conversation, and the number of their frames that are kept, every second one; in a tiny
#: run these.
TURNS, FRAMES, TINY_FRAMES = 2, 24, 4

#: The number of held-out utterances among those of a seed, and of the conversations from each of both parts.
HELD_OUT, TRAINED_ON, JUDGED_ON = 0.2, 4000, 300

#: The blank class.
BLANK = 0


@cache
def utterances() -> tuple[list[NDArray[np.float32]], NDArray[np.int64]]:
    """Return all 640 utterances, each with its length, and their speakers."""
    parts = [datasets.japanese_vowels(part) for part in ("train", "test")]
    spoken = [
        frames[:length:2].astype(np.float32)
        for part in parts
        for frames, length in zip(part.frames, part.lengths, strict=True)
    ]
    return spoken, np.concatenate([part.speakers for part in parts])


def conversations(
    numbers: NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return frames (N, 24, 12) of two of these utterances, followed by silence, and their speakers (N, 2), from 1."""
    spoken, speakers = utterances()
    turns = rng.choice(numbers, (count, TURNS))
    x = np.zeros((count, FRAMES, 12), np.float32)
    for row, turn in enumerate(turns):
        said = np.concatenate([spoken[number] for number in turn])[:FRAMES]
        x[row, : len(said)] = said
    return x, speakers[turns] + 1


def speaker_loss(scores: sf.Tensor, speakers: NDArray[np.int64]) -> sf.Tensor:
    """Return CTC's loss: the speakers in their order, wherever their turns start."""
    count, frames = scores.shape[:2]
    return sf.nn.ctc_loss(scores.swapaxes(0, 1), speakers, [frames] * count, [TURNS] * count, blank=BLANK)


def told(best: NDArray[np.int64]) -> list[int]:
    """Return the labels for the best class of each frame: repetitions count once, blanks are dropped."""
    changes = np.concatenate([[True], best[1:] != best[:-1]])
    return [int(label) for label in best[changes] if label != BLANK]


def edits(found: list[int], wanted: NDArray[np.int64]) -> int:
    """Return the number of insertions, deletions and changes between two lists (Levenshtein)."""
    before = list(range(len(wanted) + 1))
    for row, label in enumerate(found, 1):
        after = [row]
        for place, want in enumerate(wanted, 1):
            after.append(min(before[place] + 1, after[-1] + 1, before[place - 1] + (label != want)))
        before = after
    return before[-1]


def speaker_accuracy(output: NDArray, labels: NDArray) -> float:
    """Return 1 - the error rate of speakers: edits of the best path, as a share of the labels."""
    paths = output.argmax(axis=-1)
    return 1 - sum(edits(told(path), row) for path, row in zip(paths, labels, strict=True)) / labels.size


def speech(seed: int, tiny: bool, rate: float) -> Problem:
    """Identify which of nine men speak, one after the other; a fifth of the utterances is held out."""
    seen = reserved(len(utterances()[1]), seed)
    train, test = (seen[rows] for rows in split(len(seen), round(HELD_OUT * len(seen)), seed))
    rng = np.random.default_rng([seed, 5])
    x, y = conversations(train, 20 if tiny else TRAINED_ON, rng)
    test_x, test_y = conversations(test, 20 if tiny else JUDGED_ON, rng)
    frames = TINY_FRAMES if tiny else FRAMES
    return Problem(
        x=x[:, :frames],
        y=y,
        model=partial(SpeechRecognizer, 12, 32, 10, seed=seed),
        loss=speaker_loss,
        optimizer=adam(rate),
        batch=32,
        steps=1 if tiny else 250,
        test=(test_x[:, :frames], test_y),
        measures=measured_as("accuracy", speaker_accuracy),
        records=RECORDS,
    )
