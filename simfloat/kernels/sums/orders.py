"""Orders of summation, each written as one step, and the rounded operations that steps use.

**A step** defines how a sum takes the next product. It is created for a kind of operations: `multiply`, `add` and
`subtract`, each called as ``add(a, b, draw, options)``. Its arguments are the state of the sum, which is a tuple that
begins with the partial sum, two factors, and a draw for each of its stages (a stage is one rounding of the step). It
returns the new state. The first value of the initial state is the start value of the sum, and the others are zero. The
loops around it (`kernels/sums/rows.py`, and `kernels/gpu/sums.py`) are the same for all orders.

A step in which values only become operands of operations can also run on rows of them. A step that compares values uses
:func:`simfloat.kernels.elementwise.half.magnitude`, since they may be bit patterns.

**A kind** of operations has two functions: `product(x, y, draw, options)` and `add(a, b, draw, options)`. Each returns
the exact result rounded once. Kinds differ in what they have to take care of:

* native: the operations of the carrier are the result (FP64, and FP32 on FP32 operands);
* plain: the sum in the carrier, rounded again, is correct (nearest even);
* odd: the sum in the carrier is first rounded to odd (nearest even);
* converted and converted_odd: the same two in float32 for FP16, to which the hardware rounds
  (`processor.CONVERTS_FP16`);
* halves: the hardware's FP16 arithmetic on bit patterns (`processor.COMPUTES_FP16`);
* directed: other deterministic modes; sticky: to odd; `sign` is -1 for toward_negative, where x - x is -0;
* random: stochastic modes; sums are first rounded to odd; `draw` is a random word;
* drawn_odd: the same by bit patterns, if they can be used (see `round_at_random`); drawn_sums if they can be used for
  sums only;
* likely: the same in float64, for float32 sums with roundings that are almost always decided earlier (see
  `kernels/sums/likely.py`);
* wide: any operands, grid and mode, without attention to speed; `draw` is the word; `pair` is true if results need more
  bits than float64 has, for a long draw or below the smallest float64 number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.compile.jit import out_of_line, scalar
from simfloat.kernels.elementwise import half
from simfloat.kernels.elementwise.exact import (
    add_odd,
    add_wide,
    fma_wide,
    multiply_wide,
    odd_sum,
    round_pair_to_double,
    round_pair_to_odd,
)
from simfloat.kernels.rounding.one_number import (
    in_range,
    nearest,
    round_at_random,
    round_by_threshold,
    round_in_direction,
    round_pair,
    round_to_any_grid,
    to_odd,
)


@scalar
def running_sum(state, draw, options):
    """Return the first value of a state, for orders that need no final step."""
    return state[0]


class Order(NamedTuple):
    """An order of summation for all kinds of operations."""

    step: Callable  # (multiply, add, subtract) -> the step: (state, x, y, draws, options) -> state
    state: int  # the number of values in a state
    stages: int  # the roundings of a step, each with a separate stage of draws, and one for `finish` if it rounds
    finish: Callable | None = None  # add -> (state, draw, options) -> the sum; None: the first value of the state
    fuses: bool = False  # True if `step` takes the fused multiply-add in place of the other operations
    on_rows: bool = True  # True if the step accepts rows in place of scalars


def fused_step(fuse: Any) -> Any:
    """Return the step of a sequential sum of exact products."""

    @scalar
    def step(state, x, y, draws, options):
        return (fuse(state[0], x, y, draws[0], options),)

    return step


def unfused_step(multiply: Any, add: Any, subtract: Any) -> Any:
    """Return the step of a sequential sum of rounded products."""

    @scalar
    def step(state, x, y, draws, options):
        return (add(state[0], multiply(x, y, draws[1], options), draws[0], options),)

    return step


def kahan(multiply: Any, add: Any, subtract: Any) -> Any:
    """Return the step of Kahan's compensated sum (Kahan 1965; Higham 2002, section 4.3).

    s is the sum, and c the amount by which it is too large: p = x * y, y = p - c, t = s + y, c = (t - s) - y, s = t.
    """

    @scalar
    def step(state, x, y, draws, options):
        s, c = state
        p = multiply(x, y, draws[1], options)
        corrected = subtract(p, c, draws[2], options)
        t = add(s, corrected, draws[0], options)
        return t, subtract(subtract(t, s, draws[3], options), corrected, draws[4], options)

    return step


#: Orders by the name of the function that creates the accumulator, and the two of `sequential`.
ORDERS = {
    "fused": Order(fused_step, state=1, stages=1, fuses=True),
    "unfused": Order(unfused_step, state=1, stages=2),
    "kahan": Order(kahan, state=2, stages=5),
}


@scalar
def native_product(x, y, draw, options):
    """Return the product in the carrier."""
    return x * y


@scalar
def native_add(a, b, draw, options):
    """Return the sum in the carrier."""
    return a + b


@scalar
def nearest_product(x, y, draw, options):
    """Return a product that the carrier represents exactly, rounded to nearest even."""
    return nearest(x * y, options.products)


@scalar
def plain_add(a, b, draw, options):
    """Return a sum rounded in the carrier and then to the grid, if this equals a single rounding."""
    return nearest(a + b, options.grid)


@scalar
def odd_add(a, b, draw, options):
    """Return a sum that is rounded to odd before it is rounded to nearest even."""
    return nearest(odd_sum(a, b), options.grid)


@scalar
def converted_product(x, y, draw, options):
    """Return a product that float32 represents exactly, rounded to FP16 by the hardware."""
    return half.round_to_half(x * y)


@scalar
def converted_add(a, b, draw, options):
    """Return a sum rounded in the carrier and then to FP16 by the hardware, if this equals a single rounding."""
    return half.round_to_half(a + b)


@scalar
def converted_odd_add(a, b, draw, options):
    """Return a sum that is rounded to odd before the hardware rounds it to FP16."""
    return half.round_to_half(odd_sum(a, b))


@scalar
def halves_product(x, y, draw, options):
    """Return the product of FP16 bit patterns, computed by the hardware."""
    return half.multiply_halves(x, y)


@scalar
def halves_add(a, b, draw, options):
    """Return the sum of FP16 bit patterns, computed by the hardware."""
    return half.add_halves(a, b)


@scalar
def directed_product(x, y, draw, options):
    """Return a product that the carrier represents exactly, rounded in a directed mode."""
    return round_in_direction(x * y, options.products)


@scalar
def directed_add(a, b, draw, options):
    """Return a sum rounded in a directed mode."""
    return round_in_direction(add_odd(a, b, options.sign), options.grid)


@scalar
def to_odd_product(x, y, draw, options):
    """Return a product that the carrier represents exactly, rounded to odd."""
    return to_odd(x * y, options.products)


@scalar
def to_odd_add(a, b, draw, options):
    """Return a sum rounded to odd."""
    return to_odd(odd_sum(a, b), options.grid)


@scalar
def random_product(x, y, draw, options):
    """Return a product that the carrier represents exactly, rounded at random."""
    return round_by_threshold(x * y, draw, options.products)


@scalar
def random_add(a, b, draw, options):
    """Return a sum that is rounded to odd, then at random."""
    return round_by_threshold(odd_sum(a, b), draw, options.grid)


@scalar
def product_rounded_at_random(x, y, draw, options):
    """Return a product that the carrier represents exactly, rounded at random by its bit pattern."""
    return round_at_random(x * y, draw, options.products)


@scalar
def add_rounded_at_random(a, b, draw, options):
    """Return a sum that is rounded to odd, then at random by its bit pattern."""
    return round_at_random(odd_sum(a, b), draw, options.grid)


@scalar
def stochastic_product_in_float64(x, y, draw, options):
    """Return a product of float32 numbers, rounded at random by its bit pattern in float64."""
    return np.float32(round_at_random(np.float64(x) * np.float64(y), draw, options.products))


@scalar
def stochastic_add_in_float64(a, b, draw, options):
    """Return a sum of float32 numbers that is rounded to odd, then at random by its bit pattern in float64."""
    return np.float32(round_at_random(odd_sum(np.float64(a), np.float64(b)), draw, options.grid))


# Functions with many call sites in a loop are not inlined.
@out_of_line
def round_wide(high, low, exponent, draw, grid, pair):
    """Return (high + low) * 2^exponent rounded once, in any mode to any grid."""
    if grid.mantissa_bits == 52.0:
        # FP64 itself is rounded to nearest even only, and round-to-odd in float64 has no bits to spare for it.
        double = round_pair_to_double(high, low, exponent)
        return in_range(double, abs(double), grid)
    if pair:
        return round_pair(high, low, exponent, np.uint32(draw), grid)
    return round_to_any_grid(round_pair_to_odd(high, low, exponent), np.uint32(draw), grid)


@out_of_line
def wide_product(x, y, draw, options):
    """Return a rounded product of any operands."""
    high, low, exponent = multiply_wide(x, y)
    return round_wide(high, low, exponent, draw, options.products, options.pair)


@out_of_line
def wide_add(a, b, draw, options):
    """Return a rounded sum of any operands."""
    high, low, exponent = add_wide(a, b, options.sign)
    return round_wide(high, low, exponent, draw, options.grid, options.pair)


@scalar
def wide_fuse(total, x, y, draw, options):
    """Return a sum plus a product of any operands, rounded once."""
    high, low, exponent = fma_wide(np.float64(x), np.float64(y), total, options.sign)
    return round_wide(high, low, exponent, draw, options.grid, options.pair)


class StepOptions(NamedTuple):
    """Arguments for the operations of a step, in addition to operands and a draw."""

    grid: Any  # the Grid of sums
    products: Any  # the Grid of products
    sign: float  # -1 for toward_negative, where x - x is -0; otherwise 1
    pair: bool  # True if results need more bits than float64 has


class StepKind(NamedTuple):
    """A kind of step, which a loop is compiled with: its functions, and True if it is stochastic."""

    product: Any
    add: Any
    draws: bool | None = False  # None: as the grid requires
    fuse: Any = None  # (total, x, y, draw, options) -> the sum; None: `add` of the carrier's product, which is exact


KINDS = {
    "native": StepKind(native_product, native_add),
    "plain": StepKind(nearest_product, plain_add),
    "odd": StepKind(nearest_product, odd_add),
    "directed": StepKind(directed_product, directed_add),
    "sticky": StepKind(to_odd_product, to_odd_add),
    "random": StepKind(random_product, random_add, True),
    "drawn_odd": StepKind(product_rounded_at_random, add_rounded_at_random, True),
    "drawn_sums": StepKind(random_product, add_rounded_at_random, True),
    "likely": StepKind(stochastic_product_in_float64, stochastic_add_in_float64, True),
    "wide": StepKind(wide_product, wide_add, None, wide_fuse),
    "converted": StepKind(converted_product, converted_add),
    "converted_odd": StepKind(converted_product, converted_odd_add),
    "halves": StepKind(halves_product, halves_add),
}

#: Kinds for sums of terms that are already numbers of the format: these can always be drawn by bit patterns, and a
#: conversion by the hardware is correct.
KINDS_OF_ONE_FORMAT = {name: kind for name, kind in KINDS.items() if name not in ("random", "converted_odd")}


def kinds_of(order: Order) -> dict[str, StepKind]:
    """Return the kinds of operations that an order needs."""
    if order.state > 1:
        return KINDS_OF_ONE_FORMAT
    # Of the kinds that differ from another one only in one operation, a fused step needs the one for sums, an unfused
    # step the one for products.
    return {name: kind for name, kind in KINDS.items() if name != ("drawn_sums" if order.fuses else "converted_odd")}
