"""Sums of few results and many products, of which the rounded products are made first.

Of pairwise sums the tree's lower parts do not depend on one another. The products of a run of 2^j are a tree of their
own, and the last run's, which may be shorter, is carried up unchanged. So runs lie side by side, a column each, and are
summed as the columns of a matrix are; then so are their sums. NumPy's order has a loop of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.engine import Engine, Region, is_direct
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.operations import compute_alone
from simfloat.arithmetic.target import Target
from simfloat.formats import Format, Rounding

#: Products of a result from which on it is cut into runs, the products of a run, and the results that are few.
LEAST_CUT, RUN, FEW = 1 << 11, 1 << 8, 16


class RoundedProducts(NamedTuple):
    """Products that are rounded to a format before they are summed."""

    format: Format
    rounding: Rounding
    carrier: FloatType
    is_inside: bool  # whether the left operand's numbers are those of the format

    def of(self, x: NDArray, y: NDArray) -> NDArray[np.floating]:
        """Those of two vectors."""
        if self.is_inside and are_ones(y):
            return x.astype(self.carrier, copy=False)
        target = Target(self.format, self.rounding, self.carrier)
        # One number without strides stays one, so that as many need not be read.
        return compute_alone("multiply", [x, y[:1] if y.strides == (0,) else np.ascontiguousarray(y)], target)


def are_ones(y: NDArray) -> bool:
    """Whether all numbers are 1; of those without strides, which are one number, only that is read."""
    return bool((y[:1] == 1).all() if y.strides == (0,) else (y == 1).all())


class LongPairwise(NamedTuple):
    """Sums by an engine, and of few results in runs by one that sums numbers of the format as they are."""

    engine: Engine
    runs: Engine
    products: RoundedProducts
    takes_ones: bool = True

    @property
    def carrier(self) -> FloatType:
        return self.engine.carrier

    @property
    def cost(self) -> float:
        return self.engine.cost

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        if out.size > FEW:
            self.engine.run(np.ascontiguousarray(a), np.ascontiguousarray(b), out, region)
            return
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = self._sum(self.products.of(a[i], b[:, j]), region)

    def _sum(self, numbers: NDArray, region: Region) -> np.floating:
        """The pairwise sum of numbers of the format."""
        whole = numbers.size // RUN * RUN
        if whole < LEAST_CUT:
            return self._sums_of_columns(numbers[:, np.newaxis], region)[0]
        sums = self._sums_of_columns(np.ascontiguousarray(numbers[:whole].reshape(-1, RUN).T), region)
        if whole < numbers.size:
            sums = np.append(sums, self._sums_of_columns(numbers[whole:, np.newaxis], region))
        return self._sum(sums, region)

    def _sums_of_columns(self, numbers: NDArray, region: Region) -> NDArray[np.floating]:
        """The sums of the columns of a matrix: ones are the factors."""
        sums = np.zeros((1, numbers.shape[1]), numbers.dtype)
        self.runs.run(np.ones((1, numbers.shape[0]), numbers.dtype), numbers, sums, region)
        return sums[0]


class LongNumPy(NamedTuple):
    """Sums in NumPy's order by an engine, and of few results and many products by a loop that adds their products."""

    engine: Engine
    kind: str  # of the steps of that loop, with the numbers it reads
    numbers: NDArray[np.floating]
    sign: np.floating
    largest: int
    products: RoundedProducts
    takes_ones: bool = True

    @property
    def carrier(self) -> FloatType:
        return self.engine.carrier

    @property
    def cost(self) -> float:
        return self.engine.cost

    @property
    def is_direct(self) -> bool:
        return is_direct(self.engine)

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        if region.machine is not CPU:
            self.engine.run(a, b, out, region)
            return
        if out.size > FEW or a.shape[1] < LEAST_CUT or len(b) != a.shape[1]:
            self.engine.run(np.ascontiguousarray(a), np.ascontiguousarray(b), out, region)
            return
        loop = CPU.loops.long_orders.numpys[self.kind]
        total = np.empty((1, 1), self.products.carrier)
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                # Ones may be the left factors: those of a transposed product.
                x, y = (b[:, j], a[i]) if a.strides[1] == 0 else (a[i], b[:, j])
                loop(np.ascontiguousarray(self.products.of(x, y)), total, self.largest, self.numbers, self.sign)
                out[i, j] = total[0, 0]
