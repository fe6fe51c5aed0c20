"""Sums without error, rounded once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.bounds import Bounds
from simfloat.accumulate.engine import Engine, Region, TileScales
from simfloat.accumulate.operand_bounds import Problem
from simfloat.accumulate.quotient_sums import QuotientSums
from simfloat.arithmetic.arrays import empty
from simfloat.arithmetic.machines import CPU, on_cpu, write_back_to_device
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.target import check_precision, odd_suffices
from simfloat.formats import FP64, Format, Rounding

#: Bits of a total that its round-to-odd keeps at least.
KEPT_BITS = 52

#: The largest float64, an odd one.
LARGEST_FLOAT64 = float(np.finfo(np.float64).max)


@dataclass(frozen=True, repr=False)
class Exact(Accumulator):
    """The exact sum of the exact products, rounded once to `output`. An exact total of zero is +0."""

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "exact"
    takes_initial: ClassVar[bool] = True

    @property
    def result(self) -> Format | None:
        """None: an exact sum has no format of its own."""
        return None

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """What is known of sums of so many such products."""
        return products.after_summation(terms)

    def engine(self, problem: Problem) -> Engine:
        """Sums on as many grids as the operands' bits need."""
        exact_products = problem.products.precision <= 53
        summands = problem.products if problem.initial is None else problem.products.union(problem.initial)
        growth = _growth(problem.depth + (problem.initial is not None), exact_products)
        inside = _have_grids(summands, growth)
        # Grids are needed only where the sum of all products may have more than 53 bits.
        if inside and exact_products and summands.high + growth - summands.low <= 53:
            # Every partial sum is a float64 number: the hardware's sum is exact in any order, and may be divided then.
            return _HardwareSum()
        if not inside or problem.divisor != 1:
            return fractions_for(problem)
        _check_output(problem.output, problem.rounding)
        return _SumOnGrids(_anchors(summands, growth), exact_products, problem.output == FP64)

    def __repr__(self) -> str:
        return self.maker

    def __str__(self) -> str:
        return self.maker


exact = Exact()


class _HardwareSum(NamedTuple):
    """Sums that float64 holds."""

    carrier: FloatType = np.float64
    cost: float = 0.1

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        unread = kernels.grid.pack_grid(FP64)
        region.machine.loops.sequential.steps["fused_native"](a, b, out, unread, unread, 1.0)
        out += 0.0  # a total of -0 becomes +0


class _SumOnGrids(NamedTuple):
    """Sums on several grids."""

    anchors: NDArray[np.float64]
    exact_products: bool
    to_nearest: bool
    carrier: FloatType = np.float64
    cost: float = 2.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        machine = region.machine
        bins, loops = empty((self.anchors.size, *out.shape), np.float64, machine), machine.loops
        # Every product is cut into pieces, one a grid, and each grid has 53 bits of room
        # for the sum of its pieces. After the carry a bin's part is at most half the next
        # coarser grid, so one pass from fine to coarse rounds to odd.
        loops.bins.bin_sums(a, b, out, bins, self.anchors, self.exact_products)
        loops.bins.carry(bins, self.anchors)
        loops.bins.odd_totals(bins, out)
        if self.to_nearest:
            # To FP64 a second rounding, from a float64 that is odd, would
            # have no bits left: fsum rounds the exact sum once.
            totals, parts = on_cpu(out), on_cpu(bins)
            finite = np.isfinite(parts[0])
            totals[finite] = [math.fsum(pieces) for pieces in parts[:, finite].T]
            write_back_to_device(totals, out)


class Fractions(NamedTuple):
    """Sums of numbers anywhere in float64's range, and of totals or blocks that are to be divided.

    Totals are divided all at once where grids hold the products. Others are summed one by one, and so are those that
    lie too close to a float64 number for this.
    """

    divisor: float
    to_nearest: bool
    block: int | None  # the products that are divided by their own scales
    anchors: NDArray[np.float64] | None  # of the grids; None if there are none
    exact_products: bool
    carrier: FloatType = np.float64

    @property
    def cost(self) -> float:
        return 2000.0 if self.anchors is None else 3.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        scales = region.scales and (on_cpu(region.scales[0]), on_cpu(region.scales[1]))
        a, b, totals = on_cpu(a), on_cpu(b), on_cpu(out)
        with np.errstate(all="ignore"):
            initial, uncertain = totals.copy(), np.ones(totals.shape, bool)
            if self.anchors is not None and totals.size:
                totals[...], are_certain = self._quotient_totals(a, b, scales, initial)
                uncertain = ~(are_certain & np.isfinite(a).all(1)[:, np.newaxis] & np.isfinite(b).all(0))
            # Fractions take some thousand times as long as bins (`cost`), so only sums in doubt are made of
            # them: those that lie too close to a float64 number, and those with an infinity or a NaN.
            for i, j in np.argwhere(uncertain):
                # The plain sum is infinite or NaN just where an operand makes it so, or where nothing does.
                start = float(initial[i, j])
                special = _sum_of_specials(a[i], b[:, j], start)
                divisors = scales[0][i] * scales[1][:, j] if scales else ()
                totals[i, j] = self._total(a[i], b[:, j], divisors, start) if special is None else special
        write_back_to_device(totals, out)

    def _quotient_totals(
        self, a: NDArray, b: NDArray, scales: TileScales | None, initial: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """All totals, and where they are certain: each block's sum lies in bins, which are divided one by one."""
        assert self.anchors is not None
        sums, zeros = QuotientSums(initial.shape), np.zeros(initial.shape)
        sums.add(initial, self.divisor)
        bins, size = np.empty((self.anchors.size, *initial.shape)), self.block or max(len(b), 1)
        for block, first in enumerate(range(0, len(b), size)):
            x, y = np.ascontiguousarray(a[:, first : first + size]), b[first : first + size]
            CPU.loops.bins.bin_sums(x, y, zeros, bins, self.anchors, self.exact_products)
            for part in bins:
                if scales:
                    divisors = scales[0][:, block, np.newaxis] * scales[1][block]
                    sums.add_product_quotients(part, divisors, self.divisor)
                else:
                    sums.add(part, self.divisor)
        return sums.totals(self.to_nearest)

    def _total(self, row: NDArray, column: NDArray, divisors: NDArray | tuple[()], initial: float) -> float:
        products = [x * y for x, y in zip(map(Fraction, row.tolist()), map(Fraction, column.tolist()), strict=True)]
        if self.block is not None:
            firsts = range(0, len(products), self.block)
            runs = (sum(products[first : first + self.block], Fraction(0)) for first in firsts)
            products = [run / Fraction(float(divisor)) for run, divisor in zip(runs, divisors, strict=True)]
        total = sum(products, Fraction(initial)) / Fraction(self.divisor)
        near = _nearest(total)
        if self.to_nearest:
            return near
        if math.isinf(near):
            return math.copysign(LARGEST_FLOAT64, near)
        error = total - Fraction(near)
        is_odd = int(np.float64(near).view(np.int64)) % 2 == 1
        # Rounded to odd, an exact tie of a narrower format and what lies beside it stay apart.
        return near if error == 0 or is_odd else math.nextafter(near, math.copysign(math.inf, error))


def fractions_for(problem: Problem, block: int | None = None) -> Fractions:
    """The engine for totals that are divided, or whose blocks are, or that may leave float64's range.

    Raises ValueError for an output that such totals cannot be rounded to.
    """
    _check_output(problem.output, problem.rounding)
    _check_ends(problem.output, problem.rounding)
    products, exact_products = problem.products, problem.products.precision <= 53
    growth = _growth(min(block or problem.depth, problem.depth), exact_products)
    # A block's sum is divided by its own scales, so each block has bins of its own, which grow with the block only.
    anchors = _anchors(products, growth) if _have_grids(products, growth) else None
    return Fractions(problem.divisor, problem.output == FP64, block, anchors, exact_products)


def _sum_of_specials(row: NDArray, column: NDArray, initial: float) -> float | None:
    """The sum, if an operand is infinite or NaN."""
    if np.isfinite(row).all() and np.isfinite(column).all() and np.isfinite(initial):
        return None
    # Finite numbers count by their signs alone, so that no product overflows.
    signs = [np.where(np.isfinite(x), np.sign(x), x) for x in (row, column)]
    return float(np.dot(*signs) + (initial if not np.isfinite(initial) else 0.0))


def _nearest(total: Fraction) -> float:
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _growth(terms: int, exact_products: bool) -> int:
    """Binades that sums of so many products, or of these and as many errors, may have above the products."""
    return math.ceil(math.log2(max(terms, 2) * (1 if exact_products else 2))) + 1


def _have_grids(summands: Bounds, growth: int) -> bool:
    """Whether sums that grow so far have grids of float64."""
    return summands.low >= -1074 and summands.high + growth <= 1020


def _anchors(products: Bounds, growth: int) -> NDArray[np.float64]:
    """Anchors of grids 2^g from coarse to fine, the last one at or below the products' last bit."""
    grids = [products.high + growth - 53]
    while grids[-1] > products.low:
        # What is left of a product is at most half a grid; the sum of all that needs `growth` bits more.
        grids.append(grids[-1] - 1 + growth - 53)
    return np.array([1.5 * math.ldexp(1.0, 52 + max(grid, products.low)) for grid in grids])


def _check_ends(output: Format, rounding: Rounding) -> None:
    """Refuse a format whose last numbers are float64's: totals, which travel as float64, show nothing beyond them."""
    if output != FP64 and not odd_suffices(output, rounding):
        raise ValueError(
            f"An exact sum that leaves float64's range cannot be rounded to {output} under {rounding}, whose numbers "
            f"reach to the ends of that range. Scale an operand by a power of two."
        )


def _check_output(output: Format, rounding: Rounding) -> None:
    check_precision(output, rounding)
    if rounding.is_stochastic and output.precision + rounding.bits + 2 > KEPT_BITS:
        most = KEPT_BITS - 2 - output.precision
        raise ValueError(
            f"An exact sum is known to {KEPT_BITS} bits here, too few to round to {output} with {rounding.bits} random "
            f"bits; use stochastic(bits={most}) at most."
        )
