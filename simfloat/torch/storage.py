"""Tensors known by the memory that they are views of."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

import torch

from simfloat.torch.open_run import without_dispatch

T = TypeVar("T")


def memory_of(x: torch.Tensor) -> int:
    """Return an identifier of the memory of a tensor and of all its views, valid as long as it lives."""
    # The address of the storage object. `data_ptr()` is 0 for every empty tensor, and changes when `set_` or `resize_`
    # gives the storage other bytes.
    return x.untyped_storage()._cdata


def extent_of(x: torch.Tensor) -> tuple[int, int]:
    """The first byte of the memory that a tensor's elements lie in, and the one behind the last."""
    size, begin = x.element_size(), int(x.storage_offset())
    if x.is_contiguous():
        return begin * size, (begin + x.numel()) * size
    # From the first element to the last one; gaps of a strided view belong to it.
    steps = sum((int(length) - 1) * int(step) for length, step in zip(x.shape, x.stride(), strict=True))
    return begin * size, (begin + steps + 1) * size


class TaggedParts(Generic[T]):
    """The tag of one memory, and the tags of parts of it that lie one behind the other."""

    def __init__(self, whole: T) -> None:
        self._whole = whole  # what is known where no part is
        self._begins: list[int] = []
        self._parts: list[tuple[int, T]] = []  # each with its end

    def at(self, x: torch.Tensor) -> T:
        """Return the tag of a tensor's numbers."""
        tag = self.part(x)
        return self._whole if tag is None else tag

    def part(self, x: torch.Tensor) -> T | None:
        """Return the tag of the part that contains a tensor; None if no single part does."""
        begin, end = extent_of(x)
        place = bisect_right(self._begins, begin) - 1
        return self._parts[place][1] if place >= 0 and end <= self._parts[place][0] else None

    def put(self, x: torch.Tensor, tag: T) -> None:
        """Know this of the part that is the tensor's, and nothing more of those that it overlaps."""
        begin, end = extent_of(x)
        if begin == end:
            return
        # Parts never overlap, so their ends ascend as their beginnings do.
        first = bisect_left([each for each, _ in self._parts], begin + 1)
        last = bisect_left(self._begins, end)
        self._begins[first:last], self._parts[first:last] = [begin], [(end, tag)]

    def within(self, x: torch.Tensor) -> list[tuple[torch.Tensor, T]]:
        """The parts inside of a tensor whose elements lie one behind the other, as vectors, with what is known."""
        (begin, end), size = extent_of(x), x.element_size()
        with without_dispatch(), torch.no_grad():
            return [
                (x.as_strided(((stop - start) // size,), (1,), start // size), tag)
                for start, (stop, tag) in zip(self._begins, self._parts, strict=True)
                if begin <= start and stop <= end
            ]

    def change(self, x: torch.Tensor, tag: T) -> None:
        """Know this of the part that a tensor lies in, or where it lies in no single one, of what is no part."""
        begin, end = extent_of(x)
        place = bisect_right(self._begins, begin) - 1
        if place >= 0 and end <= self._parts[place][0]:
            self._parts[place] = self._parts[place][0], tag
        else:
            self._whole = tag


def view_like(x: torch.Tensor, plain: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """The view of `real` that x is of `plain`, which is laid out alike; x may show its bytes as another type."""
    if x is plain:
        return real
    records = torch.is_grad_enabled()
    try:  # torch.no_grad() in two calls of C, between which Ctrl-C cannot leave it open
        torch._C._set_grad_enabled(False)
        with without_dispatch():
            # In bytes: x may be a view by another type, as x.view(torch.int32).
            begins = [each.storage_offset() * each.element_size() for each in (real, x, plain)]
            begin = (begins[0] + begins[1] - begins[2]) // x.element_size()
            if x.dtype == real.dtype:
                return real.as_strided(x.shape, x.stride(), begin)
            # `as_strided` keeps the type of `real`.
            return x.new_empty(0).set_(real.untyped_storage(), begin, x.shape, x.stride())
    finally:
        torch._C._set_grad_enabled(records)
