"""The arithmetic of a composite, and scattered gradients: to rows of a table, and to windows of images.

Each step of a composite is rounded as the policy says for that operation inside of it. `add_rows` adds rows at given
indices, as for gradients of embeddings. `spread_gradient` adds the gradients of windows to the pixels that they
cover, as in pooling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import Observer
from simfloat.arithmetic.target import notify
from simfloat.formats import FP32, FP64, Format
from simfloat.kernels.rounding.events import events_for, wants_optional_counts
from simfloat.simulation.arithmetic import Arithmetic, Elementwise
from simfloat.simulation.place import Place, widest_format
from simfloat.simulation.simulation import Simulation

#: Function that returns the arithmetic of a step on these operands at its place.
Rounds = Callable[[Place, tuple[NDArray, ...]], Arithmetic]


class ArrayFormats:
    """The formats of arrays. A format belongs to memory, so views of an array have its format.

    The format None means unknown: the array is data, in the format of its dtype.
    """

    def __init__(self) -> None:
        self._by_array: dict[int, tuple[NDArray, Format]] = {}  # keeps the array alive, so that its id stays valid

    def format_of(self, x: NDArray) -> Format | None:
        """Return the format of an array; None if it is unknown."""
        array_and_format = self._by_array.get(id(_owner(x)))
        return None if array_and_format is None else array_and_format[1]

    def note(self, x: NDArray, format: Format | None) -> None:
        """Store the format of an array."""
        if format is not None:
            owner = _owner(x)
            self._by_array[id(owner)] = owner, format

    def widest(self, operands: Iterable[NDArray]) -> Format:
        """Return the widest format of operands; as in array promotion, 0-dimensional constants are ignored next to
        arrays.
        """
        pairs = [(x, self.format_of(x)) for x in operands]
        counting = [(x, format) for x, format in pairs if format is not None or x.ndim] or pairs
        return widest_format(format or (FP32 if x.dtype == np.float32 else FP64) for x, format in counting)


def _owner(x: NDArray) -> NDArray:
    """Return the array that owns the memory."""
    return x.base if isinstance(x.base, type(x)) else x


class CompositeArithmetic(Elementwise):
    """The arithmetic for the formula of a composite whose steps have their own places.

    `rounds` returns the arithmetic of a step at its place, which is inside of `place`, the place of the composite; None
    stands for the arithmetic of the forward pass. `formats` has the formats of operands and, later, of results, if
    steps may have different formats; otherwise it is None.
    """

    def __init__(
        self, simulation: Simulation, place: Place, rounds: Rounds | None = None, formats: ArrayFormats | None = None
    ) -> None:
        self.place, self.formats = place, formats
        self.places: list[Place] = []  # of the steps so far, including steps of composites inside of this one
        self._simulation, self._rounds = simulation, rounds
        self._steps: dict[str, Place] = {}
        self._format: Format | None = None

    @classmethod
    def forward(
        cls,
        simulation: Simulation,
        place: Place,
        operands: Iterable[tuple[NDArray, Format | None]],
        fitting: Callable[[Place, Arithmetic], Arithmetic] | None = None,
    ) -> CompositeArithmetic:
        """Return the arithmetic of the forward pass, for operands with formats (None if unknown).

        With `fitting`, a front end can change the arithmetic of a place.
        """
        if not place.takes_formats and not place.active_policy.policy.overrides:
            return cls(simulation, place, None if fitting is None else lambda step, _: fitting(step, step.forward))
        formats = ArrayFormats()
        for x, format in operands:
            formats.note(x, format)

        def rounds(step: Place, operands: tuple[NDArray, ...]) -> Arithmetic:
            arithmetic = step.forward_in(formats.widest(operands)) if step.is_widest else step.forward
            return arithmetic if fitting is None else fitting(step, arithmetic)

        return cls(simulation, place, rounds, formats)

    def format_of(self, x: NDArray) -> Format | None:
        """Return the format of a result; None if it is not the result of a step."""
        return self._format if self.formats is None else self.formats.format_of(x)

    def _arithmetic(self, operation: str, operands: tuple[NDArray, ...]) -> Arithmetic:
        place = self._steps.get(operation) or self.place_of(operation)
        return place.forward if self._rounds is None else self._rounds(place, operands)

    def place_of(self, operation: str) -> Place:
        """Return the place of a step."""
        place = self._steps.get(operation)
        if place is None:
            place = self._simulation.sibling(self.place, operation, self.place.path, self.place.operations)
            self._steps[operation] = place
            self.places.append(place)
        return place

    def _sum_arithmetic(self, operation: str, x: NDArray) -> Arithmetic:
        arithmetic = self._arithmetic(operation, (x,))
        self._steps[operation].has_summed = True
        return arithmetic

    def _note_format(self, result: NDArray, arithmetic: Arithmetic) -> NDArray:
        self._format = format = arithmetic.target.format
        if self.formats is not None:
            self.formats.note(result, format)
        return result

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """Compute an elementwise operation, which is also the name of the step."""
        arithmetic = self._arithmetic(operation, operands)
        return self._note_format(arithmetic.apply(operation, *operands), arithmetic)

    def round(self, x: NDArray, operation: str, *sources: NDArray) -> NDArray:
        """Round values that the step `operation` computes exactly, such as the magnitude."""
        arithmetic = self._arithmetic(operation, sources or (x,))
        return self._note_format(arithmetic.round(x), arithmetic)

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """Sum over `axes` in row-major order; the axes are dropped."""
        arithmetic = self._sum_arithmetic("sum", x)
        return self._note_format(arithmetic.sum(x, axes), arithmetic)

    def running_sums(self, rows: NDArray) -> NDArray:
        """Return the sums of rows 0 to i for every i."""
        arithmetic = self._sum_arithmetic("sum", rows)
        return self._note_format(arithmetic.running_sums(rows), arithmetic)

    def mean(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """Return the sums over `axes` divided by the number of terms: one step with two roundings."""
        arithmetic = self._sum_arithmetic("mean", x)
        return self._note_format(arithmetic.mean(x, axes), arithmetic)

    def for_operation(self, operation: str) -> Arithmetic:
        """Return the arithmetic of the step of this name, for operations that are not methods of this class."""
        return self._arithmetic(operation, ())

    def with_format_of(self, x: NDArray, *sources: NDArray) -> NDArray:
        """Return `x`, a new array of values of `sources`, after storing its format."""
        if self.formats is not None and any(self.formats.format_of(source) is not None for source in sources):
            self.formats.note(x, self.formats.widest(sources))
        return x

    def composite(self, name: str, formula: Callable[..., NDArray], *operands: NDArray, **options: Any) -> NDArray:
        """Compute a formula as a composite of this name; its steps are inside of this composite."""
        inner = self.inner(name)
        result = inner.round_result(formula(inner, *operands, **options), operands)
        self._format = inner.format_of(result)
        return result

    def inner(self, name: str) -> CompositeArithmetic:
        """Return the arithmetic of a composite inside of this one."""
        inner = CompositeArithmetic(self._simulation, self.place_of(name), self._rounds, self.formats)
        inner.places = self.places
        return inner

    def round_result(self, result: NDArray, operands: tuple[NDArray, ...]) -> NDArray:
        """Return the result of the composite on these operands: rounded once if it is fused, otherwise unchanged."""
        if not self.place.is_fused:
            return result
        arithmetic = self.place.forward if self._rounds is None else self._rounds(self.place, operands)
        return self._note_format(arithmetic.round(result), arithmetic)


def add_rows(u: Arithmetic, g: NDArray, places: NDArray[np.integer], shape: tuple[int, int]) -> NDArray:
    """Add the rows of g at the indices `places` into an array of `shape`; the other rows of the result are zero.

    Rows with the same index are added in their order. If every index occurs once, nothing is added.
    """
    count, width = shape
    rows, full = g.reshape(len(places), width), np.zeros(shape, g.dtype, like=g)
    uses = np.bincount(places, minlength=count)
    if (uses < 2).all():
        full[places] = rows
        return u.round(full)
    observer = u.target.observer
    together = _SummedEvents(observer)
    summing = u.with_observer(together) if observer is not None else u
    order, times = np.argsort(places, kind="stable"), uses[places]
    full[places[times == 1]] = rows[times == 1]
    result = np.empty(shape, u.target.dtype, like=g)
    result[uses < 2] = summing.round(full[uses < 2])
    for number in np.unique(times[times > 1]).tolist():
        named = uses == number
        stacked = rows[order[times[order] == number]].reshape(int(np.count_nonzero(named)), number, width)
        result[named] = summing.sum(stacked, (1,))
    if observer is not None:
        notify(observer, together.events, u.target.operation)
    return result


class _SummedEvents(Observer):
    """Adds up the events of several roundings that form one result."""

    def __init__(self, observer: Observer | None) -> None:
        self.events, self.more = events_for(observer), wants_optional_counts(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call."""
        self.events += events


class WindowAxis(NamedTuple):
    """Windows along one axis of images: their size, step, border, gap (dilation) and number."""

    places: int
    step: int
    border: int
    gap: int
    number: int


def spread_gradient(
    u: Arithmetic, shares: Iterable[NDArray], g: NDArray, sides: Sequence[WindowAxis], shape: tuple[int, ...]
) -> NDArray:
    """Return the gradient of images, in an array like `g`.

    `shares` contains, for each position within a window in row-major order, the gradients that the windows give to
    the pixel at that position. If windows overlap, the gradient is a sum with the accumulator `reduce` over the
    windows in row-major order; windows without a share of the pixel count as +0.
    """
    offsets = [[side.gap * n - side.border for n in range(side.places)] for side in sides]
    # The distance of windows that share a pixel is a multiple of the stride; the pixel is at an earlier position of
    # the later window.
    later = [sorted({o // side.step for o in along}, reverse=True) for along, side in zip(offsets, sides, strict=True)]
    sizes = shape[len(shape) - len(sides) :]
    terms = np.zeros((*map(len, later), *shape), g.dtype, like=g)
    for place, share in zip(product(*offsets), shares, strict=True):
        number = tuple(along.index(o // side.step) for along, o, side in zip(later, place, sides, strict=True))
        windows, pixels = zip(*map(_windows_and_pixels, place, sides, sizes), strict=True)
        terms[(*number, ..., *pixels)] = share[(..., *windows)]
    axes = tuple(range(len(sides)))
    return u.round(terms[(0,) * len(sides)]) if terms.size == terms[(0,) * len(sides)].size else u.sum(terms, axes)


def _windows_and_pixels(offset: int, side: WindowAxis, size: int) -> tuple[slice, slice]:
    """Return the windows whose pixel at this offset is inside the image, and these pixels."""
    first = max(-(offset // side.step), 0)
    last = max(min((size - 1 - offset) // side.step + 1, side.number), first)
    start = first * side.step + offset
    return slice(first, last), slice(start, start + (last - first) * side.step, side.step)
