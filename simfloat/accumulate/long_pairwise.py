"""Pairwise sums of few results and many products, on lanes: the tree's lower parts do not depend on one another.

The products of a run of 2^j are a tree of their own, and the last run's, which may be shorter, is carried up unchanged.
So runs lie side by side, a column each, and are summed as the columns of a matrix are; then so are their sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.engine import Engine, Region
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.operations import compute_alone
from simfloat.arithmetic.target import Target
from simfloat.formats import Format, Rounding

#: Products of a result from which on it is cut into runs, the products of a run, and the results that are few.
LEAST_CUT, RUN, FEW = 1 << 11, 1 << 8, 16


class LongPairwise(NamedTuple):
    """Sums by an engine, and of few results in runs by one that sums numbers of the format as they are."""

    engine: Engine
    runs: Engine
    format: Format
    rounding: Rounding
    is_inside: bool  # whether the left operand's numbers are those of the format

    @property
    def carrier(self) -> FloatType:
        return self.engine.carrier

    @property
    def cost(self) -> float:
        return self.engine.cost

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        if out.size > FEW:
            self.engine.run(a, b, out, region)
            return
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = self._sum(self._products(a[i], b[:, j]), region)

    def _products(self, x: NDArray, y: NDArray) -> NDArray[np.floating]:
        """The rounded products of two vectors."""
        if self.is_inside and (y == 1).all():
            return x.astype(self.runs.carrier, copy=False)
        target = Target(self.format, self.rounding, self.runs.carrier)
        return compute_alone("multiply", [x, np.ascontiguousarray(y)], target)

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
