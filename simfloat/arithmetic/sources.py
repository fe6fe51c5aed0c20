"""Where numbers that are to be rounded come from: arrays, or exact results of operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.arithmetic.exactness import odd_suffices
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.plan import Plan
from simfloat.arithmetic.threads import scratch
from simfloat.formats import FP32, FP64, Format, Rounding

ZERO = np.zeros(1)


class Source(Protocol):
    """Numbers to be rounded, block by block."""

    @property
    def carrier(self) -> FloatType:
        """float32 or float64, what is handed to the plan's loop."""

    @property
    def makes_blocks(self) -> bool:
        """Whether results are computed into a block of their own first."""

    def exact(self, start: int, stop: int) -> NDArray:
        """The exact results of the elements from start to stop, rounded to odd where float64 cannot hold them."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Write the rounded results of those elements to `out`."""

    def unchanged(self, start: int, stop: int, out: NDArray) -> int:
        """How many of those results lost an addend: it was not zero, and the result is the other one, finite."""


class Elements(NamedTuple):
    """The elements of a vector, to be rounded as they are."""

    x: NDArray
    makes_blocks: bool = False

    @property
    def carrier(self) -> FloatType:
        """The vector's own type."""
        return self.x.dtype.type

    def exact(self, start: int, stop: int) -> NDArray:
        return self.x[start:stop]

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        plan.loop(self.x[start:stop], words, out, plan.numbers)

    def unchanged(self, start: int, stop: int, out: NDArray) -> int:
        return 0


class Computed:
    """Exact results of an operation on three vectors of one length; a vector of length 1 is a scalar."""

    carrier: FloatType = np.float64
    makes_blocks = True

    def __init__(self, operation: str, vectors: list[NDArray], rounding: Rounding) -> None:
        self.operation = operation
        self.kernel = OPERATIONS[operation].computes or operation
        self.vectors = [*vectors, ZERO, ZERO][:3]
        self.size = max([vector.size for vector in vectors])
        # Under toward_negative an exact zero sum of unlike signs is -0.
        self.sign = -1.0 if rounding.mode == "toward_negative" else 1.0

    def block(self, start: int, stop: int) -> list[NDArray]:
        """The operands of the elements from start to stop."""
        if stop - start == self.size:
            return self.vectors
        return [vector if vector.size == 1 else vector[start:stop] for vector in self.vectors]

    def exact(self, start: int, stop: int) -> NDArray:
        exact = scratch("exact", stop - start, np.float64)
        kernels.elementwise.exact_results[self.kernel](*self.block(start, stop), self.sign, exact)
        return exact

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        plan.loop(self.exact(start, stop), words, out, plan.numbers)

    def unchanged(self, start: int, stop: int, out: NDArray) -> int:
        if self.kernel not in ("add", "subtract"):
            return 0
        a, b, _ = self.block(start, stop)
        other = -b if self.kernel == "subtract" else b
        lost = (b != 0) & (out == a)
        if self.operation != "update":
            lost |= (a != 0) & (out == other)
        return int(np.count_nonzero(lost & np.isfinite(out)))


class Drawn(Computed):
    """The same, rounded at random from more bits than float64 holds."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        loop = kernels.elementwise.drawn_results[self.kernel]
        loop(*self.block(start, stop), self.sign, words, out, plan.numbers)


class Double(Computed):
    """The same, rounded to FP64 by a kernel."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        result = scratch("native", stop - start, self.carrier)
        kernels.elementwise.double_results[self.kernel](*self.block(start, stop), self.sign, result)
        plan.loop(result, words, out, plan.numbers)


class Native(Computed):
    """The same, rounded to FP64 by the hardware."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        result = scratch("native", stop - start, self.carrier)
        operation, count = NATIVE[self.kernel]
        with np.errstate(all="ignore"):
            # Without a dtype NumPy would compute float32 operands in float32, whatever `out` is.
            operation(*self.block(start, stop)[:count], out=result, dtype=self.carrier)
        plan.loop(result, words, out, plan.numbers)


class NativeSingle(Native):
    """The same, rounded to FP32 by the hardware, for float32 operands."""

    carrier = np.float32


#: Operations of the hardware, and how many operands they take.
NATIVE: dict[str, tuple[Callable, int]] = {
    "add": (np.add, 2),
    "subtract": (np.subtract, 2),
    "multiply": (np.multiply, 2),
    "divide": (np.divide, 2),
    "reciprocal": (np.reciprocal, 1),
    "sqrt": (np.sqrt, 1),
    "fma": (lambda a, b, c, out, dtype: kernels.elementwise.native_fma(a, b, c, out), 3),
}


@cache
def source_for(operation: str, format: Format, rounding: Rounding, single: bool) -> type[Computed]:
    """How an operation's exact results are made and rounded; `single` if all operands are float32."""
    operation = OPERATIONS[operation].computes or operation
    if rounding.mode == "nearest_even" and format == FP64:
        return Native if operation in NATIVE else Double
    if rounding.mode == "nearest_even" and format == FP32 and single and operation in NATIVE:
        return NativeSingle
    # A draw reads the exact result to `bits` bits below the last place, and two more for what lies below.
    if rounding.is_stochastic and not odd_suffices(format, rounding):
        return Drawn
    return Computed
