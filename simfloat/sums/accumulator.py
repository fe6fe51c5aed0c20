"""Accumulators, which say in what order a sum is made and where it is rounded, and engines, which make it.

An engine is what an accumulator becomes once its operands are known. It computes tiles of matrix products.
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
from simfloat.common import stored_hash
from simfloat.formats import Format, Rounding
from simfloat.sums.bounds import Bounds
from simfloat.sums.operands import Problem

#: Scales of the blocks of a tile: of its rows (m, k / block), and of its columns (k / block, n).
TileScales = tuple[NDArray, NDArray]


class Region(NamedTuple):
    """Which elements of the result a tile holds, so that stochastic steps find their bits; and the machine it lies on.

    The element at (i, j) of the tile is number first + i * row_step + j * column_step of the result.
    """

    first: int
    row_step: int
    column_step: int
    draw: Draw | None
    is_transposed: bool = False  # the tile is of the transposed product: its left operand is the user's right one
    stage: int = 1  # of the accumulator's first rounding; stage 0 is the result's own
    step: int = 0  # of its first product, a multiple of 4, or of 16 (see accumulator.whole_steps)
    scales: TileScales | None = None
    machine: Device = CPU  # of the tile, and of both operands


class Engine(Protocol):
    """An accumulator made ready for operands of which something is known."""

    @property
    def carrier(self) -> FloatType:
        """float32 or float64: what operands and sums travel as."""

    @property
    def cost(self) -> float:
        """Nanoseconds a product, roughly: decides how many threads share the work."""

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        """Add a (m, k) times b (k, n) over k to out (m, n); all C-contiguous in the carrier's type.

        What `out` holds before is what the sums start from: zeros, or an addend.
        """


def takes_stacks(engine: Engine) -> bool:
    """Whether an engine is the CPU's loops alone: it takes stacks of matrices, below one another, where no step draws
    (`kernels.sums.rows`), and its sums are numbers of the accumulator's format, the one NaN among them.
    """
    return getattr(engine, "takes_stacks", False)


def sums_are_results(result: Format | None, format: Format, rounding: Rounding) -> bool:
    """Whether a rounding leaves all sums of a direct engine, which come in the format `result`, as they are, signed
    zeros and infinities among them.
    """
    if format != result or rounding.saturates:
        return False
    return format.special == "ieee" and format.subnormals and format.signed


#: The region and the seed that a loop is given where no step draws: it reads neither. Compiled loops have one signature
#: for all modes, so one array, made once, stands for every region.
NO_REGION = np.zeros(6, np.int64), np.uint64(0)


def kernel_region(region: Region) -> tuple[NDArray[np.int64], np.uint64]:
    """The region and the seed in the form that kernels take them."""
    first, row_step, column_step, draw, _, stage, step, *_ = region
    if draw is None:
        return NO_REGION
    return np.array([first, row_step, column_step, draw.call, stage, step], np.int64), np.uint64(draw.seed)


def whole_steps(roundings: tuple[Rounding, ...], steps: int) -> int:
    """So many steps or a few more: words come in fours, and a short draw takes a quarter of one."""
    # Philox makes four words at a time, for four steps in a row, and short draws quarter each word: a
    # stage that began inside such a group would share its words with the stage before it.
    together = 16 if any(0 < rounding.bits <= MOST_SHORT_BITS for rounding in roundings) else 4
    return -(-steps // together) * together


@dataclass(frozen=True)
class Accumulator(ABC):
    """The order and the roundings of a sum; an immutable value that prints as the call that makes it.

    A subclass has its options as fields, keyword-only ones where the call takes keywords, and the methods `result`,
    `sums` and `engine`; what else it has of its own, it overrides. It names
    `__hash__` again, lest the dataclass makes another one.
    """

    #: The function that makes it.
    maker: ClassVar[str]

    #: Whether it is a unit of hardware that takes operands of certain formats only.
    is_matrix_unit: ClassVar[bool] = False

    @property
    def needs_narrow_operands(self) -> bool:
        """Whether some operands of float64 have no sum, as in units of hardware and in sums of exact products."""
        return self.is_matrix_unit

    @property
    @abstractmethod
    def result(self) -> Format | None:
        """The format that sums come in; None for exact sums, which need an `output`."""

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """The modes of its steps: a stochastic one needs a stream."""
        return ()

    @property
    def stages(self) -> int:
        """How many stages of random bits its steps draw from."""
        return 0

    def steps(self, terms: int) -> int:
        """How many steps of each stage so many products may draw at: whole fours of words."""
        return whole_steps(self.roundings, terms)

    @property
    def scales(self) -> tuple[int, Format] | None:
        """Products a block and the format of its scale, where blocks are scaled."""
        return None

    @property
    def chunk(self) -> int | None:
        """How many products its running sum takes at a time; None if it has no such sum."""
        return None

    @property
    def resumes(self) -> bool:
        """Whether a sum that starts from a running sum goes on as if it had not been interrupted."""
        # Pieces of a sum are summed by calls of their own. Each numbers its steps from
        # the first again, and so would draw the first piece's words once more.
        return self.chunk is not None and not any(rounding.is_stochastic for rounding in self.roundings)

    @property
    def takes_initial(self) -> bool:
        """Whether its sums can start from an addend."""
        return self.chunk is not None

    def for_inputs(self, a: Format | None, b: Format | None) -> Accumulator:
        """The accumulator for operands of these formats: itself, unless it is chosen by them."""
        return self

    @abstractmethod
    def sums(self, products: Bounds, terms: int) -> Bounds:
        """What is known of sums of so many such products."""

    def engine_for_all(self, a: Format, b: Format) -> Engine | None:
        """The engine for any operands of these formats; None where it takes more to choose one, as bounds on them."""
        return None

    @abstractmethod
    def engine(self, problem: Problem) -> Engine:
        """The engine for such sums.

        Raises ValueError if they are too wide for the steps to be exact.
        """

    def _text(self, name: str, write: Callable[[Any], str]) -> str:
        """An option as the call shows it."""
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

    # Engines are remembered by accumulator, and a small sum takes no longer than to hash all its options.
    __hash__ = stored_hash

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        return self._call(repr)

    def __str__(self) -> str:
        return self._call(str)

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)
