"""Batches of arrays, in an order that follows from a seed, and the checks of all batches.

A training checks that batches are pairs, and stores digests of the first batches in the manifest.
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
from simfloat.options import flag
from simfloat.train.states import array_of_tensor, is_tensor


class Batches:
    """Pairs of `batch_size` rows of x and of y, in a new random order for each epoch.

        sf.train.fit(model, loss_fn, sf.train.Batches(x, y, 32, epochs=10), optimizer, resume=folder)

    Every iteration starts from the first epoch. The order depends only on the seed and the epoch, and is the same in
    every version of NumPy, so a resumed training takes the same batches.

    Parameters:
        x, y: arrays with the same number of rows.
        batch_size: the number of rows of a batch; the last batch of an epoch may be smaller.
        epochs: the number of passes over the rows.
        shuffle: False to keep the order of the rows.
        drop_last: True to omit a last batch that is smaller.
        seed: the seed of the order, an integer from 0.

    Raises:
        ValueError: if the arrays are empty or have different lengths; if a count is not an integer above zero; if
            shuffle or drop_last is neither True nor False.

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
        """Return the number of batches in all epochs."""
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
        """Return the row numbers in the order of an epoch."""
        if not self.shuffle:
            return np.arange(len(self.x))
        # NumPy guarantees stable raw words of a bit generator, but no stable results computed from them (NEP 19).
        words = np.random.PCG64([self.seed, epoch]).random_raw(len(self.x))
        return np.argsort(words, kind="stable")

    def __repr__(self) -> str:
        return f"Batches({len(self)} of {self.batch_size} rows from {len(self.x)}, seed={self.seed})"


#: One batch: x and y.
Batch = tuple[Any, Any]

#: The number of batches with digests in the manifest.
DIGESTED_BATCHES = 4

#: The number of characters of a digest.
DIGEST_LENGTH = 16


class BatchSource:
    """The batches in order, with a count and the digests of the first ones."""

    def __init__(self, batches: Iterable[Batch], *, keeps_digests: bool) -> None:
        self._batches = iter(batches)
        self._keeps_digests = keeps_digests
        self._batch_count = 0
        self._digests: list[str] = []
        self.batch_size: int | None = None  # rows of the first batch

    def take(self, count: int) -> list[Batch]:
        """Return the next batches, at most `count`; raise ValueError if one is not a pair."""
        return [self._note_batch(_as_pair(batch, self._batch_count)) for batch in islice(self._batches, count)]

    def skip(self, count: int) -> None:
        """Skip the batches that were taken before a checkpoint, or fewer if the iterable ends."""
        for batch in islice(self._batches, count):
            self._note_batch(_as_pair(batch, self._batch_count))

    def check_skipped(self, count: int) -> None:
        """Raise ValueError if fewer than `count` batches could be skipped."""
        if self._batch_count < count:
            raise ValueError(
                f"{count} batches were taken before the checkpoint; the iterable gives {self._batch_count}. It must "
                "begin with the same batches."
            )

    def digests(self, count: int) -> list[str]:
        """Return the digests of the first batches, at most `count`."""
        return self._digests[:count]

    def _note_batch(self, batch: Batch) -> Batch:
        if self._keeps_digests and self._batch_count < DIGESTED_BATCHES:
            self._digests.append(digest(batch))
            self.batch_size = _row_count(batch[0]) if not self._batch_count else self.batch_size
        self._batch_count += 1
        return batch


def digest(part: Any) -> str:
    """Return a digest of the arrays and numbers in tuples, lists and dicts; other objects count only by their type."""
    content = sha256()
    for piece in _digested_bytes(part):
        content.update(piece)
    return content.hexdigest()[:DIGEST_LENGTH]


def _digested_bytes(part: Any) -> Iterable[bytes]:
    """Yield the bytes of the digest in order."""
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
    """Return the number of rows of a batch, or of its first input; None if it has no rows."""
    if isinstance(x, list | tuple) and x and hasattr(x[0], "shape"):
        return _row_count(x[0])
    if isinstance(x, list | tuple):
        return len(x)
    shape = getattr(x, "shape", ())
    return int(shape[0]) if shape else None


def _as_pair(batch: Any, number: int) -> Batch:
    """Return the batch; raise ValueError if it is not a pair."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        length = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(f"Batch {number} must be a pair (x, y), got a {type(batch).__name__}{length}.")
    return batch[0], batch[1]
