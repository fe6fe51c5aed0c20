"""Guards of what a backward pass will read: a write between the forward pass and it is an error.

A derivative reads arrays that the forward pass left it, and their numbers must still be those of then. Guarded are

* parameters: they must have the bits, as they are used, that the forward pass read;
* data, arrays of the caller: by a digest of at most `SAMPLE` numbers, spread evenly in larger arrays;
* results of operations, which only the record holds until `data` hands them out: from then on by a digest too.

Indices, labels and masks are copied. Arrays on a GPU have no digest: there parameters alone are guarded, and arrays
among the options of a user's operation nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from simfloat.formats import Format
from simfloat.simulation.place import Place

#: A digest is taken of at most so many numbers, in some 0.02 ms.
SAMPLE = 1 << 16

#: Bytes from which on sums modulo 2^64 are quicker than a CRC-32, a quarter of whose time they then take.
LARGE = 1 << 14


class ChangeGuard:
    """Whether the array of a tensor was lent to callers, who may write to it; views of an array share its loan."""

    __slots__ = ("_digest", "_watched")

    def __init__(self, watched: NDArray | None = None) -> None:
        self._watched, self._digest = watched, 0 if watched is None else digest_of(watched)

    def watch(self, array: NDArray) -> None:
        """Note that others are given the array, or a view of it, for the first time."""
        if self._watched is None:
            while isinstance(array.base, np.ndarray):
                array = array.base
            self._watched, self._digest = array, digest_of(array)

    def guard(self) -> Guard:
        """A guard of the numbers as they are now; itself, as long as the array was not handed out."""
        return self if self._watched is None else ChangeGuard(self._watched)

    def is_intact(self) -> bool:
        """Whether the numbers are what they were when they were lent, if they were."""
        return self._watched is None or digest_of(self._watched) == self._digest

    def __str__(self) -> str:
        return "an array that it read was written to"


class Guarded(Protocol):
    """What a guard asks of the parameter that it guards."""

    @property
    def path(self) -> str:
        """Its name in its model, if it has one."""
        ...

    def has_numbers(self, numbers: NDArray, format: Format | None) -> bool:
        """Whether it is used with these numbers, in this format."""
        ...


class ParameterGuard(NamedTuple):
    """A guard of a parameter: its numbers as the forward pass used them."""

    parameter: Guarded
    numbers: NDArray
    format: Format | None

    def guard(self) -> Guard:
        """Itself."""
        return self

    def watch(self, array: NDArray) -> None:
        """Views of a parameter are read-only."""

    def is_intact(self) -> bool:
        """Whether the parameter is used with these numbers still."""
        return self.parameter.has_numbers(self.numbers, self.format)

    def __str__(self) -> str:
        return (
            f"the parameter {self.parameter.path!r} was changed" if self.parameter.path else "a parameter was changed"
        )


#: The owner of the array that a tensor's numbers are, or are a view of; and a guard of it.
Guard = ChangeGuard | ParameterGuard


def digest_of(array: NDArray) -> int:
    """A number that is another one, almost certainly, once something else was written to the array."""
    if type(array) is not np.ndarray:
        return 0
    if array.size > SAMPLE:
        array = array.ravel("K")[:: -(-array.size // SAMPLE)]
    array = np.ascontiguousarray(array)
    if array.nbytes < LARGE or array.nbytes % 8:
        return crc32(array.data)
    words = array.reshape(-1).view(np.uint64)
    return int((words * _factors()[: words.size]).sum())


@cache
def _factors() -> NDArray[np.uint64]:
    """Odd factors of words: what changes one word changes the sum of products, what changes several almost surely."""
    return np.random.default_rng(0).integers(0, 1 << 63, SAMPLE, np.uint64) * np.uint64(2) + np.uint64(1)


def check_unchanged(guards: Sequence[Guard], place: Place) -> None:
    """Raise ValueError if something was written to that the backward pass of an operation reads."""
    for guard in guards:
        if not guard.is_intact():
            raise ValueError(
                f"{place.where}: {guard} between the forward pass and backward, which needs its numbers of then. Call "
                "backward before an optimizer's step and before writing, or give the forward pass what nobody writes "
                "to, such as array.copy()."
            )
