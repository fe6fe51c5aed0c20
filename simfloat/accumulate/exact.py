"""Sums without error, rounded once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.accumulator import Engine, Operands, Place, whole_steps
from simfloat.accumulate.facts import Facts
from simfloat.arithmetic.exactness import check_precision
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import FP64, Format, Rounding

#: Bits of a total that its round-to-odd keeps at least.
KEPT = 52


@dataclass(frozen=True)
class Exact:
    """The exact sum of the exact products, rounded once to `output`. An exact total of zero is +0."""

    scales: ClassVar[None] = None

    @property
    def result(self) -> Format | None:
        """None: an exact sum has no format of its own."""
        return None

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """None on the way."""
        return ()

    @property
    def stages(self) -> int:
        """None: nothing is drawn on the way."""
        return 0

    def steps(self, terms: int) -> int:
        """One a product."""
        return whole_steps(terms)

    def sums(self, products: Facts, terms: int) -> Facts:
        """What is known of sums of so many such products."""
        return products.summed(terms)

    def engine(self, operands: Operands) -> Engine:
        """Sums on as many grids as the operands' bits need."""
        products = operands.products
        exact_products = products.precision <= 53
        terms = max(operands.depth, 2) * (1 if exact_products else 2)
        growth = math.ceil(math.log2(terms)) + 1
        _check_range(products, growth)
        if exact_products and products.high + growth - products.low <= 53:
            # Every partial sum is a float64 number: the hardware's sum is exact in any order.
            return _Plain()
        _check_output(operands.output, operands.rounding)
        return _Bins(_anchors(products, growth), exact_products, operands.output == FP64)

    def __repr__(self) -> str:
        return "exact"


exact = Exact()


class _Plain(NamedTuple):
    """Sums that float64 holds."""

    carrier: FloatType = np.float64
    cost: float = 0.1

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        unread = kernels.grid.numbers(FP64)
        kernels.sequential.steps["native"](a, b, out, unread, unread, 1.0)
        out += 0.0  # a total of -0 becomes +0


class _Bins(NamedTuple):
    """Sums on several grids."""

    anchors: NDArray[np.float64]
    exact_products: bool
    to_nearest: bool
    carrier: FloatType = np.float64
    cost: float = 2.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        bins = np.empty((self.anchors.size, *out.shape))
        kernels.bins.bin_sums(a, b, out, bins, self.anchors, self.exact_products)
        kernels.bins.carry(bins, self.anchors)
        kernels.bins.odd_totals(bins, out)
        if self.to_nearest:
            finite = np.isfinite(bins[0])
            out[finite] = [math.fsum(pieces) for pieces in bins[:, finite].T]


def _anchors(products: Facts, growth: int) -> NDArray[np.float64]:
    """Anchors of grids 2^g from coarse to fine, the last one at or below the products' last bit."""
    grids = [products.high + growth - 53]
    while grids[-1] > products.low:
        # What is left of a product is at most half a grid; the sum of all that needs `growth` bits more.
        grids.append(grids[-1] - 1 + growth - 53)
    return np.array([1.5 * math.ldexp(1.0, 52 + max(grid, products.low)) for grid in grids])


def _check_range(products: Facts, growth: int) -> None:
    if products.low < -1074 or products.high + growth > 1020:
        raise ValueError(
            f"An exact sum needs products inside float64's range; these reach from 2^{products.low} to "
            f"2^{products.high}. Scale an operand by a power of two."
        )


def _check_output(output: Format, rounding: Rounding) -> None:
    check_precision(output, rounding)
    if rounding.is_stochastic and output.precision + rounding.bits + 2 > KEPT:
        most = KEPT - 2 - output.precision
        raise ValueError(
            f"An exact sum is known to {KEPT} bits here, too few to round to {output} with {rounding.bits} random "
            f"bits; use stochastic(bits={most}) at most."
        )
