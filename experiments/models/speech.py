"""Recurrent models of speech: a classifier of utterances, and a recogniser with an output for each frame."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

import simfloat as sf
from simfloat import nn


class SpeechClassifier(nn.Module):
    """A recurrent layer over frames, and a linear layer on the mean of its states.

    Frames of zeros are after the end of an utterance, and are excluded from the mean.
    """

    def __init__(
        self, features: int, hidden: int, classes: int, kind: Literal["RNN", "LSTM", "GRU"] = "GRU", seed: int = 0
    ) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        layer = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}[kind]
        self.recurrent = layer(features, hidden, batch_first=True, rng=rng)
        self.head = nn.Linear(hidden, classes, rng=rng)

    def forward(self, frames: ArrayLike) -> sf.Tensor:
        """Return logits (N, classes) for frames (N, T, features)."""
        spoken = np.any(np.asarray(frames) != 0, axis=2, keepdims=True)
        states, _ = self.recurrent(frames)
        return self.head((states * (spoken / spoken.sum(axis=1, keepdims=True))).sum(1))


class SpeechRecognizer(nn.Module):
    """A recurrent layer over frames, and the probabilities of classes at each of them: class 0 is CTC's blank."""

    def __init__(self, features: int, hidden: int, classes: int, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.recurrent = nn.GRU(features, hidden, batch_first=True, rng=rng)
        self.head = nn.Linear(hidden, classes, rng=rng)

    def forward(self, frames: ArrayLike) -> sf.Tensor:
        """Return logarithms of probabilities (N, T, classes) for frames (N, T, features)."""
        states, _ = self.recurrent(frames)
        return self.head(states).log_softmax(-1)
