"""A language model that predicts the next token: Radford et al., 2019."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat import nn


class GPT(nn.Module):
    """A decoder of `layers` blocks with a causal mask; the head shares the weight of the token embedding.

    Blocks normalize first, and are four times as wide inside, with GELU. Weights of embeddings and linear layers start
    normal with a standard deviation of 0.02, as in GPT-2.
    """

    def __init__(
        self, tokens: int, context: int, width: int, layers: int, heads: int, dropout: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.token = nn.Embedding(tokens, width, rng=rng)
        self.position = nn.Embedding(context, width, rng=rng)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout, "gelu", batch_first=True, norm_first=True, rng=rng
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False, rng=rng)
        self.head.weight = self.token.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                parameter.data = rng.normal(0, 0.02, parameter.shape)
            elif name.endswith("bias"):
                parameter.data = np.zeros(parameter.shape)

    def forward(self, tokens: NDArray[np.integer]) -> sf.Tensor:
        """Return logits of the next tokens (N, T, tokens) for tokens (N, T), with T up to the context."""
        x = self.dropout(self.token(tokens) + self.position(np.arange(np.shape(tokens)[1])))
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.head(self.norm(x))
