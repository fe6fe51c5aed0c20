"""Steps that a GPU's instructions round and no processor's do: in BF16, in pairs of 16 bits, and in directed modes.

**Sums, products and fused multiply-adds in one instruction:**

* BF16 to nearest even, on images as in `kernels/elementwise/half.py`: ``fma.rn.bf16``, from Ampere on, which keeps
  subnormal numbers (PTX ISA 9.7.4). A sum is a * 1 + b, which has its bits, signs of zeros included; a product is
  a * b - 0. Instructions for these alone came with Hopper, and are no quicker.
* Two such steps at once, in FP16 or BF16, on images of neighbouring columns in a word: ``fma.rn.f16x2`` and
  ``fma.rn.bf16x2``, each half as the instruction for one.
* FP32 in the directed modes: ``fma.rz.f32`` and its like, rounded as IEEE 754-2019 defines it (PTX ISA 9.7.3): what is
  beyond the largest number stays there where the mode points back, and x - x is -0 under toward_negative.

As in `kernels/compile/intrinsics.py` each function has a plain body, its meaning, here in the functions that emulate
the step.

**Steps that cut** what instructions round down, up or toward zero. As on a processor's lanes
(`kernels/lanes/operations.py`, which has the reasons): the image of a truncated result, to which up to half a unit, or
all bits that the format lacks, are added before they are cut off. Two instructions toward zero and ten to nearest even
take the place of some thirty, for any operands of float32. In formats with float32's exponents what is too small or too
large is so for float32, too. In others sums and left factors are *lifted*: multiplied by the power of two that brings
the format's smallest normal number to float32's. Then underflow is float32's own, and a step looks in the end whether
its result is beyond the largest number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from simfloat.formats import BF16, FP32, Rounding, nearest_even
from simfloat.formats.rounding import MODES as RULES
from simfloat.kernels.compile.intrinsics import shift_left, shift_right
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import add_odd, fma_odd
from simfloat.kernels.elementwise.half import fma_halves, image, number_with_one_nan
from simfloat.kernels.gpu.threads import threads_over
from simfloat.kernels.rounding.grid import Grid, pack_grid
from simfloat.kernels.rounding.one_number import nearest, one_nan, round_in_direction
from simfloat.kernels.sums.orders import StepKind

#: What a GPU does itself, as `kernels/compile/processor.py` says it of a processor: all generations that code is made
#: for do.
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

#: Fused multiply-adds, and kinds of steps, beside those of `kernels/sums/orders.py`.
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


#: Loops between numbers and their images of 16 bits, as in `kernels/elementwise/half.py`.
image_loops = {"halves": conversion_loop(image), "bfloats": conversion_loop(image_of_bfloat)}
number_loops = {"halves": conversion_loop(number_with_one_nan), "bfloats": conversion_loop(bfloat_with_one_nan)}


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

#: Fused steps, by kind; and all kinds of steps that a GPU has beside those of `kernels/sums/orders.py`.
STEPS = {kind: step for kind, (step, _) in _BOTH.items()}
GPU_KINDS = INSTRUCTION_KINDS | {kind: steps for kind, (_, steps) in _BOTH.items()}
