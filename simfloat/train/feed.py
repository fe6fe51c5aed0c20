"""The batches of a training: checked to be pairs, with digests of the first ones for the manifest."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np

from simfloat.arithmetic.machines import is_on_gpu, on_cpu
from simfloat.autodiff.variable import Variable
from simfloat.train.tensor_trees import array_of_tensor, is_tensor

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
                f"{count} batches were taken before the checkpoint; the iterable gives {self._batch_count}. It must begin "
                "where it began then."
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
