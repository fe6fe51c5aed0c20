"""Batches of arrays, in an order that follows from a seed, and the check of any batches.

A training checks that batches are pairs, and takes digests of the first ones for the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array, is_on_gpu, on_cpu
from simfloat.autodiff.variable import Variable
from simfloat.common import check_count
from simfloat.optim.options import flag
from simfloat.train.states import array_of_tensor, is_tensor


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


#: What a step takes of the batches.
Batch = tuple[Any, Any]

#: So many batches are known by their digests.
DIGESTED_BATCHES = 4

#: Characters of a digest.
DIGEST_LENGTH = 16


class BatchSource:
    """Batches in their order, from the first one on."""

    def __init__(self, batches: Iterable[Batch], *, keeps_digests: bool) -> None:
        self._batches = iter(batches)
        self._keeps_digests = keeps_digests
        self._batch_count = 0
        self._digests: list[str] = []
        self.batch_size: int | None = None  # rows of the first batch

    def take(self, count: int) -> list[Batch]:
        """The next batches, at most so many; ValueError for one that is no pair."""
        return [self._note_batch(_as_pair(batch, self._batch_count)) for batch in islice(self._batches, count)]

    def skip(self, count: int) -> None:
        """Pass by the batches that were taken before a checkpoint, as far as there are so many."""
        for batch in islice(self._batches, count):
            self._note_batch(_as_pair(batch, self._batch_count))

    def check_skipped(self, count: int) -> None:
        """Raise ValueError if fewer batches than these were there to pass by."""
        if self._batch_count < count:
            raise ValueError(
                f"{count} batches were taken before the checkpoint; the iterable gives {self._batch_count}. It must "
                "begin where it began then."
            )

    def digests(self, count: int) -> list[str]:
        """Return the digests of the first batches, at most so many."""
        return self._digests[:count]

    def _note_batch(self, batch: Batch) -> Batch:
        if self._keeps_digests and self._batch_count < DIGESTED_BATCHES:
            self._digests.append(digest(batch))
            self.batch_size = _row_count(batch[0]) if not self._batch_count else self.batch_size
        self._batch_count += 1
        return batch


def digest(part: Any) -> str:
    """A digest of the arrays and numbers in tuples, lists and dicts; of other things, only their type counts."""
    content = sha256()
    for piece in _digested_bytes(part):
        content.update(piece)
    return content.hexdigest()[:DIGEST_LENGTH]


def _digested_bytes(part: Any) -> Iterable[bytes]:
    """Yield the bytes of which a digest is made, in order."""
    if isinstance(part, Variable):
        part = part.numbers
    if is_tensor(part):
        part, _ = array_of_tensor(part, "A batch")
    if is_on_gpu(part) or hasattr(part, "__array__"):
        array = np.asarray(on_cpu(part))
        yield f"{array.dtype.str}{array.shape}".encode()
        part = array.tolist() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
    if isinstance(part, dict):
        part = list(part.items())
    if isinstance(part, list | tuple):
        yield f"{len(part)} parts".encode()
        for inner in part:
            yield from _digested_bytes(inner)
    else:
        is_plain = part is None or isinstance(part, bool | int | float | complex | str)
        yield part if isinstance(part, bytes) else (repr(part) if is_plain else type(part).__name__).encode()


def _row_count(x: Any) -> int | None:
    """How many rows a batch has; of several inputs, the first one. None for what has none."""
    if isinstance(x, list | tuple) and x and hasattr(x[0], "shape"):
        return _row_count(x[0])
    if isinstance(x, list | tuple):
        return len(x)
    shape = getattr(x, "shape", ())
    return int(shape[0]) if shape else None


def _as_pair(batch: Any, number: int) -> Batch:
    """The batch; ValueError unless it is a pair."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        length = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(f"Batch {number} must be a pair (x, y), got a {type(batch).__name__}{length}.")
    return batch[0], batch[1]
