"""Speech: a recurrent network that identifies speakers, instead of Deep Speech 2 on LibriSpeech."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.judging import accuracy, judged
from experiments.models import SpeechClassifier
from experiments.problem import Problem


@cache
def halved(part: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return utterances (N, 15, 12) of every second frame, and their speakers."""
    utterances = datasets.japanese_vowels(part)
    return utterances.frames[:, ::2].astype(np.float32), utterances.speakers


def speech(seed: int, tiny: bool) -> Problem:
    """Identify which of nine men speaks: 270 utterances for training, the 370 others of the archive held out."""
    x, y = halved("train")
    problem = Problem(
        x=x,
        y=y,
        model=partial(SpeechClassifier, 12, 24, 9, "RNN", seed=seed),
        loss=sf.nn.cross_entropy,
        optimizer=partial(sf.optim.AdamW, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01),
        batch=16,
        steps=1 if tiny else 400,
        test=halved("test"),
    )
    return judged(problem, "accuracy", accuracy, tiny)
