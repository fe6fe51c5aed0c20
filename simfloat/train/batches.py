"""Batches of arrays, in an order that follows from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.checks import check_count
from simfloat.optim.optimizer_options import flag


class Batches:
    """Pairs of `batch_size` rows of x and of y, shuffled anew in each of `epochs`, from the same start every time.

        sf.train.fit(model, loss_fn, sf.train.Batches(x, y, 32, epochs=10), optimizer, resume=folder)

    The order follows from the seed and the epoch, with any version of NumPy, so that a resumed training takes the
    batches that it would have taken. The last batch of an epoch may be short; drop_last leaves it out.

    Raises ValueError for arrays of different lengths or none, for counts that are no integers above zero, and for a
    shuffle or drop_last that is neither True nor False.

    Examples:
        >>> batches = sf.train.Batches(np.arange(6), np.arange(6) % 2, 4, shuffle=False)
        >>> [len(x) for x, y in batches]
        [4, 2]
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        batch_size: int = 1,
        *,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        for name, value, least in (("batch_size", batch_size, 1), ("epochs", epochs, 1), ("seed", seed, 0)):
            check_count(name, value, least)
        self.x, self.y = as_array(x, "x"), as_array(y, "y")
        if not self.x.ndim or not self.y.ndim or len(self.x) != len(self.y) or not len(self.x):
            raise ValueError(f"x and y need the same number of rows, got shapes {self.x.shape} and {self.y.shape}.")
        self.batch_size, self.epochs, self.seed = int(batch_size), int(epochs), int(seed)
        self.shuffle, self.drop_last = flag("shuffle", shuffle), flag("drop_last", drop_last)
        if self.drop_last and batch_size > len(self.x):
            raise ValueError(f"drop_last would leave no batch of {batch_size} among {len(self.x)} rows.")

    def __len__(self) -> int:
        """How many batches there are in all epochs."""
        rows = len(self.x) if self.drop_last else len(self.x) + self.batch_size - 1
        return self.epochs * (rows // self.batch_size)

    def __iter__(self) -> Iterator[tuple[NDArray, NDArray]]:
        for epoch in range(self.epochs):
            order = self._order(epoch)
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                if len(rows) == self.batch_size or not self.drop_last:
                    yield self.x[rows], self.y[rows]

    def _order(self, epoch: int) -> NDArray[np.intp]:
        """The rows in the order of an epoch."""
        if not self.shuffle:
            return np.arange(len(self.x))
        # The words of a bit generator are the same in every version of NumPy, what is made of them is not (NEP 19).
        words = np.random.PCG64([self.seed, epoch]).random_raw(len(self.x))
        return np.argsort(words, kind="stable")

    def __repr__(self) -> str:
        return f"Batches({len(self)} of {self.batch_size} rows from {len(self.x)}, seed={self.seed})"
