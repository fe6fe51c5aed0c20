"""Sums in float32 whose steps are rounded on lanes (`kernels/lanes/operations.py`).

Of operands' bits nothing is asked, unless float32's own nearest numbers are rounded again (`may_round_twice`). Range is
asked: the loops multiply the left operand and the sums by the power of two that brings the format's smallest normal
number to float32's; they have to be float32 numbers before and after. Either operand may be the left one, since
products of few columns are summed as those of the transposed matrices.
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

#: Products up to which a loop has the panel of a pairwise sum at hand.
MOST_PAIRWISE_TERMS = 1 << 15

#: Where subnormal numbers slow the processor down, sums have a loop for small ones, if no product is as large as two to
#: this power times the format's smallest normal number. On a Xeon with AVX-512 the other loop is up to twice as quick,
#: unless one sum in a hundred or more is a subnormal number: then it takes 9 to 55 times as long. On an AMD Zen 3 the
#: other loop is always quicker: 2.1 to 3 times toward zero and to nearest with ties away, 1.6 to 1.8 times upward and
#: downward, 1.2 to 1.3 times to odd, whether no sum or all of them are subnormal numbers (FP16, 64 x 64 x 64 and
#: 128 x 256 x 128). On an AMD Zen 4 the loop for small ones halved the rate toward zero.
SMALL_BINADES = 16

#: Steps that are others with all signs turned.
TURNED = {"downward": "upward"}

#: Nanoseconds a product, by the loop; others take 0.1.
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
    """A loop whose steps are rounded on lanes, with the numbers it reads."""

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
    """A loop of another order on lanes, with the numbers it reads, and what sums where it met a number too large."""

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
        # The loop does not round numbers beyond the format's range. It tells that it met one,
        # and then all sums of the tile are made again from where they started.
        if is_too_deep or loop(a, b, out, self.grid, self.sign):
            carrier = self.fallback.carrier
            sums = copy(start, carrier)
            self.fallback.run(copy(a, carrier), copy(b, carrier), sums, region)
            out[:] = sums


def lane_loop(problem: Problem, format: Format, rounding: Rounding, products: Format | None) -> LaneLoop | None:
    """The loop on lanes for sums in a format, with products in one if they are rounded; None if there is none that is
    right and quick.
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
        return None  # the hardware's roundings, or float32's with another, are as quick
    # Lifted sums below the format's smallest normal number are float32's subnormal
    # numbers, with which some processors are a hundred times as slow: one such sum in
    # fifty halved the rate of E4M3. A loop for small sums rounds by anchors.
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
    """The loop on lanes for sums in an order whose operations are all rounded to a format; None if there is none."""
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
    """Whether float32's nearest number to a product, and to a sum of any two numbers of a format, rounded again, is the
    exact one rounded once: it holds the products, or they are too large for the format too, and has two bits more than
    twice the format's.
    """
    is_held = products.precision <= SINGLE.precision and products.low + lift_exponent(format) >= SINGLE.lowest
    return is_held and SINGLE.precision >= 2 * format.precision + 2


def lift_exponent(format: Format) -> int:
    """The exponent of the power of two that brings the format's smallest normal number to float32's."""
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
    """Whether float32's nearest number to a step's result, rounded again, is the result rounded once.

    With the sums lifted, float32 loses nothing below its smallest number, as everything is a multiple of that; where
    products are rounded, it holds them, or they are beyond its largest number and so beyond the format's.
    """
    # Two roundings give the bits of one where float32 keeps all that decides: see `Carrier.needs_no_error`.
    exact, lift = a.product_bounds(b), lift_exponent(format)
    if exact.low + lift < SINGLE.lowest or (products is not None and exact.precision > SINGLE.precision):
        return False
    terms, sums = terms_and_sums(exact, depth, format, rounding, products, initial)
    return SINGLE.needs_no_error(format, terms, sums)


def fits_when_lifted(operand: OperandBounds, lift: int) -> bool:
    """Whether numbers are float32's, as they are and times 2^lift."""
    if not operand.in_float32:
        return False
    return lift == 0 or SINGLE.contains(_lift_bounds(operand.bounds, lift))


def _lift_bounds(bounds: Bounds, lift: int) -> Bounds:
    return bounds._replace(low=bounds.low + lift, least=bounds.least + lift, high=bounds.high + lift)


@lru_cache(maxsize=1024)
def _loop_for_mode(
    device: Device, format: Format, rounding: Rounding, products: Format | None, name: str, are_small: bool
) -> LaneLoop | None:
    """The loop on lanes, whose steps have this name, for operands that fit, one of its own for small sums."""
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
    """Whether float32's images, without some of their last bits, are the format's where it has the range of `other`.

    The sums travel as they are, too: with another bias they may lie outside float32's range.
    """
    # Rounding down and up keeps apart what is exact and what is not; to nearest one more bit has to show the tie.
    most_bits = SINGLE.precision - (2 if rounding.is_to_nearest else 1)
    lift = lift_exponent(format)
    return (
        kernels.rounding.grid.has_plain_grid(format, rounding)
        and format.has_negative_zero
        and format.fits_float32
        and format.mantissa_bits <= most_bits
        and format.emin == other.emin
        and abs(lift) < SINGLE.highest - 1
        and format.emax + lift < SINGLE.highest
    )


def _overflows_like_float32(format: Format, rounding: Rounding) -> bool:
    """Whether a number beyond the format's largest is one beyond float32's, and becomes what that does."""
    return (format == FP32 or kernels.rounding.grid.has_exponents_of_float32(format)) and not rounding.saturates
