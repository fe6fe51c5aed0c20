"""The arithmetic of a composite, and gradients that are scattered: to rows of a table, and to windows of images.

Each step of a composite is rounded as the policy says for that operation inside of it. `add_rows` adds rows at places,
as for gradients of embeddings. `spread_gradient` spreads the gradients of windows over the pixels that each of them
meets, as pooling has them.
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

#: The arithmetic of a step on these operands, at its place.
Rounds = Callable[[Place, tuple[NDArray, ...]], Arithmetic]


class ArrayFormats:
    """The formats of arrays. They belong to memory, so that views of an array have its format.

    None, for what nothing is known of, is the format of data: that of its type.
    """

    def __init__(self) -> None:
        self._by_array: dict[int, tuple[NDArray, Format]] = {}  # with the array, so that its id stays its own

    def format_of(self, x: NDArray) -> Format | None:
        """The format of an array, if it is known."""
        array_and_format = self._by_array.get(id(_owner(x)))
        return None if array_and_format is None else array_and_format[1]

    def note(self, x: NDArray, format: Format | None) -> None:
        """Know the format of an array from now on."""
        if format is not None:
            owner = _owner(x)
            self._by_array[id(owner)] = owner, format

    def widest(self, operands: Iterable[NDArray]) -> Format:
        """The widest format of operands; as in array promotion, constants without axes do not count beside arrays."""
        pairs = [(x, self.format_of(x)) for x in operands]
        counting = [(x, format) for x, format in pairs if format is not None or x.ndim] or pairs
        return widest_format(format or (FP32 if x.dtype == np.float32 else FP64) for x, format in counting)


def _owner(x: NDArray) -> NDArray:
    """The array whose memory it is."""
    return x.base if isinstance(x.base, type(x)) else x


class CompositeArithmetic(Elementwise):
    """What the formula of a composite computes with where every step has a place of its own.

    `rounds` gives the arithmetic of a step at its place, which lies inside of `place`, that of the composite. `formats`
    knows those of operands where steps may have several, and comes to know those of results; else it is None.
    """

    def __init__(
        self, simulation: Simulation, place: Place, rounds: Rounds, formats: ArrayFormats | None = None
    ) -> None:
        self.place, self.formats = place, formats
        self.places: list[Place] = []  # of the steps so far, those of composites inside of this one too
        self._simulation, self._rounds = simulation, rounds
        self._steps: dict[str, Place] = {}
        self._format: Format | None = None

    @classmethod
    def forward(
        cls,
        simulation: Simulation,
        place: Place,
        operands: Iterable[tuple[NDArray, Format | None]],
        fitting: Callable[[Place, Arithmetic], Arithmetic] = lambda place, arithmetic: arithmetic,
    ) -> CompositeArithmetic:
        """That of the forward pass, of operands with the formats that are known of them.

        A front end may have something to say about the arithmetic of a place: `fitting`.
        """
        if not place.takes_formats and not place.active_policy.policy.overrides:
            return cls(simulation, place, lambda step, _: fitting(step, step.forward))
        formats = ArrayFormats()
        for x, format in operands:
            formats.note(x, format)

        def rounds(step: Place, operands: tuple[NDArray, ...]) -> Arithmetic:
            return fitting(step, step.forward_in(formats.widest(operands)) if step.is_widest else step.forward)

        return cls(simulation, place, rounds, formats)

    def format_of(self, x: NDArray) -> Format | None:
        """The format of a result; None if no step made it."""
        return self._format if self.formats is None else self.formats.format_of(x)

    def _arithmetic(self, operation: str, operands: tuple[NDArray, ...]) -> Arithmetic:
        return self._rounds(self._place(operation), operands)

    def _place(self, operation: str) -> Place:
        place = self._steps.get(operation)
        if place is None:
            place = self._simulation.sibling(self.place, operation, self.place.path, self.place.operations)
            self._steps[operation] = place
            self.places.append(place)
        return place

    def _sum_arithmetic(self, operation: str, x: NDArray) -> Arithmetic:
        self._place(operation).has_summed = True
        return self._arithmetic(operation, (x,))

    def _note_format(self, result: NDArray, arithmetic: Arithmetic) -> NDArray:
        self._format = arithmetic.format
        if self.formats is not None:
            self.formats.note(result, arithmetic.format)
        return result

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """An elementwise operation, which is the name of the step."""
        arithmetic = self._arithmetic(operation, operands)
        return self._note_format(arithmetic.apply(operation, *operands), arithmetic)

    def round(self, x: NDArray, operation: str, *sources: NDArray) -> NDArray:
        """What an operation finds without rounding, such as the size of a number, rounded as its step."""
        arithmetic = self._arithmetic(operation, sources or (x,))
        return self._note_format(arithmetic.round(x), arithmetic)

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes`, in row-major order; the axes are dropped."""
        arithmetic = self._sum_arithmetic("sum", x)
        return self._note_format(arithmetic.sum(x, axes), arithmetic)

    def running_sums(self, rows: NDArray) -> NDArray:
        """The sums of all rows up to each."""
        arithmetic = self._sum_arithmetic("sum", rows)
        return self._note_format(arithmetic.running_sums(rows), arithmetic)

    def mean(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes` divided by the number of terms: two roundings of one step."""
        arithmetic = self._sum_arithmetic("mean", x)
        return self._note_format(arithmetic.mean(x, axes), arithmetic)

    def for_operation(self, operation: str) -> Arithmetic:
        """The arithmetic of the step of this name, for what is none of the operations here."""
        return self._arithmetic(operation, ())

    def with_format_of(self, x: NDArray, *sources: NDArray) -> NDArray:
        """`x` itself, a new array of numbers that were those of `sources`."""
        if self.formats is not None and any(self.formats.format_of(source) is not None for source in sources):
            self.formats.note(x, self.formats.widest(sources))
        return x

    def composite(self, name: str, formula: Callable[..., NDArray], *operands: NDArray, **options: Any) -> NDArray:
        """The result of a formula as a composite of this name, whose steps lie inside of it."""
        inner = CompositeArithmetic(self._simulation, self._place(name), self._rounds, self.formats)
        result = inner.round_result(formula(inner, *operands, **options), operands)
        self._format = inner.format_of(result)
        self.places += inner.places
        return result

    def round_result(self, result: NDArray, operands: tuple[NDArray, ...]) -> NDArray:
        """The result of the composite on these operands: rounded once where it is fused, else as its steps left it."""
        if not self.place.recipe.fused:
            return result
        arithmetic = self._rounds(self.place, operands)
        return self._note_format(arithmetic.round(result), arithmetic)


def add_rows(u: Arithmetic, g: NDArray, places: NDArray[np.integer], shape: tuple[int, int]) -> NDArray:
    """The rows of g, one for each of `places`, added into an array of `shape`; rows that none names are zero.

    Rows of one place are added in their order; there is nothing to add where a place is named once.
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
    """Adds up the events of several roundings, which make one result."""

    def __init__(self, observer: Observer | None) -> None:
        self.events, self.more = events_for(observer), wants_optional_counts(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call."""
        self.events += events


class WindowAxis(NamedTuple):
    """Windows along one axis of images: their places, the steps between them, the border, gaps, and their number."""

    places: int
    step: int
    border: int
    gap: int
    number: int


def spread_gradient(
    u: Arithmetic, shares: Iterable[NDArray], g: NDArray, sides: Sequence[WindowAxis], shape: tuple[int, ...]
) -> NDArray:
    """The gradient of images, in an array like `g`: for every place of the windows, by rows, what each window gives to
    the pixel there.

    Where windows overlap, it is a sum through `reduce`, over the windows in row-major order; those that give the pixel
    nothing count as +0.
    """
    offsets = [[side.gap * n - side.border for n in range(side.places)] for side in sides]
    # Windows that share a pixel are whole strides apart; the later one has it at the earlier place.
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
    """Which windows have an offset's pixel on the image; and these pixels."""
    first = max(-(offset // side.step), 0)
    last = max(min((size - 1 - offset) // side.step + 1, side.number), first)
    start = first * side.step + offset
    return slice(first, last), slice(start, start + (last - first) * side.step, side.step)
