"""The batches of a training: checked to be pairs, with digests of the first ones for the manifest."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np

from simfloat.arithmetic.machines import is_on_gpu, on_cpu
from simfloat.autodiff.variable import Variable
from simfloat.train.tensor_trees import array_of, is_tensor

#: What a step takes of the batches.
Batch = tuple[Any, Any]

#: So many batches are known by their digests.
KNOWN = 4

#: Characters of a digest.
LENGTH = 16


class Feed:
    """Batches in their order, from the first one on."""

    def __init__(self, batches: Iterable[Batch], *, is_known: bool) -> None:
        self._batches = iter(batches)
        self._is_known = is_known
        self._given = 0
        self._digests: list[str] = []
        self.batch_size: int | None = None  # rows of the first batch

    def take(self, count: int) -> list[Batch]:
        """The next batches, at most so many; ValueError for one that is no pair."""
        return [self._noted(_checked(batch, self._given)) for batch in islice(self._batches, count)]

    def skip(self, count: int) -> None:
        """Pass by the batches that were taken before a checkpoint, as far as there are so many."""
        for batch in islice(self._batches, count):
            self._noted(_checked(batch, self._given))

    def check(self, count: int) -> None:
        """Raise ValueError if fewer batches than these were there to pass by."""
        if self._given < count:
            raise ValueError(
                f"{count} batches were taken before the checkpoint; the iterable gives {self._given}. It must begin "
                "where it began then."
            )

    def digests(self, taken: int) -> list[str]:
        """Return the digests of the first batches, at most so many."""
        return self._digests[:taken]

    def _noted(self, batch: Batch) -> Batch:
        if self._is_known and self._given < KNOWN:
            self._digests.append(digest(batch))
            self.batch_size = _rows(batch[0]) if not self._given else self.batch_size
        self._given += 1
        return batch


def digest(part: Any) -> str:
    """A digest of the arrays and numbers in tuples, lists and dicts; of other things, only their type counts."""
    content = sha256()
    for piece in _pieces(part):
        content.update(piece)
    return content.hexdigest()[:LENGTH]


def _pieces(part: Any) -> Iterable[bytes]:
    """Yield the bytes of which a digest is made, in order."""
    if isinstance(part, Variable):
        part = part.numbers
    if is_tensor(part):
        part, _ = array_of(part, "A batch")
    if is_on_gpu(part) or hasattr(part, "__array__"):
        array = np.asarray(on_cpu(part))
        yield f"{array.dtype.str}{array.shape}".encode()
        part = array.tolist() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
    if isinstance(part, dict):
        part = list(part.items())
    if isinstance(part, list | tuple):
        yield f"{len(part)} parts".encode()
        for inner in part:
            yield from _pieces(inner)
    else:
        is_plain = part is None or isinstance(part, bool | int | float | complex | str)
        yield part if isinstance(part, bytes) else (repr(part) if is_plain else type(part).__name__).encode()


def _rows(x: Any) -> int | None:
    """How many rows a batch has; of several inputs, the first one. None for what has none."""
    if isinstance(x, list | tuple) and x and hasattr(x[0], "shape"):
        return _rows(x[0])
    if isinstance(x, list | tuple):
        return len(x)
    shape = getattr(x, "shape", ())
    return int(shape[0]) if shape else None


def _checked(batch: Any, number: int) -> Batch:
    """The batch; ValueError unless it is a pair."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        length = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(f"Batch {number} must be a pair (x, y), got a {type(batch).__name__}{length}.")
    return batch[0], batch[1]
