"""A model that translates sequences: Sutskever et al., arXiv 1409.3215; Luong et al., arXiv 1508.04025."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat import nn


class SequenceToSequence(nn.Module):
    """An LSTM reads the source; another starts with its last state, attends to all states and writes the target.

    Attention is the softmax of dot products of states. A tanh layer combines its result with the state. Sources are
    padded at the start, so that the last state belongs to their last token.
    """

    def __init__(self, sources: int, targets: int, width: int, hidden: int, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.source, self.target = (nn.Embedding(tokens, width, rng=rng) for tokens in (sources, targets))
        self.encoder, self.decoder = (nn.LSTM(width, hidden, batch_first=True, rng=rng) for _ in range(2))
        self.joined = nn.Linear(2 * hidden, hidden, rng=rng)
        self.head = nn.Linear(hidden, targets, rng=rng)

    def forward(self, source: NDArray[np.integer], before: NDArray[np.integer]) -> sf.Tensor:
        """Return logits of the target's tokens (N, T, targets) for a source (N, L) and the shifted target (N, T)."""
        read, state = self.encoder(self.source(source))
        written, _ = self.decoder(self.target(before), state)
        attended = (written @ read.swapaxes(1, 2)).softmax(-1) @ read
        return self.head(self.joined(sf.concatenate([written, attended], -1)).tanh())
