"""Tables of a function's results for all numbers of a 16-bit format, made once they pay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import CPU

#: Results of a table. As many elements are computed before it is made, so that it at most doubles the time.
SIZE = 1 << 16

#: Elements below which a look at the operands costs as much as it spares.
LEAST_LOOKED_UP = 512

#: Tables that are kept, 256 KiB each: beyond these the oldest goes.
MOST_TABLES = 64

Vector = NDArray[np.float32]


class Operands(NamedTuple):
    """A 16-bit format whose numbers are looked up."""

    numbers: Callable[[], Vector]  # all of them, in the order of their images
    contains_all: Callable[[Vector], bool]  # whether a vector holds nothing else
    look_up: Callable[[Vector, NDArray, NDArray], bool]  # (x, table, out); False, and out undefined, if it does not


class FunctionTable:
    """The results of one function, in one format and mode, for the numbers of one 16-bit format."""

    __slots__ = ("operands", "compute", "results", "elements_before_look", "flags")
    tables_in_memory: deque[FunctionTable] = deque()

    def __init__(self, operands: Operands, compute: Callable[[Vector], Vector]) -> None:
        self.operands, self.compute = operands, compute
        self.results: Vector | None = None
        self.flags: NDArray[np.uint8] | None = None
        self.elements_before_look = SIZE  # elements that are computed before operands are looked at again

    def is_ready_for(self, some: Vector) -> bool:
        """Whether there is a table that will be looked at, and some of the operands are numbers of its format."""
        return self.results is not None and self.elements_before_look <= 0 and self.operands.contains_all(some)

    def look_up(self, x: Vector, out: Vector) -> bool:
        """Write the results for x to `out`: whether there is a table, and x holds only numbers of its format."""
        if self.elements_before_look > 0:
            self.elements_before_look -= x.size
            return False
        results = self.results
        if results is None and self.operands.contains_all(x[:LEAST_LOOKED_UP]):
            results = self.make()
        if results is not None and self.operands.look_up(x, results, out):
            return True
        self.elements_before_look = SIZE
        return False

    def look_up_flags(self, x: Vector, flags: NDArray[np.uint8], flags_of: Callable[[Vector], NDArray]) -> None:
        """Write the flags of results that were looked up; `flags_of` gives those of a vector's."""
        if self.flags is None:
            self.flags = flags_of(self.operands.numbers())
        self.operands.look_up(x, self.flags, flags)

    def make(self) -> Vector:
        """Compute all results; the oldest table beyond those that are kept loses its own."""
        results = self.results = self.compute(self.operands.numbers())
        self.tables_in_memory.append(self)
        if len(self.tables_in_memory) > MOST_TABLES:
            oldest = self.tables_in_memory.popleft()
            oldest.results, oldest.flags, oldest.elements_before_look = None, None, SIZE
        return results


def _bfloat16_numbers() -> Vector:
    return (np.arange(SIZE, dtype=np.uint32) << 16).view(np.float32)


def _float16_numbers() -> Vector:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return np.arange(SIZE, dtype=np.uint16).view(np.float16).astype(np.float32)


def _are_bfloat16(x: Vector) -> bool:
    return not (x.view(np.uint32) & 0xFFFF).any()


def _are_float16(x: Vector) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.array_equal(x.astype(np.float16), x, equal_nan=True))


#: Numbers of BF16, whose images are the upper halves of float32's.
BFLOAT16 = Operands(
    _bfloat16_numbers, _are_bfloat16, lambda *vectors: bool(CPU.loops.lookups.look_up_bfloat16(*vectors))
)

#: Numbers of FP16, where the processor converts to it.
FLOAT16 = Operands(_float16_numbers, _are_float16, lambda *vectors: bool(CPU.loops.lookups.look_up_float16(*vectors)))
