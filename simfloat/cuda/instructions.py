"""Sums, products and fused multiply-adds that a GPU rounds in one instruction, and no processor does.

* BF16 to nearest even, on images as in `kernels/halves.py`: ``fma.rn.bf16``, from Ampere on, which keeps subnormal
  numbers (PTX ISA 9.7.4). A sum is a * 1 + b, which has its bits, signs of zeros included; a product is a * b - 0.
  Instructions for these alone came with Hopper, and are no quicker.
* Two such steps at once, in FP16 or BF16, on images of neighbouring columns in a word: ``fma.rn.f16x2`` and
  ``fma.rn.bf16x2``, each half as the instruction for one.
* FP32 in the directed modes: ``fma.rz.f32`` and its like, rounded as IEEE 754-2019 defines it (PTX ISA 9.7.3): what is
  beyond the largest number stays there where the mode points back, and x - x is -0 under toward_negative.

As in `kernels/machine.py` each function has a plain body, its meaning, here in the functions that emulate the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from simfloat.cuda.thread_loops import threads_over
from simfloat.formats import BF16, FP32, Rounding, nearest_even
from simfloat.formats.rounding import MODES as RULES
from simfloat.kernels.grid import Grid, pack_grid
from simfloat.kernels.halves import fma_halves, image, number_with_one_nan
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import shift_left, shift_right
from simfloat.kernels.plain import nearest, one_nan, round_in_direction
from simfloat.kernels.step_kinds import StepKind
from simfloat.kernels.unrounded import add_odd, fma_odd

#: What a GPU does itself, as `kernels/processor.py` says it of a processor: all generations that code is made for do.
CONVERTS_FP16 = COMPUTES_FP16 = COMPUTES_BF16 = COMPUTES_DIRECTED = True

#: Its threads have numbers, and no lanes; subnormal numbers do not slow it down.
ROUNDS_LANES = SLOW_WITH_SUBNORMALS = False

BFLOATS = Grid(*pack_grid(BF16, nearest_even))

#: Images of BF16.
ONE, MINUS_ZERO = np.uint16(0x3F80), np.uint16(0x8000)

#: The directed modes by the suffix of their instructions.
DIRECTED = {rule.instruction: Rounding(mode) for mode, rule in RULES.items() if rule.instruction}


def as_instruction(text: str, number: Any, count: int) -> Callable[[Callable], Callable]:
    """Compile a function of two or three numbers of a type as an instruction, whose meaning its body is."""
    # Inline assembly names the instruction itself: it is the one that is meant, whatever version of NVVM compiles it.
    # It has no side effects, so the compiler may move and share it as any other operation.
    register = {types.uint16: "h", types.uint32: "r", types.float32: "f"}[number]
    constraints, places = ",".join([f"={register}", *[register] * count]), ", ".join(f"${i}" for i in range(count + 1))

    def generate(context, builder, signature, arguments):
        value = context.get_value_type(number)
        line = ir.InlineAsm(ir.FunctionType(value, [value] * count), f"{text} {places};", constraints)
        return builder.call(line, arguments)

    def mark(function: Callable) -> Callable:
        # Loops are told apart by the names of what they close over, on disk too.
        function.__name__ = function.__qualname__ = text
        signature = number(*[number] * count)
        if count == 2:
            two = intrinsic(lambda typing_context, a, b: (signature, generate))
            overload(function, jit_options={"forceinline": True})(lambda a, b: lambda a, b: two(a, b))
        else:
            three = intrinsic(lambda typing_context, a, b, c: (signature, generate))
            overload(function, jit_options={"forceinline": True})(lambda a, b, c: lambda a, b, c: three(a, b, c))
        return function

    return mark


@scalar
def number_of_bfloat(image):
    """The number of an image of BF16, as float32."""
    return shift_left(np.uint32(image), np.uint32(16)).view(np.float32)


@scalar
def bfloat_with_one_nan(image):
    """The number of an image of BF16, as float32; every NaN becomes the one NaN."""
    return one_nan(number_of_bfloat(image))


@scalar
def image_of_bfloat(x):
    """The image of a float32 that is a number of BF16."""
    return np.uint16(shift_right(np.float32(x).view(np.uint32), np.uint32(16))) if x == x else np.uint16(0x7FFF)


@as_instruction("fma.rn.bf16", types.uint16, 3)
def fma_bfloats(a, b, c):
    """a * b + c of three images' numbers, rounded once to BF16."""
    with np.errstate(all="ignore"):
        x, y, z = (np.float64(number_of_bfloat(image)) for image in (a, b, c))
        return image_of_bfloat(nearest(fma_odd(x, y, z, 1.0), BFLOATS))


@scalar
def bfloats_product(x, y, draw, options):
    """The product of two images' numbers."""
    return fma_bfloats(x, y, MINUS_ZERO)


@scalar
def bfloats_add(a, b, draw, options):
    """The sum of two images' numbers."""
    return fma_bfloats(a, ONE, b)


def _pair_instruction(text: str, fma: Callable) -> Callable:
    """The instruction that makes two fused multiply-adds, by what it does to either half of its words."""

    @as_instruction(text, types.uint32, 3)
    def fma_pairs(a, b, c):
        low, high = (fma(*(np.uint16((int(word) >> shift) & 0xFFFF) for word in (a, b, c))) for shift in (0, 16))
        return np.uint32(int(low) | int(high) << 16)

    return fma_pairs


#: Fused multiply-adds of pairs of images, with one and minus zero, twice, by the kind of steps.
PAIRS = {
    "halves": (_pair_instruction("fma.rn.f16x2", fma_halves), np.uint32(0x3C003C00), np.uint32(0x80008000)),
    "bfloats": (_pair_instruction("fma.rn.bf16x2", fma_bfloats), np.uint32(0x3F803F80), np.uint32(0x80008000)),
}


def _instructions_in_mode(suffix: str, rounding: Rounding) -> tuple[Callable, Callable, Callable]:
    """The fused multiply-add, the product and the sum of FP32 in a mode."""
    grid, sign = Grid(*pack_grid(FP32, rounding)), rounding.zero_sum

    # A product of float32 numbers is exact in float64, and a sum rounded to odd there has bits to spare.
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
    """The kind of steps of a product and a sum."""

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

#: Fused multiply-adds, and kinds of steps, beside those of `kernels/step_kinds.py`.
FUSED = {"bfloats": fma_bfloats} | {mode: fma for mode, (fma, *_) in MODES.items()}
INSTRUCTION_KINDS = {"bfloats": StepKind(bfloats_product, bfloats_add)} | {
    mode: _step_kind(*two) for mode, (_, *two) in MODES.items()
}


def conversion_loop(convert):
    """The loop that converts a matrix."""

    @threads_over("out")
    def loop(i, x, out):
        row, column = i // out.shape[1], i % out.shape[1]
        out[row, column] = convert(x[row, column])

    return loop


#: Loops between numbers and their images of 16 bits, as in `kernels/halves.py`.
image_loops = {"halves": conversion_loop(image), "bfloats": conversion_loop(image_of_bfloat)}
number_loops = {"halves": conversion_loop(number_with_one_nan), "bfloats": conversion_loop(bfloat_with_one_nan)}
