"""Steps of what a GPU's instructions round down, up or toward zero.

As on a processor's lanes (`kernels/lane_steps.py`, which has the reasons): the image of a truncated result, to which
up to half a unit, or all bits that the format lacks, are added before they are cut off. Two instructions toward zero
and ten to nearest even take the place of some thirty, for any operands of float32. In formats with float32's exponents
what is too small or too large is so for float32, too. In others sums and left factors are *lifted*: multiplied by the
power of two that brings the format's smallest normal number to float32's. Then underflow is float32's own, and a step
looks in the end whether its result is beyond the largest number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simfloat.cuda import instructions
from simfloat.cuda.instructions import OPERATIONS
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import shift_left, shift_right
from simfloat.kernels.step_kinds import StepKind

U32 = np.uint32
SIGN = U32(0x80000000)


@scalar
def _image(x):
    return np.float32(x).view(np.uint32)


@scalar
def _unit(grid):
    """The last bit of an image that the format has."""
    return shift_left(U32(1), U32(U32(23) - U32(grid.mantissa_bits)))


@scalar
def _cut(image, grid):
    """The number of an image without the bits below."""
    return U32(image & U32(~U32(_unit(grid) - U32(1)))).view(np.float32)


@scalar
def cut_off(truncated, grid):
    """Toward zero."""
    return _cut(_image(truncated), grid)


@scalar
def cut_away(truncated, grid):
    """To nearest, ties away. The one NaN of a GPU has no bit to carry into."""
    moved = U32(_image(truncated) + shift_right(_unit(grid), U32(1)))
    return truncated if truncated != truncated else _cut(moved, grid)


@scalar
def cut_upward(upper, grid):
    """Toward positive."""
    # Negative numbers are cut toward zero, which is upward. All dropped bits, added to a positive image, carry into the
    # kept ones unless they are zeros.
    image, dropped = _image(upper), U32(_unit(grid) - U32(1))
    moved = U32(image + dropped) if image < SIGN else image
    return upper if upper != upper else _cut(moved, grid)


@scalar
def cut_downward(lower, grid):
    """Toward negative."""
    image, dropped = _image(lower), U32(_unit(grid) - U32(1))
    moved = U32(image + dropped) if image >= SIGN else image
    return lower if lower != lower else _cut(moved, grid)


@scalar
def cut_nearest(lower, upper, grid):
    """To nearest even, of the numbers below and above."""
    # As on lanes: rounded down and up are both neighbours of the exact result, and the smaller image is the truncated
    # one. Equal neighbours at the middle are a tie, for which one less is added if the kept bits are even.
    unit, truncated = _unit(grid), U32(min(_image(lower), _image(upper)))
    less = (_image(lower) == _image(upper)) & (U32(truncated & unit) == U32(0))
    half = shift_right(unit, U32(1))
    moved = U32(truncated + (U32(half - U32(1)) if less else half))
    return lower if lower != lower else _cut(moved, grid)


@scalar
def cut_to_odd(lower, upper, grid):
    """To odd, of both. As numbers, for an exact zero is -0 rounded down and +0 rounded up."""
    unit, truncated = _unit(grid), U32(min(_image(lower), _image(upper)))
    exact = (lower == upper) & (U32(truncated & U32(unit - U32(1))) == U32(0))
    return _cut(truncated if exact else U32(truncated | unit), grid)


@scalar
def no_overflow(x, grid):
    """A result in a format with float32's exponents."""
    return x


@scalar
def apply_overflow(x, grid):
    """A lifted result; if it is beyond the largest number of a lifted grid, what it becomes.

    Float32 gives infinity for a finite result only in modes in which the format, too, has the same for both.
    """
    # One comparison for results inside, which are nearly all. On the CPU the largest image of a whole panel is followed
    # instead: a thread has no panel.
    size = abs(x)
    if size > grid.max:
        finite = grid.overflow_positive if x > np.float32(0.0) else grid.overflow_negative
        beyond = finite if size < np.float32(np.inf) else grid.infinite
        return beyond if x > np.float32(0.0) else -beyond
    return x


def _by_one(cut: Any, suffix: str, limit: Any) -> tuple[Callable, StepKind]:
    """A step that is rounded once, and the kind of steps that round products and sums, by one instruction each."""
    fma, multiply, add = OPERATIONS[suffix]

    @scalar
    def step(total, x, y, options):
        return limit(cut(fma(x, y, total), options.grid), options.grid)

    @scalar
    def cut_product(x, y, draw, options):
        return limit(cut(multiply(x, y), options.products), options.products)

    @scalar
    def cut_sum(a, b, draw, options):
        return limit(cut(add(a, b), options.grid), options.grid)

    return step, StepKind(cut_product, cut_sum)


def _by_two(cut: Any, limit: Any) -> tuple[Callable, StepKind]:
    """A step that is rounded once, and the kind of steps that round products and sums, by two instructions each."""
    fma_down, multiply_down, add_down = OPERATIONS["rm"]
    fma_up, multiply_up, add_up = OPERATIONS["rp"]

    @scalar
    def step(total, x, y, options):
        return limit(cut(fma_down(x, y, total), fma_up(x, y, total), options.grid), options.grid)

    @scalar
    def cut_product(x, y, draw, options):
        return limit(cut(multiply_down(x, y), multiply_up(x, y), options.products), options.products)

    @scalar
    def cut_sum(a, b, draw, options):
        return limit(cut(add_down(a, b), add_up(a, b), options.grid), options.grid)

    return step, StepKind(cut_product, cut_sum)


#: By what is done to sums and the mode's steps.
_BOTH = {
    f"{prefix}_{steps}": both
    for prefix, limit in (("cut", no_overflow), ("lifted", apply_overflow))
    for steps, both in {
        "truncated": _by_one(cut_off, "rz", limit),
        "away": _by_one(cut_away, "rz", limit),
        "upward": _by_one(cut_upward, "rp", limit),
        "downward": _by_one(cut_downward, "rm", limit),
        "nearest": _by_two(cut_nearest, limit),
        "sticky": _by_two(cut_to_odd, limit),
    }.items()
}

#: Fused steps, by kind; and all kinds of steps that a GPU has beside those of `kernels/step_kinds.py`.
STEPS = {kind: step for kind, (step, _) in _BOTH.items()}
GPU_KINDS = instructions.INSTRUCTION_KINDS | {kind: steps for kind, (_, steps) in _BOTH.items()}
