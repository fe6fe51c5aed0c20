"""Sums in float32 with steps that are rounded on SIMD lanes (`kernels/lanes/operations.py`).

The bits of operands do not matter, except if the nearest float32 values are rounded again (`may_round_twice`). The
range matters: the loops multiply the left operand and the sums by a power of two, so that the smallest normal numbers
of the format and of float32 coincide. Both must be float32 values before and after. Either operand may be the left one,
since products with few columns are computed as products of the transposed matrices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.machines import Device
from simfloat.arithmetic.operands import FloatType, copy
from simfloat.formats import FP32, Format, Rounding, nearest_even
from simfloat.sums.accumulator import Engine, Region
from simfloat.sums.bounds import CARRIERS, Bounds, terms_and_sums
from simfloat.sums.operands import OperandBounds, Problem

SINGLE = CARRIERS[0]

#: The largest number of products for which a loop has the panel of a pairwise sum.
MOST_PAIRWISE_TERMS = 1 << 15

#: If subnormal numbers slow the processor down, small sums have a separate loop. It is used if every product is below
#: two to this power times the smallest normal number of the format. On a Xeon with AVX-512 the other loop is up to
#: twice as fast, unless one sum in a hundred or more is subnormal: then it takes 9 to 55 times as long. On an AMD Zen 3
#: the other loop is always faster: 2.1 to 3 times toward zero and to nearest with ties away, 1.6 to 1.8 times upward
#: and downward, 1.2 to 1.3 times to odd, for no or only subnormal sums (FP16, 64 x 64 x 64 and 128 x 256 x 128). On an
#: AMD Zen 4 the loop for small sums halved the rate toward zero.
SMALL_BINADES = 16

#: Steps that equal others with all signs reversed.
TURNED = {"downward": "upward"}

#: Nanoseconds per product, by the loop; other loops take 0.1.
COSTS = {
    **{
        "fused_whole_truncated": 0.02,
        "fused_whole_upward": 0.02,
        "fused_truncated": 0.04,
        "fused_away": 0.05,
        "fused_truncated_watched": 0.05,
    },
    **{"fused_plain": 0.05, "fused_plain_watched": 0.07},
}


class LaneLoop(NamedTuple):
    """A loop with steps that are rounded on lanes, and the values that it reads."""

    step: str
    grid: NDArray[np.float64]
    products: NDArray[np.float64]
    sign: float
    cost: float
    carrier: FloatType = np.float32
    takes_stacks: bool = True

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        region.machine.loops.rounded_tiles.steps[self.step](a, b, out, self.grid, self.products, self.sign)


class OrderLanes(NamedTuple):
    """A loop of another order on lanes, the values that it reads, and the engine for tiles with too large values."""

    order: str
    step: str
    grid: NDArray[np.float64]
    sign: float
    fallback: Engine
    cost: float
    carrier: FloatType = np.float32
    takes_stacks: bool = True

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        start, loop = out.copy(), region.machine.loops.lane_orders.loops[self.order][self.step]
        is_too_deep = self.order == "pairwise" and a.shape[1] > MOST_PAIRWISE_TERMS
        # The loop does not round values beyond the range of the format. It returns True if it found one. Then all sums
        # of the tile are computed again from their start values.
        if is_too_deep or loop(a, b, out, self.grid, self.sign):
            carrier = self.fallback.carrier
            sums = copy(start, carrier)
            self.fallback.run(copy(a, carrier), copy(b, carrier), sums, region)
            out[:] = sums


def lane_loop(problem: Problem, format: Format, rounding: Rounding, products: Format | None) -> LaneLoop | None:
    """Return the loop on lanes for sums in a format, and products in `products` if these are rounded.

    The result is None if no such loop is exact and fast.
    """
    if not problem.device.loops.processor.ROUNDS_LANES:
        return None
    a, b = problem.a.bounds, problem.b.bounds
    lift = lift_exponent(format)
    if products is not None and not (products.has_nan or (a.finite and b.finite)):
        return None
    if not all(fits_when_lifted(operand, lift) for operand in (problem.a, problem.b)):
        return None
    if rounding.steps == "nearest" and may_round_twice(
        format, rounding, products, a, b, problem.depth, problem.initial
    ):
        return _loop_for_mode(problem.device, format, rounding, products, "plain", False)
    if rounding == nearest_even and products is not None:
        return None  # the hardware's roundings, or a second rounding of float32 results, are as fast
    # Scaled sums below the smallest normal number of the format are subnormal in float32. On some processors these are
    # a hundred times slower: one such sum in fifty halved the rate of E4M3. The loop for small sums rounds by anchors.
    steps = TURNED.get(rounding.steps, rounding.steps)
    are_small = (
        problem.device.loops.processor.SLOW_WITH_SUBNORMALS
        and a.high + b.high < format.emin + SMALL_BINADES
        and format.precision <= SINGLE.precision - 2
    )
    return _loop_for_mode(problem.device, format, rounding, products, steps, are_small)


def order_lanes(
    order: str, stages: int, problem: Problem, format: Format, rounding: Rounding, fallback: Engine
) -> OrderLanes | None:
    """Return the loop on lanes for an order in which all operations are rounded to a format, or None."""
    loops = problem.device.loops
    if (
        not loops.processor.ROUNDS_LANES
        or order not in loops.lane_orders.loops
        or (order == "pairwise" and problem.depth > MOST_PAIRWISE_TERMS)
    ):
        return None
    if rounding.is_stochastic or not can_drop_bits(format, format, rounding):
        return None
    if not all(fits_when_lifted(operand, lift_exponent(format)) for operand in (problem.a, problem.b)):
        return None
    steps = (TURNED | {"nearest": "plain"}).get(rounding.steps, rounding.steps)
    if steps == "plain" and not sums_may_round_twice(format, problem.a.bounds.product_bounds(problem.b.bounds)):
        return None
    known = loops.lane_orders.loops[order]
    step = steps if steps in known and _overflows_like_float32(format, rounding) else f"{steps}_watched"
    if step not in known:
        return None
    numbers = kernels.rounding.grid.pack_grid(format, rounding)
    return OrderLanes(order, step, numbers, rounding.zero_sum, fallback, 0.05 * stages)


def sums_may_round_twice(format: Format, products: Bounds) -> bool:
    """Return True if float32 results of products and sums, rounded again to a format, are the exact ones rounded once.

    float32 must be able to represent the products (or they are too large for the format as well), and its precision
    must exceed twice the precision of the format by two bits.
    """
    is_held = products.precision <= SINGLE.precision and products.low + lift_exponent(format) >= SINGLE.lowest
    return is_held and SINGLE.precision >= 2 * format.precision + 2


def lift_exponent(format: Format) -> int:
    """Return the exponent of the power of two that maps the smallest normal number of the format to that of float32."""
    return SINGLE.lowest + SINGLE.precision - 1 - format.emin


@lru_cache(maxsize=4096)
def may_round_twice(
    format: Format,
    rounding: Rounding,
    products: Format | None,
    a: Bounds,
    b: Bounds,
    depth: int,
    initial: Bounds | None,
) -> bool:
    """Return True if the nearest float32 value to the result of a step, rounded again, is the result rounded once.

    With scaled sums, float32 loses nothing below its smallest number, because everything is a multiple of it. If
    products are rounded, float32 can represent them, or they are beyond its largest number and so beyond that of the
    format.
    """
    # Two roundings give the bits of one if float32 keeps all decisive bits: see `Carrier.needs_no_error`.
    exact, lift = a.product_bounds(b), lift_exponent(format)
    if exact.low + lift < SINGLE.lowest or (products is not None and exact.precision > SINGLE.precision):
        return False
    terms, sums = terms_and_sums(exact, depth, format, rounding, products, initial)
    return SINGLE.needs_no_error(format, terms, sums)


def fits_when_lifted(operand: OperandBounds, lift: int) -> bool:
    """Return True if float32 can represent the values, unchanged and multiplied by 2^lift."""
    if not operand.in_float32:
        return False
    return lift == 0 or SINGLE.contains(_lift_bounds(operand.bounds, lift))


def _lift_bounds(bounds: Bounds, lift: int) -> Bounds:
    return bounds._replace(low=bounds.low + lift, least=bounds.least + lift, high=bounds.high + lift)


@lru_cache(maxsize=1024)
def _loop_for_mode(
    device: Device, format: Format, rounding: Rounding, products: Format | None, name: str, are_small: bool
) -> LaneLoop | None:
    """Return the loop on lanes with steps of this name, for operands that fit; small sums have another loop."""
    formats = (format,) if products is None else (format, products)
    if rounding.is_stochastic or not all(can_drop_bits(each, format, rounding) for each in formats):
        return None
    loop = f"{'fused' if products is None else 'unfused'}_{name}"
    steps = device.loops.rounded_tiles.steps
    if format == FP32 and not rounding.saturates and f"fused_whole_{name}" in steps and products is None:
        loop = f"fused_whole_{name}"
    if loop not in steps or not all(_overflows_like_float32(each, rounding) for each in formats):
        loop += "_small" if are_small and f"{loop}_small" in steps else "_watched"
    if loop not in steps:
        return None
    grids = [kernels.rounding.grid.pack_grid(each, rounding) for each in formats]
    return LaneLoop(loop, grids[0], grids[-1], rounding.zero_sum, COSTS.get(loop, 0.1))


def can_drop_bits(format: Format, other: Format, rounding: Rounding) -> bool:
    """Return True if float32 bit patterns without some last bits are numbers of the format with the range of `other`.

    The sums are also used unscaled, and with another bias they may be outside the range of float32.
    """
    # Rounding down or up only needs to distinguish exact from inexact values; to nearest, one more bit must show the
    # tie.
    most_bits = SINGLE.precision - (2 if rounding.is_to_nearest else 1)
    lift = lift_exponent(format)
    # In the directed modes, float32 overflows to its largest number. This number is an overflow of the format only if
    # the format ends at least one binade below.
    highest = SINGLE.highest - rounding.overflows
    return (
        kernels.rounding.grid.has_plain_grid(format, rounding)
        and format.has_negative_zero
        and format.fits_float32
        and format.mantissa_bits <= most_bits
        and format.emin == other.emin
        and abs(lift) < SINGLE.highest - 1
        and format.emax + lift < highest
    )


def _overflows_like_float32(format: Format, rounding: Rounding) -> bool:
    """Return True if values beyond the largest number of the format exceed float32 as well, with the same result."""
    return (format == FP32 or kernels.rounding.grid.has_exponents_of_float32(format)) and not rounding.saturates
