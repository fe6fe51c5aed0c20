"""A classifier of sequences by an encoder: Devlin et al., arXiv 1810.04805."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat import nn


class BERTClassifier(nn.Module):
    """An encoder of `layers` blocks; a tanh layer on the first position leads to the classifier.

    Token 0 is padding and is ignored. The embedding is the normalized sum of the embeddings of tokens, positions and
    two segments. Blocks normalize last, and are four times as wide inside, with GELU. Embeddings start normal with a
    standard deviation of 0.02, as in BERT.
    """

    def __init__(
        self,
        tokens: int,
        context: int,
        width: int,
        layers: int,
        heads: int,
        classes: int,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.token = nn.Embedding(tokens, width, padding_idx=0, rng=rng)
        self.position = nn.Embedding(context, width, rng=rng)
        self.segment = nn.Embedding(2, width, rng=rng)
        for embedding in (self.token, self.position, self.segment):
            embedding.weight.data = 0.02 * embedding.weight.data
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True, rng=rng)
            for _ in range(layers)
        )
        self.pooler = nn.Linear(width, width, rng=rng)
        self.classifier = nn.Linear(width, classes, rng=rng)

    def forward(self, tokens: NDArray[np.integer], segments: NDArray[np.integer] | None = None) -> sf.Tensor:
        """Return logits (N, classes) for tokens (N, T) and their segments, by default all 0."""
        tokens = np.asarray(tokens)
        segments = np.zeros_like(tokens) if segments is None else segments
        x = self.token(tokens) + self.position(np.arange(tokens.shape[1])) + self.segment(segments)
        x = self.dropout(self.norm(x))
        for block in self.blocks:
            x = block(x, src_key_padding_mask=tokens == 0)
        return self.classifier(self.dropout(self.pooler(x[:, 0]).tanh()))
