"""Accumulators, which define the order and the roundings of a sum, and engines, which compute it.

An accumulator returns an engine for given operands. The engine computes tiles of matrix products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import MOST_SHORT_BITS, Draw
from simfloat.arithmetic.machines import CPU, Device
from simfloat.arithmetic.operands import FloatType
from simfloat.common import state_of_fields, stored_hash
from simfloat.formats import Format, Rounding
from simfloat.sums.bounds import Bounds
from simfloat.sums.operands import Problem

#: The scales of the blocks of a tile: of its rows (m, k / block), and of its columns (k / block, n).
TileScales = tuple[NDArray, NDArray]


class Region(NamedTuple):
    """The position of a tile in the result, which determines the random bits of its steps; and the device of the tile.

    Element (i, j) of the tile is element number first + i * row_step + j * column_step of the result.
    """

    first: int
    row_step: int
    column_step: int
    draw: Draw | None
    is_transposed: bool = False  # the tile is of the transposed product: its left operand is the right one of the user
    stage: int = 1  # of the first rounding of the accumulator; stage 0 is the rounding of the result
    step: int = 0  # of its first product, a multiple of 4 or of 16 (see accumulator.whole_steps)
    scales: TileScales | None = None
    machine: Device = CPU  # the device of the tile and of both operands
    matrix_step: int = 0  # in a stack: from element (i, j) of a tile to element (i, j) of the next one


class Engine(Protocol):
    """The computation of an accumulator for operands with known properties."""

    @property
    def carrier(self) -> FloatType:
        """float32 or float64: the dtype of operands and sums."""

    @property
    def cost(self) -> float:
        """Nanoseconds per product, roughly: it decides how many threads share the work."""

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        """Add a (m, k) times b (k, n) over k to out (m, n); all arrays are C-contiguous and of the engine's dtype.

        The sums start from the values in `out`: zeros, or initial values.
        """


#: A function (engine, a, b, out, region) that computes sums with the help of an engine.
SumRows = Callable[[Engine, NDArray, NDArray, NDArray, Region], None]


class Around:
    """An engine that computes sums by a function of another engine, with the properties of that engine.

    `carrier` is the dtype of operands and sums, if the function reads another one. `added_cost` is the cost of the
    function. `stacks` is true if it takes stacks as the engine does, and `takes_ones` if a repeated value may keep its
    strides of 0.
    """

    def __init__(
        self,
        engine: Engine,
        sum_rows: SumRows,
        *,
        carrier: FloatType = None,
        added_cost: float = 0.0,
        stacks: bool = True,
        takes_ones: bool = False,
    ) -> None:
        self.engine, self.sum_rows, self.takes_ones = engine, sum_rows, takes_ones
        self.carrier, self.cost = carrier or engine.carrier, engine.cost + added_cost
        self.takes_stacks = stacks and takes_stacks(engine)

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        self.sum_rows(self.engine, a, b, out, region)


#: A function (a, b, out, region) -> (a, b, sums): the operands and start values for an engine.
Preparation = Callable[[NDArray, NDArray, NDArray, Region], tuple[NDArray, NDArray, NDArray]]

#: A function (sums, out, region) that writes sums to `out`.
Conversion = Callable[[NDArray, NDArray, Region], None]


def around_operands(
    engine: Engine, prepare: Preparation, finish: Conversion | None = None, *, stacks: bool = False
) -> Around:
    """Return an engine for operands and start values that are changed first; `stacks` if stacks can be changed."""

    def sum_changed(engine: Engine, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        left, right, sums = prepare(a, b, out, region)
        engine.run(left, right, sums, region)
        if finish is not None:
            finish(sums, out, region)

    return Around(engine, sum_changed, stacks=stacks)


def takes_stacks(engine: Engine) -> bool:
    """Return True if the engine consists only of compiled loops on the CPU.

    Such an engine accepts stacks of matrices if no step is stochastic (`kernels.sums.rows`). Its sums are numbers of
    the accumulator's format, with one NaN.
    """
    return getattr(engine, "takes_stacks", False)


def sums_are_results(result: Format | None, format: Format, rounding: Rounding) -> bool:
    """Return True if a rounding changes no sum of an engine of compiled loops, which has the format `result`.

    This includes signed zeros and infinities.
    """
    if format != result or rounding.saturates:
        return False
    return format.special == "ieee" and format.subnormals and format.signed


#: The region and the seed for loops without stochastic steps, which read neither. Compiled loops have one signature for
#: all modes, so one constant array serves every region.
NO_REGION = np.zeros(6, np.int64), np.uint64(0)


def kernel_region(region: Region) -> tuple[NDArray[np.int64], np.uint64]:
    """Return the region and the seed in the form that kernels take."""
    first, row_step, column_step, draw, _, stage, step, *_ = region
    if draw is None:
        return NO_REGION
    return np.array([first, row_step, column_step, draw.call, stage, step], np.int64), np.uint64(draw.seed)


def whole_steps(roundings: tuple[Rounding, ...], steps: int) -> int:
    """Return the number of steps rounded up: words come in groups of four, and a short draw takes a quarter of a
    word."""
    # Philox computes four words at a time, for four consecutive steps, and short draws quarter each word. A stage that
    # began inside such a group would share its words with the stage before it.
    together = 16 if any(0 < rounding.bits <= MOST_SHORT_BITS for rounding in roundings) else 4
    return -(-steps // together) * together


@dataclass(frozen=True)
class Accumulator(ABC):
    """The order and the roundings of a sum: an immutable value that prints as the call that creates it.

    Functions return accumulators, for example :func:`sequential`, :func:`kahan` and :func:`tensor_core`. Sums accept
    them as `accumulate`. Subclasses are internal. To add by another rule, pass a function to :func:`custom`.
    """

    # A subclass has its options as fields, which are keyword-only if the call takes keywords. It defines the methods
    # `result`, `sums` and `engine`, and may override the others. It repeats `__hash__`, because the dataclass would
    # otherwise define another one.

    #: The name of the function that makes it.
    maker: ClassVar[str]

    #: True for a matrix unit of real hardware, which accepts only operands of certain formats.
    is_matrix_unit: ClassVar[bool] = False

    @property
    def needs_narrow_operands(self) -> bool:
        """True if not all float64 operands are accepted, as in matrix units and in sums of exact products."""
        return self.is_matrix_unit

    @property
    @abstractmethod
    def result(self) -> Format | None:
        """The format of the sums; None for exact sums, which need an `output`."""

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """The modes of its steps; a stochastic one needs a stream."""
        return ()

    @property
    def stages(self) -> int:
        """The number of stages of random bits that its steps use."""
        return 0

    def steps(self, terms: int) -> int:
        """Return the number of steps per stage for which a sum of `terms` products reserves random words.

        It is rounded up to complete groups of four words.
        """
        return whole_steps(self.roundings, terms)

    @property
    def scales(self) -> tuple[int, Format] | None:
        """The products per block and the format of a scale, if the accumulator reads block scales; otherwise None."""
        return None

    @property
    def chunk(self) -> int | None:
        """The number of products that one step adds to the partial sum; None without a partial sum."""
        return None

    @property
    def resumes(self) -> bool:
        """True if a sum can be interrupted: continued from a partial sum, it gives the same bits."""
        # Pieces of a sum are computed by separate calls. Each call numbers its steps from the first one, and so would
        # use the random words of the first piece again.
        return self.chunk is not None and not any(rounding.is_stochastic for rounding in self.roundings)

    @property
    def takes_initial(self) -> bool:
        """True if its sums can start from an initial value."""
        return self.chunk is not None

    def for_inputs(self, a: Format | None, b: Format | None) -> Accumulator:
        """Return the accumulator for operands of these formats: itself, unless it depends on them."""
        return self

    @abstractmethod
    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return bounds on a sum of `terms` products with the given bounds."""

    def engine_for_all(self, a: Format, b: Format) -> Engine | None:
        """Return the engine for all operands of these formats; None if the choice needs more, such as bounds."""
        return None

    @abstractmethod
    def engine(self, problem: Problem) -> Engine:
        """Return the engine for these sums.

        Raises ValueError if the operands are too wide for exact steps.
        """

    def _text(self, name: str, write: Callable[[Any], str]) -> str:
        """Return an option as the call shows it."""
        value = getattr(self, name)
        return write(value) if isinstance(value, Format | Accumulator) else repr(value)

    def _call(self, write: Callable[[Any], str]) -> str:
        positional = [self._text(field.name, write) for field in fields(self) if not field.kw_only]
        named = [
            f"{field.name}={self._text(field.name, write)}"
            for field in fields(self)
            if field.kw_only and getattr(self, field.name) != field.default
        ]
        return f"{self.maker}({', '.join(positional + named)})"

    # Engines are cached by accumulator, and a small sum takes no longer than hashing all options.
    __hash__ = stored_hash

    __getstate__ = state_of_fields

    def __repr__(self) -> str:
        return self._call(repr)

    def __str__(self) -> str:
        return self._call(str)

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)
