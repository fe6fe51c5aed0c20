"""Engines: what an accumulator becomes once its operands are known. They compute tiles of matrix products."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.machines import CPU, Device
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import Format, Rounding

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
    (`kernels.stack`), and its sums are numbers of the accumulator's format, the one NaN among them.
    """
    return getattr(engine, "is_direct", False)


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
