"""Sums without error, rounded once: sums of products, and of quotients by scales.

Sums of quotients are computed for many elements at once, as unevaluated sums of three float64 values with a bound on
the error. The additions and products without error are Knuth's and Dekker's. If a float64 value is within the bound,
the rounding of a total is uncertain, and that element is computed with fractions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.machines import CPU, on_cpu, write_back_to_device
from simfloat.arithmetic.operands import FloatType, empty
from simfloat.arithmetic.target import check_precision, odd_suffices
from simfloat.formats import FP64, Format, Rounding
from simfloat.formats.definition import round_value
from simfloat.formats.exceptions import flags_of
from simfloat.sums.accumulator import Accumulator, Engine, Region, TileScales
from simfloat.sums.bounds import Bounds
from simfloat.sums.operands import Problem

#: The number of parts of a total. A division takes as many quotients: of the numerator, then of each remainder.
PARTS_OF_TOTAL = 3

#: The exponent up to which the quotients and remainders of numerators and divisors are in the range of float64: the
#: last remainder has 324 bits less than its numerator, and is divided once more.
FARTHEST = 340

Numbers = NDArray[np.float64]


class QuotientSums:
    """The sums of quotients for an array of elements."""

    __slots__ = ("_are_known", "_lost", "_parts")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._parts = np.zeros((PARTS_OF_TOTAL, *shape))
        self._lost = np.zeros(shape)  # a bound on the error of all parts together
        self._are_known = np.ones(shape, bool)

    def add(self, numerators: Numbers, divisors: Numbers | float) -> None:
        """Add a quotient to each sum."""
        self._are_known &= (numerators == 0) | _has_quotients(numerators)
        self._are_known &= _has_quotients(divisors)
        # Long division with digits of 53 bits: the remainder of each quotient is exact, and is divided next.
        remainder = numerators
        for _ in range(PARTS_OF_TOTAL):
            quotients = remainder / divisors
            self._add_exactly(quotients)
            product, error = _product(quotients, divisors)
            remainder = (remainder - product) - error  # exact: a remainder is a float64 value
        self._lost += np.abs(remainder / divisors)

    def add_product_quotients(self, numerators: Numbers, divisors: Numbers, divisor: float) -> None:
        """Add quotients; each divisor is multiplied by `divisor` first."""
        product, error = _product(divisors, divisor)
        self._are_known &= error == 0
        self.add(numerators, product)

    def totals(self, to_nearest: bool) -> tuple[Numbers, NDArray[np.bool_]]:
        """Return the sums rounded to nearest even or to odd, and a mask of the certain ones."""
        first, second, third = self._parts
        # Parts overlap after many additions. Two passes of exact additions move the leading bits into the first part.
        for _ in range(2):
            second, third = exact_sum_of_two(second, third)
            first, second = exact_sum_of_two(first, second)
        second, third = exact_sum_of_two(second, third)
        lost = 2 * self._lost + np.abs(third)
        is_exact = (lost == 0) & (second == 0)
        are_certain = self._are_known & (first + second == first)
        if to_nearest:
            # The error does not move the total across the midpoint between two numbers.
            are_certain &= (lost <= np.abs(second) * 2.0**-22) & (first + second * (1 + 2.0**-20) == first) | (
                lost == 0
            )
            return first + 0.0, are_certain
        are_certain &= is_exact | (lost < np.abs(second) * 0.25)
        is_odd = first.view(np.int64) & 1 == 1
        beside = np.nextafter(first, np.copysign(np.inf, second))
        return np.where(is_exact | is_odd, first, beside) + 0.0, are_certain

    def _add_exactly(self, rest: Numbers) -> None:
        # Each part adds what it can, and passes its rounding error on. Only a bound is kept on the error of the last
        # part.
        for part in self._parts:
            part[...], rest = exact_sum_of_two(part, rest)
        self._lost += np.abs(rest)


def _has_quotients(x: Numbers | float) -> NDArray[np.bool_]:
    return (np.abs(x) >= 2.0**-FARTHEST) & (np.abs(x) <= 2.0**FARTHEST)


def exact_sum_of_two(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rounded sum, and its error."""
    # Knuth's algorithm, six operations: it needs no order of magnitudes, unlike Dekker's with three.
    total = x + y
    of_y = total - x
    return total, (x - (total - of_y)) + (y - of_y)


def _product(x: Numbers, y: Numbers | float) -> tuple[Numbers, Numbers]:
    """Return the rounded product, and its error."""
    product = x * y
    (upper, lower), (high, low) = _halves(x), _halves(y)
    return product, lower * low - (((product - upper * high) - lower * high) - upper * low)


def _halves(x: Numbers | float) -> tuple[Numbers, Numbers]:
    """Return two values of 26 bits with the sum x."""
    # Veltkamp's splitting. The product does not overflow up to 2^FARTHEST; results for larger values are not used.
    scaled = (2.0**27 + 1) * np.asarray(x)
    upper = scaled - (scaled - x)
    return upper, x - upper


#: The minimum number of bits of a total that rounding to odd keeps.
KEPT_BITS = 52

#: The largest float64 value, which is odd.
LARGEST_FLOAT64 = float(np.finfo(np.float64).max)


@dataclass(frozen=True, repr=False)
class Exact(Accumulator):
    """The exact sum of the exact products, rounded once to `output`; an exact total of zero is +0."""

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "exact"
    takes_initial: ClassVar[bool] = True

    @property
    def result(self) -> Format | None:
        """None: an exact sum has no format."""
        return None

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return bounds on a sum of `terms` products with the given bounds."""
        return products.after_summation(terms)

    def engine(self, problem: Problem) -> Engine:
        """Return an engine that sums on as many grids as the bits of the operands need."""
        exact_products = problem.products.precision <= 53
        summands = problem.products if problem.initial is None else problem.products.union(problem.initial)
        growth = _growth(problem.depth + (problem.initial is not None), exact_products)
        inside = _have_grids(summands, growth)
        # Grids are needed only if the sum of all products may have more than 53 bits.
        if inside and exact_products and summands.high + growth - summands.low <= 53:
            # Every partial sum is a float64 value: float64 additions are exact in any order, and the total may be
            # divided.
            return HardwareSum()
        if not inside or problem.divisor != 1:
            return fractions_for(problem)
        _check_output(problem.output, problem.rounding)
        return _SumOnGrids(_anchors(summands, growth), exact_products, _mode_in_fp64(problem))

    def __repr__(self) -> str:
        return self.maker

    def __str__(self) -> str:
        return self.maker


exact = Exact()


class HardwareSum(NamedTuple):
    """Sums that float64 can represent."""

    carrier: FloatType = np.float64
    cost: float = 0.1

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        unread = kernels.rounding.grid.pack_grid(FP64)
        region.machine.loops.stepwise.stepwise_loops["fused"]["native"](a, b, out, unread, unread, 1.0)
        out += 0.0  # turns a total of -0 into +0


class _SumOnGrids(NamedTuple):
    """Sums on several grids."""

    anchors: NDArray[np.float64]
    exact_products: bool
    in_fp64: Rounding | None  # the mode in which totals are rounded to FP64; None if they are rounded to odd
    carrier: FloatType = np.float64
    cost: float = 2.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        machine = region.machine
        bins, loops = empty((self.anchors.size, *out.shape), np.float64, machine), machine.loops
        # Every product is divided into pieces, one for each grid, and each grid has 53 bits for the sum of its pieces.
        # After the carry the part of a bin is at most half of the next coarser grid, so one pass from fine to coarse
        # rounds to odd.
        loops.bins.bin_sums(a, b, out, bins, self.anchors, self.exact_products)
        loops.bins.carry(bins, self.anchors)
        loops.bins.odd_totals(bins, out)
        if self.in_fp64 is not None:
            # For FP64, a second rounding of an odd float64 value would have no bits left: the exact sum is rounded
            # once.
            totals, parts = on_cpu(out), on_cpu(bins)
            finite = np.isfinite(parts[0])
            totals[finite] = [_round_sum(pieces.tolist(), self.in_fp64) for pieces in parts[:, finite].T]
            write_back_to_device(totals, out)


def _round_sum(parts: list[float], rounding: Rounding) -> float:
    """Return the exact sum of finite parts, rounded once to FP64; a zero sum is +0."""
    if rounding.steps == "nearest":
        return math.fsum(parts)
    return round_value(sum(map(Fraction, parts), Fraction(0)), FP64, rounding)


def _mode_in_fp64(problem: Problem) -> Rounding | None:
    """Return the mode in which totals are rounded to FP64; None for other formats."""
    return problem.rounding if problem.output == FP64 else None


class Fractions(NamedTuple):
    """Sums of values anywhere in the range of float64, and of totals or blocks that must be divided.

    Totals are divided for all elements at once if grids can represent the products. Other totals are computed one by
    one with fractions, and so are totals that are too close to a float64 value to be rounded with certainty.
    """

    divisor: float
    in_fp64: Rounding | None  # the mode in which totals are rounded to FP64; None if they are rounded to odd
    block: int | None  # the number of products that have their own scales, by which they are divided
    anchors: NDArray[np.float64] | None  # of the grids, or None
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
            # Fractions take some thousand times as long as bins (`cost`), so they are used only for uncertain sums:
            # sums too close to a float64 value, and sums with an infinity or a NaN.
            for i, j in np.argwhere(uncertain):
                # The plain sum is infinite or NaN exactly if an operand makes it so.
                start = float(initial[i, j])
                special = _sum_of_specials(a[i], b[:, j], start)
                divisors = scales[0][i] * scales[1][:, j] if scales else ()
                totals[i, j] = self._total(a[i], b[:, j], divisors, start) if special is None else special
        write_back_to_device(totals, out)

    def _quotient_totals(
        self, a: NDArray, b: NDArray, scales: TileScales | None, initial: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return all totals, and a mask of the certain ones: each block is summed in bins, which are divided one by
        one."""
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
        return sums.totals(self.in_fp64 is not None)

    def exact_total(self, row: NDArray, column: NDArray, divisors: NDArray | tuple[()], initial: float) -> Fraction:
        """Return the exact total of a row and a column, with the divisors of their blocks and a start value."""
        products = [x * y for x, y in zip(map(Fraction, row.tolist()), map(Fraction, column.tolist()), strict=True)]
        if self.block is not None:
            firsts = range(0, len(products), self.block)
            runs = (sum(products[first : first + self.block], Fraction(0)) for first in firsts)
            products = [run / Fraction(float(divisor)) for run, divisor in zip(runs, divisors, strict=True)]
        return sum(products, Fraction(initial)) / Fraction(self.divisor)

    def _total(self, row: NDArray, column: NDArray, divisors: NDArray | tuple[()], initial: float) -> float:
        total = self.exact_total(row, column, divisors, initial)
        near = _nearest(total)
        if self.in_fp64 is not None:
            return near if self.in_fp64.steps == "nearest" else round_value(total, FP64, self.in_fp64)
        if math.isinf(near):
            return math.copysign(LARGEST_FLOAT64, near)
        error = total - Fraction(near)
        is_odd = int(np.float64(near).view(np.int64)) % 2 == 1
        # Rounding to odd distinguishes an exact tie of a narrower format from the values next to it.
        return near if error == 0 or is_odd else math.nextafter(near, math.copysign(math.inf, error))


def flags_in_fp64(
    engine: Engine,
    operands: tuple[NDArray, NDArray],
    scales: TileScales | None,
    initial: NDArray,
    rounding: Rounding,
    finite: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """Return the flags of finite sums of the products of two operands and start values, rounded to FP64.

    The sums are computed one by one, with fractions. `scales` are the scales of blocks, by which the engine divides.
    """
    flags = np.zeros(finite.shape, np.uint8)
    fractions = engine if isinstance(engine, Fractions) else Fractions(1.0, rounding, None, None, True)
    left, right = _rows_and_columns(*operands, finite.shape)
    divisors = None if scales is None else _rows_and_columns(*scales, finite.shape)
    for at in map(tuple, np.argwhere(finite)):
        row, column = at[:-1], (*at[:-2], at[-1])
        of_blocks = () if divisors is None else divisors[0][row] * divisors[1][column]
        total = fractions.exact_total(left[row], right[column], of_blocks, float(initial[at]))
        flags[at] = flags_of(total, (), FP64, rounding)
    return flags


def _rows_and_columns(a: NDArray, b: NDArray, shape: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Return the rows of `a` and the columns of `b` for every result of this shape, in float64."""
    left = np.broadcast_to(a, (*shape[:-1], a.shape[-1])).astype(np.float64)
    return left, np.broadcast_to(b, (*shape[:-2], *b.shape[-2:])).swapaxes(-1, -2).astype(np.float64)


def fractions_for(problem: Problem, block: int | None = None) -> Fractions:
    """Return the engine for totals that are divided, have blocks that are divided, or may leave the range of float64.

    Raises ValueError for an output that such totals cannot be rounded to.
    """
    _check_output(problem.output, problem.rounding)
    _check_ends(problem.output, problem.rounding)
    products, exact_products = problem.products, problem.products.precision <= 53
    growth = _growth(min(block or problem.depth, problem.depth), exact_products)
    # The sum of a block is divided by its own scales, so each block has separate bins, which grow only with the block.
    mode = _mode_in_fp64(problem)
    has_anchors = _have_grids(products, growth) and (mode is None or mode.steps == "nearest")
    anchors = _anchors(products, growth) if has_anchors else None
    return Fractions(problem.divisor, mode, block, anchors, exact_products)


def _sum_of_specials(row: NDArray, column: NDArray, initial: float) -> float | None:
    """Return the sum if an operand is infinite or NaN, otherwise None."""
    if np.isfinite(row).all() and np.isfinite(column).all() and np.isfinite(initial):
        return None
    # Only the signs of finite values matter, so they are used in place of the values, and no product overflows.
    signs = [np.where(np.isfinite(x), np.sign(x), x) for x in (row, column)]
    return float(np.dot(*signs) + (initial if not np.isfinite(initial) else 0.0))


def _nearest(total: Fraction) -> float:
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _growth(terms: int, exact_products: bool) -> int:
    """Return the number of binades by which a sum of products, or of these and their errors, may exceed the
    products."""
    return math.ceil(math.log2(max(terms, 2) * (1 if exact_products else 2))) + 1


def _have_grids(summands: Bounds, growth: int) -> bool:
    """Return True if float64 has grids for sums that grow by this number of binades."""
    return summands.low >= -1074 and summands.high + growth <= 1020


def _anchors(products: Bounds, growth: int) -> NDArray[np.float64]:
    """Return the anchors of grids 2^g from coarse to fine; the last grid is at or below the last bit of the
    products."""
    grids = [products.high + growth - 53]
    while grids[-1] > products.low:
        # The rest of a product is at most half a grid; the sum of all rests needs `growth` bits more.
        grids.append(grids[-1] - 1 + growth - 53)
    return np.array([1.5 * math.ldexp(1.0, 52 + max(grid, products.low)) for grid in grids])


def _check_ends(output: Format, rounding: Rounding) -> None:
    """Raise ValueError for a format that reaches the ends of float64's range: totals beyond it cannot be rounded."""
    if output != FP64 and not odd_suffices(output, rounding):
        raise ValueError(
            f"An exact sum that leaves the range of float64 cannot be rounded to {output} under {rounding}: the "
            f"numbers of this format reach the ends of that range. Scale an operand by a power of two."
        )


def _check_output(output: Format, rounding: Rounding) -> None:
    check_precision(output, rounding, is_exact=True)
    if rounding.is_stochastic and output.precision + rounding.bits + 2 > KEPT_BITS:
        most = KEPT_BITS - 2 - output.precision
        raise ValueError(
            f"An exact sum has {KEPT_BITS} known bits, too few to round to {output} with {rounding.bits} random "
            f"bits; use stochastic(bits={most}) at most."
        )
