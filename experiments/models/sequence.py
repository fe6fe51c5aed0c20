"""Recurrent models of sequences: a classifier, and one that predicts every next token."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat import nn


class SequenceClassifier(nn.Module):
    """An embedding, a recurrent layer, and a linear layer on the last hidden state of every direction."""

    def __init__(
        self,
        tokens: int,
        width: int,
        hidden: int,
        classes: int,
        kind: Literal["RNN", "LSTM", "GRU"] = "LSTM",
        layers: int = 1,
        bidirectional: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        layer = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}[kind]
        self.token = nn.Embedding(tokens, width, rng=rng)
        self.recurrent = layer(width, hidden, layers, batch_first=True, bidirectional=bidirectional, rng=rng)
        self.head = nn.Linear(hidden * self.recurrent.directions, classes, rng=rng)

    def forward(self, tokens: NDArray[np.integer]) -> sf.Tensor:
        """Return logits (N, classes) for tokens (N, T)."""
        _, state = self.recurrent(self.token(tokens))
        last = state[0] if isinstance(state, tuple) else state
        return self.head(sf.concatenate(list(last[-self.recurrent.directions :]), -1))


class LSTMLanguageModel(nn.Module):
    """An embedding, an LSTM over all tokens, and a linear layer on each of its states."""

    def __init__(self, tokens: int, width: int, hidden: int, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.token = nn.Embedding(tokens, width, rng=rng)
        self.recurrent = nn.LSTM(width, hidden, batch_first=True, rng=rng)
        self.head = nn.Linear(hidden, tokens, rng=rng)

    def forward(self, tokens: NDArray[np.integer]) -> sf.Tensor:
        """Return logits (N, T, tokens) for tokens (N, T)."""
        states, _ = self.recurrent(self.token(tokens))
        return self.head(states)
