"""Steps with roundings that GPU instructions have and processors do not: BF16, pairs of 16 bits, and directed modes.

**Sums, products and fused multiply-adds in one instruction:**

* BF16 to nearest even, on bit patterns as in `kernels/elementwise/half.py`: ``fma.rn.bf16``, available since Ampere,
  which keeps subnormal numbers (PTX ISA 9.7.4). A sum is a * 1 + b, which has the same bits, including signs of zeros;
  a product is a * b - 0. Separate instructions for these came with Hopper, and are not faster.
* Two such steps at once, in FP16 or BF16, on bit patterns of neighbouring columns in a word: ``fma.rn.f16x2`` and
  ``fma.rn.bf16x2``. Each half is computed as by the scalar instruction.
* FP32 in the directed modes: ``fma.rz.f32`` and similar ones, rounded as IEEE 754-2019 defines it (PTX ISA 9.7.3):
  overflow stays at the largest number if the mode points back, and x - x is -0 for toward_negative.

As in `kernels/compile/intrinsics.py`, each function has a Python body that defines its meaning, here by the functions
that emulate the step.

**Steps that truncate** the results of instructions that round down, up or toward zero. The method is the one of a
processor's lanes (`kernels/lanes/operations.py` gives the reasons): up to half a unit, or all bits that the format
drops, are added to the bit pattern of a truncated result before the bits are dropped. Two instructions toward zero, and
ten to nearest even, replace about thirty, for any operands of float32. In formats with the exponents of float32,
underflow and overflow are the same as in float32. For other formats, sums and left factors are *lifted*: multiplied by
the power of two that makes the smallest normal numbers of the format and of float32 equal. Float32 then handles
underflow, and a step finally tests if its result is beyond the largest number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from simfloat.formats import BF16, FP32, Rounding, nearest_even
from simfloat.formats.rounding import MODES as RULES
from simfloat.kernels.compile.intrinsics import shift_left, shift_right
from simfloat.kernels.compile.jit import overload, scalar
from simfloat.kernels.elementwise.exact import add_odd, fma_odd
from simfloat.kernels.elementwise.half import fma_halves, image, number_with_one_nan
from simfloat.kernels.gpu.threads import threads_over
from simfloat.kernels.rounding.grid import Grid, pack_grid
from simfloat.kernels.rounding.one_number import nearest, one_nan, round_in_direction
from simfloat.kernels.sums.orders import StepKind

#: Capabilities of a GPU, with the names of `kernels/compile/processor.py`: all supported generations have them.
CONVERTS_FP16 = COMPUTES_FP16 = COMPUTES_BF16 = COMPUTES_DIRECTED = True

#: Threads compute with scalars, not lanes; subnormal numbers do not slow a GPU down.
ROUNDS_LANES = SLOW_WITH_SUBNORMALS = False

BFLOATS = Grid(*pack_grid(BF16, nearest_even))

#: Bit patterns of BF16.
ONE, MINUS_ZERO = np.uint16(0x3F80), np.uint16(0x8000)

#: The directed modes by the suffix of their instructions.
DIRECTED = {rule.instruction: Rounding(mode) for mode, rule in RULES.items() if rule.instruction}


def as_instruction(text: str, number: Any, count: int) -> Callable[[Callable], Callable]:
    """Return a decorator that compiles a function of two or three scalars as an instruction, which its body defines."""
    # Inline assembly names the instruction, so every version of NVVM compiles to it. It has no side effects, so the
    # compiler may move and share it as any other operation.
    register = {types.uint16: "h", types.uint32: "r", types.float32: "f"}[number]
    constraints, places = ",".join([f"={register}", *[register] * count]), ", ".join(f"${i}" for i in range(count + 1))

    def generate(context, builder, signature, arguments):
        value = context.get_value_type(number)
        line = ir.InlineAsm(ir.FunctionType(value, [value] * count), f"{text} {places};", constraints)
        return builder.call(line, arguments)

    def mark(function: Callable) -> Callable:
        # Loops are identified by the names of the functions in their closures, also on disk.
        function.__name__ = function.__qualname__ = text
        signature = number(*[number] * count)
        if count == 2:
            two = intrinsic(lambda typing_context, a, b: (signature, generate))
            overload(function)(lambda a, b: lambda a, b: two(a, b))
        else:
            three = intrinsic(lambda typing_context, a, b, c: (signature, generate))
            overload(function)(lambda a, b, c: lambda a, b, c: three(a, b, c))
        return function

    return mark


@scalar
def number_of_bfloat(image):
    """Return the number of a BF16 bit pattern, as float32."""
    return shift_left(np.uint32(image), np.uint32(16)).view(np.float32)


@scalar
def bfloat_with_one_nan(image):
    """Return the number of a BF16 bit pattern, as float32; every NaN becomes the positive quiet NaN."""
    return one_nan(number_of_bfloat(image))


@scalar
def image_of_bfloat(x):
    """Return the bit pattern of a float32 value that is a BF16 number."""
    return np.uint16(shift_right(np.float32(x).view(np.uint32), np.uint32(16))) if x == x else np.uint16(0x7FFF)


@as_instruction("fma.rn.bf16", types.uint16, 3)
def fma_bfloats(a, b, c):
    """Return a * b + c for three bit patterns, rounded once to BF16."""
    with np.errstate(all="ignore"):
        x, y, z = (np.float64(number_of_bfloat(image)) for image in (a, b, c))
        return image_of_bfloat(nearest(fma_odd(x, y, z, 1.0), BFLOATS))


@scalar
def bfloats_product(x, y, draw, options):
    """Return the product of two bit patterns."""
    return fma_bfloats(x, y, MINUS_ZERO)


@scalar
def bfloats_add(a, b, draw, options):
    """Return the sum of two bit patterns."""
    return fma_bfloats(a, ONE, b)


def _pair_instruction(text: str, fma: Callable) -> Callable:
    """Return the instruction for two fused multiply-adds, defined by its effect on each half of its words."""

    @as_instruction(text, types.uint32, 3)
    def fma_pairs(a, b, c):
        low, high = (fma(*(np.uint16((int(word) >> shift) & 0xFFFF) for word in (a, b, c))) for shift in (0, 16))
        return np.uint32(int(low) | int(high) << 16)

    return fma_pairs


#: By the kind of steps: the fused multiply-add of pairs of bit patterns; and a word with two ones, and a word with two
#: minus zeros.
PAIRS = {
    "halves": (_pair_instruction("fma.rn.f16x2", fma_halves), np.uint32(0x3C003C00), np.uint32(0x80008000)),
    "bfloats": (_pair_instruction("fma.rn.bf16x2", fma_bfloats), np.uint32(0x3F803F80), np.uint32(0x80008000)),
}


def _instructions_in_mode(suffix: str, rounding: Rounding) -> tuple[Callable, Callable, Callable]:
    """Return the fused multiply-add, the product and the sum of FP32 in a mode."""
    grid, sign = Grid(*pack_grid(FP32, rounding)), rounding.zero_sum

    # A product of float32 numbers is exact in float64, and a sum rounded to odd in float64 has enough extra bits.
    @as_instruction(f"fma.{suffix}.f32", types.float32, 3)
    def fma(a, b, c):
        return np.float32(round_in_direction(add_odd(np.float64(a) * np.float64(b), np.float64(c), sign), grid))

    @as_instruction(f"mul.{suffix}.f32", types.float32, 2)
    def multiply(a, b):
        return np.float32(round_in_direction(np.float64(a) * np.float64(b), grid))

    @as_instruction(f"add.{suffix}.f32", types.float32, 2)
    def add(a, b):
        return np.float32(round_in_direction(add_odd(np.float64(a), np.float64(b), sign), grid))

    return fma, multiply, add


def _step_kind(multiply: Callable, add: Callable) -> StepKind:
    """Return the kind of steps of a product and a sum."""

    @scalar
    def product_in_mode(x, y, draw, options):
        return multiply(x, y)

    @scalar
    def sum_in_mode(a, b, draw, options):
        return add(a, b)

    return StepKind(product_in_mode, sum_in_mode)


#: (fused multiply-add, product, sum) by the suffix, and by the mode.
OPERATIONS = {suffix: _instructions_in_mode(suffix, rounding) for suffix, rounding in DIRECTED.items()}
MODES = {rounding.mode: OPERATIONS[suffix] for suffix, rounding in DIRECTED.items()}

#: Fused multiply-adds and kinds of steps, in addition to the kinds of `kernels/sums/orders.py`.
FUSED = {"bfloats": fma_bfloats} | {mode: fma for mode, (fma, *_) in MODES.items()}
INSTRUCTION_KINDS = {"bfloats": StepKind(bfloats_product, bfloats_add)} | {
    mode: _step_kind(*two) for mode, (_, *two) in MODES.items()
}


def conversion_loop(convert):
    """Return the loop that converts a matrix."""

    @threads_over("out")
    def loop(i, x, out):
        row, column = i // out.shape[1], i % out.shape[1]
        out[row, column] = convert(x[row, column])

    return loop


#: Loops between values and their 16-bit patterns, as in `kernels/elementwise/half.py`.
image_loops = {"halves": conversion_loop(image), "bfloats": conversion_loop(image_of_bfloat)}
number_loops = {"halves": conversion_loop(number_with_one_nan), "bfloats": conversion_loop(bfloat_with_one_nan)}


U32 = np.uint32
SIGN = U32(0x80000000)


@scalar
def _image(x):
    return np.float32(x).view(np.uint32)


@scalar
def _unit(grid):
    """Return the last bit of a bit pattern that the format keeps."""
    return shift_left(U32(1), U32(U32(23) - U32(grid.mantissa_bits)))


@scalar
def _cut(image, grid):
    """Return the number of a bit pattern without the bits that the format drops."""
    return U32(image & U32(~U32(_unit(grid) - U32(1)))).view(np.float32)


@scalar
def cut_off(truncated, grid):
    """Round toward zero."""
    return _cut(_image(truncated), grid)


@scalar
def cut_away(truncated, grid):
    """Round to nearest, ties away. NaN is returned unchanged, because the bits of a GPU's NaN would carry."""
    moved = U32(_image(truncated) + shift_right(_unit(grid), U32(1)))
    return truncated if truncated != truncated else _cut(moved, grid)


@scalar
def cut_upward(upper, grid):
    """Round toward positive."""
    # Negative numbers are truncated toward zero, which is upward. All dropped bits, added to a positive bit pattern,
    # carry into the kept bits unless the dropped ones are zeros.
    image, dropped = _image(upper), U32(_unit(grid) - U32(1))
    moved = U32(image + dropped) if image < SIGN else image
    return upper if upper != upper else _cut(moved, grid)


@scalar
def cut_downward(lower, grid):
    """Round toward negative."""
    image, dropped = _image(lower), U32(_unit(grid) - U32(1))
    moved = U32(image + dropped) if image >= SIGN else image
    return lower if lower != lower else _cut(moved, grid)


@scalar
def cut_nearest(lower, upper, grid):
    """Round to nearest even, from the numbers below and above."""
    # As on lanes: the results rounded down and up are the neighbours of the exact result, and the smaller bit pattern
    # is the truncated one. Equal neighbours at the middle are a tie, and then one less is added if the kept bits are
    # even.
    unit, truncated = _unit(grid), U32(min(_image(lower), _image(upper)))
    less = (_image(lower) == _image(upper)) & (U32(truncated & unit) == U32(0))
    half = shift_right(unit, U32(1))
    moved = U32(truncated + (U32(half - U32(1)) if less else half))
    return lower if lower != lower else _cut(moved, grid)


@scalar
def cut_to_odd(lower, upper, grid):
    """Round to odd. Both neighbours are compared as floats: an exact zero is -0 rounded down and +0 rounded up."""
    unit, truncated = _unit(grid), U32(min(_image(lower), _image(upper)))
    exact = (lower == upper) & (U32(truncated & U32(unit - U32(1))) == U32(0))
    return _cut(truncated if exact else U32(truncated | unit), grid)


@scalar
def no_overflow(x, grid):
    """Return a result in a format with the exponents of float32, unchanged."""
    return x


@scalar
def apply_overflow(x, grid):
    """Return a lifted result, or the overflow result if it is beyond the largest number of a lifted grid.

    Float32 gives infinity for a finite result only in modes in which the format also treats the two alike.
    """
    # One comparison for results in range, which are nearly all. The CPU tracks the largest bit pattern of a whole panel
    # instead; a thread has no panel.
    size = abs(x)
    if size > grid.max:
        finite = grid.overflow_positive if x > np.float32(0.0) else grid.overflow_negative
        beyond = finite if size < np.float32(np.inf) else grid.infinite
        return beyond if x > np.float32(0.0) else -beyond
    return x


def _by_one(cut: Any, suffix: str, limit: Any) -> tuple[Callable, StepKind]:
    """Return a step that rounds once, and the kind of steps with rounded products and sums; one instruction each."""
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
    """Return a step that rounds once, and the kind of steps with rounded products and sums; two instructions each."""
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


#: By the treatment of sums and the steps of the mode.
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

#: Fused steps by kind. GPU_KINDS has all kinds of steps of a GPU that `kernels/sums/orders.py` does not have.
STEPS = {kind: step for kind, (step, _) in _BOTH.items()}
GPU_KINDS = INSTRUCTION_KINDS | {kind: steps for kind, (_, steps) in _BOTH.items()}
