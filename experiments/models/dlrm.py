"""A recommendation model: Naumov et al., arXiv 1906.00091."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

import simfloat as sf
from simfloat import nn


class DLRM(nn.Module):
    """Dense features through an MLP, categories through embedding bags, their dot products through another MLP.

    `rows` has the sizes of the tables, `bottom` and `top` the hidden sizes of the two MLPs. The bottom one has `width`
    outputs, as the tables do. The top one has one output, the logarithm of the odds of a click.
    """

    def __init__(
        self, dense: int, rows: Sequence[int], width: int, bottom: Sequence[int], top: Sequence[int], seed: int = 0
    ) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.bottom = nn.MLP([dense, *bottom, width], rng=rng)
        tables = [nn.EmbeddingBag(count, width, mode="sum", rng=rng) for count in rows]
        for table in tables:
            bound = table.num_embeddings**-0.5
            table.weight.data = rng.uniform(-bound, bound, table.weight.shape)
        self.tables = nn.ModuleList(tables)
        self.pairs = np.tril_indices(len(rows) + 1, -1)
        self.top = nn.MLP([width + len(self.pairs[0]), *top, 1], rng=rng)

    def forward(self, dense: ArrayLike, categories: Sequence[NDArray[np.integer]]) -> sf.Tensor:
        """Return logits (N,) for dense features (N, dense) and, for each table, a bag (N, n) of its rows."""
        x = self.bottom(dense).relu()
        bags = [table(bag) for table, bag in zip(self.tables, categories, strict=True)]
        features = sf.stack([x, *bags], 1)
        products = (features @ features.swapaxes(1, 2))[:, *self.pairs]
        return self.top(sf.concatenate([x, products], 1)).reshape(-1)
