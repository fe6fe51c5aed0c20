"""Orders of summation, each written as one step, and the rounded operations of which steps are made.

**A step** says what a sum does with the next product. It is made for a kind of operations: `multiply`, `add` and
`subtract`, each called as ``add(a, b, draw, options)``. It gets the sum's state, a tuple of numbers that begins with
the running sum, two factors, and a draw for each of its stages, as its roundings are called; it returns the new state.
The first number of a state is at first what the sum starts from, the others are zero. The loops around it
(`kernels/sums/rows.py`, and `kernels/gpu/sums.py`) are the same for all.

A step in which nothing but operands of operations depends on numbers is carried out on rows of them, too. One that
compares numbers does so by :func:`simfloat.kernels.elementwise.half.magnitude`, since they may be images.

**A kind** of operations has two functions: `product(x, y, draw, options)` and `add(a, b, draw, options)`, each the
exact result rounded once. Kinds differ in what they must take care of:

* native: the carrier's own operations are wanted (FP64, and FP32 on FP32 operands);
* plain: the carrier's sum, rounded again, is right (nearest even);
* odd: the carrier's sum is moved to odd first (nearest even);
* converted and converted_odd: the same in float32 for FP16, to which the hardware rounds (`processor.CONVERTS_FP16`);
* halves: the hardware's own arithmetic on images of FP16 numbers (`processor.COMPUTES_FP16`);
* directed: other deterministic modes; sticky: to odd; `sign` is -1 under toward_negative, where x - x is -0;
* random: stochastic modes; sums are moved to odd; `draw` is a random word;
* drawn_odd: the same where numbers can be rounded in their images (see `round_at_random`); drawn_sums where that goes
  for sums only;
* likely: the same in float64, for sums in float32 whose roundings are almost always known sooner (see
  `kernels/sums/likely.py`);
* wide: any operands, grid and mode, without haste; `draw` is the word, and `pair` tells that results need more bits
  than float64 shows, for a long draw or below its smallest number.
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
    """The sum in a state that holds nothing else that belongs to it."""
    return state[0]


class Order(NamedTuple):
    """An order of summation for all kinds of operations."""

    step: Callable  # (multiply, add, subtract) -> the step: (state, x, y, draws, options) -> state
    state: int  # the numbers of a state
    stages: int  # the roundings of a step that draw, each from a stage of its own, and one for `finish` if it rounds
    finish: Callable | None = None  # add -> (state, draw, options) -> the sum; None: the first number of the state
    on_rows: bool = True  # whether the step takes rows in the place of numbers


def kahan(multiply: Any, add: Any, subtract: Any) -> Any:
    """Kahan's compensated sum (Kahan 1965; Higham 2002, section 4.3): the sum s, and c, by which it is too large.

    p = x * y, y = p - c, t = s + y, c = (t - s) - y, s = t.
    """

    @scalar
    def step(state, x, y, draws, options):
        s, c = state
        p = multiply(x, y, draws[1], options)
        corrected = subtract(p, c, draws[2], options)
        t = add(s, corrected, draws[0], options)
        return t, subtract(subtract(t, s, draws[3], options), corrected, draws[4], options)

    return step


#: Orders by the name of the function that makes the accumulator.
ORDERS = {
    "kahan": Order(kahan, state=2, stages=5),
}


@scalar
def native_product(x, y, draw, options):
    """The carrier's product."""
    return x * y


@scalar
def native_add(a, b, draw, options):
    """The carrier's sum."""
    return a + b


@scalar
def nearest_product(x, y, draw, options):
    """A product that the carrier holds, rounded to nearest even."""
    return nearest(x * y, options.products)


@scalar
def plain_add(a, b, draw, options):
    """A sum whose second rounding does no harm."""
    return nearest(a + b, options.grid)


@scalar
def odd_add(a, b, draw, options):
    """A sum that is rounded to odd before it is rounded to nearest even."""
    return nearest(odd_sum(a, b), options.grid)


@scalar
def converted_product(x, y, draw, options):
    """A product that float32 holds, rounded to FP16 by the hardware."""
    return half.round_to_half(x * y)


@scalar
def converted_add(a, b, draw, options):
    """A sum whose second rounding, the hardware's to FP16, does no harm."""
    return half.round_to_half(a + b)


@scalar
def converted_odd_add(a, b, draw, options):
    """A sum that is rounded to odd before the hardware rounds it to FP16."""
    return half.round_to_half(odd_sum(a, b))


@scalar
def halves_product(x, y, draw, options):
    """The hardware's product of FP16 numbers, which are held as images."""
    return half.multiply_halves(x, y)


@scalar
def halves_add(a, b, draw, options):
    """The hardware's sum of FP16 numbers."""
    return half.add_halves(a, b)


@scalar
def directed_product(x, y, draw, options):
    """A product that the carrier holds, in a directed mode."""
    return round_in_direction(x * y, options.products)


@scalar
def directed_add(a, b, draw, options):
    """A sum in a directed mode."""
    return round_in_direction(add_odd(a, b, options.sign), options.grid)


@scalar
def to_odd_product(x, y, draw, options):
    """A product that the carrier holds, rounded to odd."""
    return to_odd(x * y, options.products)


@scalar
def to_odd_add(a, b, draw, options):
    """A sum rounded to odd."""
    return to_odd(odd_sum(a, b), options.grid)


@scalar
def random_product(x, y, draw, options):
    """A product that the carrier holds, rounded at random."""
    return round_by_threshold(x * y, draw, options.products)


@scalar
def random_add(a, b, draw, options):
    """A sum rounded at random, moved to odd first."""
    return round_by_threshold(odd_sum(a, b), draw, options.grid)


@scalar
def product_rounded_at_random(x, y, draw, options):
    """A product that the carrier holds, rounded at random in its image."""
    return round_at_random(x * y, draw, options.products)


@scalar
def add_rounded_at_random(a, b, draw, options):
    """A sum rounded at random in its image, moved to odd first."""
    return round_at_random(odd_sum(a, b), draw, options.grid)


@scalar
def stochastic_product_in_float64(x, y, draw, options):
    """A product of float32 numbers, rounded at random in its image in float64."""
    return np.float32(round_at_random(np.float64(x) * np.float64(y), draw, options.products))


@scalar
def stochastic_add_in_float64(a, b, draw, options):
    """A sum of float32 numbers, moved to odd and rounded at random in its image in float64."""
    return np.float32(round_at_random(odd_sum(np.float64(a), np.float64(b)), draw, options.grid))


# Not inlined: a loop holds several of them.
@out_of_line
def round_wide(high, low, exponent, draw, grid, pair):
    """(high + low) * 2^exponent rounded once, in any mode to any grid."""
    if grid.mantissa_bits == 52.0:
        # For FP64 itself, which is rounded to nearest even only, round-to-odd has no bits to spare.
        double = round_pair_to_double(high, low, exponent)
        return in_range(double, abs(double), grid)
    if pair:
        return round_pair(high, low, exponent, np.uint32(draw), grid)
    return round_to_any_grid(round_pair_to_odd(high, low, exponent), np.uint32(draw), grid)


@out_of_line
def wide_product(x, y, draw, options):
    """A product of any operands."""
    high, low, exponent = multiply_wide(x, y)
    return round_wide(high, low, exponent, draw, options.products, options.pair)


@out_of_line
def wide_add(a, b, draw, options):
    """A sum of any operands."""
    high, low, exponent = add_wide(a, b, options.sign)
    return round_wide(high, low, exponent, draw, options.grid, options.pair)


class StepOptions(NamedTuple):
    """What the operations of a step are given beside operands and a draw."""

    grid: Any  # the Grid of sums
    products: Any  # that of products
    sign: float  # -1 under toward_negative, where x - x is -0; else 1
    pair: bool  # whether results need more bits than float64 shows


class StepKind(NamedTuple):
    """What a loop closes over for a kind of step: its two functions, and whether it draws."""

    product: Any
    add: Any
    draws: bool | None = False  # None: as the grid says


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
    "wide": StepKind(wide_product, wide_add, None),
    "converted": StepKind(converted_product, converted_add),
    "halves": StepKind(halves_product, halves_add),
}

#: Those of sums whose terms are numbers of the format itself: such sums can always be drawn in their images.
KINDS_OF_ONE_FORMAT = {name: kind for name, kind in KINDS.items() if name != "random"}
