"""Accumulators: in what order a sum is made, and where it is rounded."""

from __future__ import annotations

from functools import cache, cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.carrier import CARRIERS
from simfloat.accumulate.facts import Facts, facts_of
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.stream import Draw
from simfloat.formats import Format, Rounding, as_format

#: Of the left operand's blocks (..., m, k / block), and of the right one's (..., k / block, n).
Scales = tuple[NDArray, NDArray]


class Place(NamedTuple):
    """Which elements of the result a tile holds, so that stochastic steps find their bits.

    The element at (i, j) of the tile is number first + i * row_step + j * column_step of the result.
    """

    first: int
    row_step: int
    column_step: int
    draw: Draw | None
    swapped: bool = False  # the tile is of the transposed product: its left operand is the user's right one
    stage: int = 1  # of the accumulator's first rounding; stage 0 is the result's own
    step: int = 0  # of its first product, a multiple of 4
    scales: Scales | None = None  # of the tile's blocks


class Operand(NamedTuple):
    """An array with what is known of it: its facts, the format that it was rounded to."""

    array: NDArray
    facts: Facts | None = None
    format: Format | None = None


class Operands:
    """What an accumulator is asked to sum: both operands, products a sum, and what the sum is rounded to.

    The facts of an array are found when they are first asked for, unless they were known before. `scales`, a pair of
    arrays, are those of the operands' blocks, for accumulators that take them.
    """

    def __init__(
        self, x: Operand, y: Operand, depth: int, output: Format, rounding: Rounding, scales: Scales | None = None
    ) -> None:
        self.x, self.y, self._a, self._b = x, y, x.facts, y.facts
        self.depth, self.output, self.rounding, self.scales = depth, output, rounding, scales

    @property
    def are_float32(self) -> bool:
        """Whether both arrays are float32: then every number of theirs is one."""
        return bool(self.x.array.dtype == np.float32 and self.y.array.dtype == np.float32)

    @property
    def in_float32(self) -> bool:
        """Whether all their numbers are float32 numbers."""
        return self.are_float32 or (CARRIERS[0].holds(self.a) and CARRIERS[0].holds(self.b))

    # Not cached properties: before Python 3.12 their lock takes longer than a small array's facts.

    @property
    def a(self) -> Facts:
        """Of the left operand."""
        if self._a is None:
            self._a = facts_of(self.x.array)
        return self._a

    @property
    def b(self) -> Facts:
        """Of the right operand."""
        if self._b is None:
            self._b = facts_of(self.y.array)
        return self._b

    @cached_property
    def products(self) -> Facts:
        """Of the products, with their scales."""
        products = self.a.times(self.b)
        for scales in self.scales or ():
            products = products.times(facts_of(scales))
        return products


class Engine(Protocol):
    """An accumulator made ready for operands of known facts: computes tiles of a matrix product."""

    @property
    def carrier(self) -> FloatType:
        """float32 or float64: what operands and sums travel as."""

    @property
    def cost(self) -> float:
        """Nanoseconds a product, roughly: decides how many threads share the work."""

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        """Add a (m, k) times b (k, n) over k to out (m, n); all C-contiguous in the carrier's type.

        What `out` holds before is what the sums start from: zeros, or an addend.
        """


class Accumulator(Protocol):
    """The order and the roundings of a sum; an immutable value."""

    @property
    def result(self) -> Format | None:
        """The format that sums come in; None for exact sums, which need an `output`."""

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """The modes of its steps: a stochastic one needs a stream."""

    @property
    def stages(self) -> int:
        """How many stages of random bits its steps draw from."""

    def steps(self, terms: int) -> int:
        """How many steps of each stage so many products may draw at: a multiple of 4."""

    @property
    def scales(self) -> tuple[int, Format] | None:
        """Products a block and the format of its scale, where blocks are scaled."""

    def sums(self, products: Facts, terms: int) -> Facts:
        """What is known of sums of so many such products."""

    def engine(self, operands: Operands) -> Engine:
        """The engine for such sums.

        Raises ValueError if they are too wide for the steps to be exact.
        """


def as_accumulator(x: Accumulator | Format | str) -> Accumulator:
    """The accumulator that `x` stands for: itself, or a format (or its name) for `sequential`."""
    if isinstance(x, Format | str):
        return _sequential(as_format(x))
    if hasattr(x, "engine"):
        return x
    raise ValueError(f"accumulate must be a simfloat accumulator or a format, got {x!r} of type {type(x).__name__}.")


@cache
def _sequential(format: Format) -> Accumulator:
    from simfloat.accumulate.sequential import Sequential

    return Sequential(format)


def whole_steps(terms: int) -> int:
    """The steps of a sum that takes one a product: random words come in fours."""
    return -(-terms // 4) * 4


#: The place of what draws nothing.
NOWHERE = np.zeros(6, np.int64), np.uint64(0)


def kernel_place(place: Place) -> tuple[NDArray[np.int64], np.uint64]:
    """The place and the seed in the form that kernels take them."""
    if place.draw is None:
        return NOWHERE
    call = place.draw.call
    where = np.array([place.first, place.row_step, place.column_step, call, place.stage, place.step], np.int64)
    return where, np.uint64(place.draw.seed)
