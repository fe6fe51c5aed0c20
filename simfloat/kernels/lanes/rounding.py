"""Products and sums of the hardware on lanes, rounded down, up, toward zero or to nearest even.

A processor rounds by its rounding mode; x86 vectors of 512 bits can also take the rounding from the instruction. If the
mode is used, `set_mode` sets it before a loop, and `restore_mode` restores it. Between the two calls there are only
operations on lanes, loads and stores, none of which can fail; anything else that LLVM moves there is exact in every
mode.

These operations are LLVM's constrained intrinsics, which read the mode, so LLVM does not move them across a change of
the mode. LLVM assumes that other arithmetic depends on its operands only, and it moves a negation through a product.
Rounding up is the negative of rounding down of the negated operands; the negation flips a sign bit, `sign`, that is
only known at run time. Rounding to nearest even uses ordinary LLVM arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from simfloat.kernels.compile import intrinsics, processor
from simfloat.kernels.compile.jit import overload
from simfloat.kernels.lanes.lanes import define, same, spread

#: Rounding modes as arguments of LLVM's `set.rounding`, and of x86 instructions: the mode, and no exceptions.
DOWN, TO_ZERO, NEAREST = 3, 0, 1
X86_DOWN, X86_UP, X86_TO_ZERO = 9, 10, 11


def set_mode(mode):
    """Set the rounding mode of the processor, if the operations below depend on it; return the previous mode."""
    return np.int32(1)


def restore_mode(mode):
    """Restore the previous rounding mode."""


def fma_down(x, lanes, sums, sign):
    """Return x * lanes + sums rounded down; the mode must be DOWN; x is a scalar."""
    return _on_each_lane(_down, x, lanes, sums)


def fma_up(x, lanes, sums, sign):
    """Return x * lanes + sums rounded up; the mode must also be DOWN; x is a scalar."""
    return _on_each_lane(_up, x, lanes, sums)


def fma_to_zero(x, lanes, sums, sign):
    """Return x * lanes + sums rounded toward zero; the mode must be TO_ZERO; x is a scalar."""
    return _on_each_lane(_to_zero, x, lanes, sums)


def fma_near(x, lanes, sums, sign):
    """Return x * lanes + sums rounded to nearest even; the mode must be NEAREST; x is a scalar."""
    return _on_each_lane(intrinsics.fma, x, lanes, sums)


def multiply_down(x, lanes, sign):
    """Return x * lanes rounded down."""
    return _on_each_lane(_down, x, lanes, _zeros_beside(x, lanes))


def multiply_up(x, lanes, sign):
    """Return x * lanes rounded up."""
    return _on_each_lane(_up, x, lanes, _zeros_beside(x, lanes))


def multiply_to_zero(x, lanes, sign):
    """Return x * lanes rounded toward zero."""
    return _on_each_lane(_to_zero, x, lanes, _zeros_beside(x, lanes))


def multiply_near(x, lanes, sign):
    """Return x * lanes rounded to nearest even."""
    return x * lanes


def add_down(a, b, sign):
    """Return a + b rounded down."""
    return _on_each_lane(_down, np.float32(1.0), a, b)


def add_up(a, b, sign):
    """Return a + b rounded up."""
    return _on_each_lane(_up, np.float32(1.0), a, b)


def add_to_zero(a, b, sign):
    """Return a + b rounded toward zero."""
    return _on_each_lane(_to_zero, np.float32(1.0), a, b)


def add_near(a, b, sign):
    """Return a + b rounded to nearest even."""
    return a + b


def _on_each_lane(function: Callable, x: Any, lanes: Any, sums: Any) -> Any:
    with np.errstate(all="ignore"):
        rounded = [function(np.float32(x), p, s) for p, s in zip(lanes, sums, strict=True)]
    return np.array(rounded, np.float32)


def _zeros_beside(x: Any, lanes: Any) -> Any:
    """Return zeros with the signs of the products: adding them changes no product, not even a zero."""
    return np.copysign(np.float32(0.0), np.copysign(np.float32(1.0), x) * np.copysign(np.float32(1.0), lanes))


def _down(x: Any, p: Any, s: Any) -> Any:
    near = intrinsics.fma(x, p, s)
    if not (np.isfinite(x) and np.isfinite(p) and np.isfinite(s)):
        return near
    exact = Fraction(float(x)) * Fraction(float(p)) + Fraction(float(s))
    if exact == 0:
        return near if np.signbit(near) or np.signbit(x * p) == np.signbit(s) else np.float32(-0.0)
    # Finite terms can give +inf only by overflow; rounded down, the result is the largest finite number. A result of
    # -inf is correct for an overflow that is rounded down, and stays.
    above = near == np.inf or (near != -np.inf and Fraction(float(near)) > exact)
    return np.nextafter(near, np.float32(-np.inf)) if above else near


def _up(x: Any, p: Any, s: Any) -> Any:
    return -_down(-x, p, -s)


def _to_zero(x: Any, p: Any, s: Any) -> Any:
    down, up = _down(x, p, s), _up(x, p, s)
    return up if np.signbit(up) or np.isnan(up) else down


@intrinsic
def _llvm_get_mode(typing_context):
    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(32), [])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.get.rounding"), [])

    return types.int32(), generate


@intrinsic
def _llvm_set_mode(typing_context, mode):
    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.set.rounding"), arguments)
        return context.get_dummy_value()

    return types.void(types.int32), generate


@overload(set_mode)
def _set_mode(mode):
    if processor.ROUNDS_BY_INSTRUCTION:
        return lambda mode: np.int32(1)

    # The mode is set around the steps of one panel and restored after it, in the thread that computes the sums: nothing
    # in between can fail, and Python's signal handlers do not run. Everything else runs in the usual environment.
    def change(mode):
        before = _llvm_get_mode()
        _llvm_set_mode(mode)
        return before

    return change


@overload(restore_mode)
def _restore_mode(mode):
    if processor.ROUNDS_BY_INSTRUCTION:
        return lambda mode: None
    return lambda mode: _llvm_set_mode(mode)


#: Names of operations in LLVM, and of the corresponding x86 instructions.
X86_NAMES = {"fma": "vfmadd", "fmul": "mul", "fadd": "add"}


def _by_instruction(builder: Any, name: str, vectors: list[Any], mode: int) -> Any:
    """Generate an operation on vectors that an x86 instruction rounds in its embedded mode."""
    kind, word = vectors[0].type, ir.IntType(32)
    function = ir.FunctionType(kind, [kind] * len(vectors) + [word])
    # In AVX-512 the rounding is part of the instruction ({rd-sae} etc.): no mode is set or restored, and neighbouring
    # instructions may round in different directions. These instructions exist only for vectors of 512 bits.
    called = f"llvm.x86.avx512.{X86_NAMES[name]}.ps.512"
    declared = cgutils.get_or_insert_function(builder.module, function, called)
    return builder.call(declared, [*vectors, ir.Constant(word, mode)])


def _by_mode(builder: Any, name: str, vectors: list[Any]) -> Any:
    """Generate an operation on vectors, rounded in the mode of the processor."""
    kind, text, module = vectors[0].type, ir.MetaDataType(), builder.module
    function = ir.FunctionType(kind, [kind] * len(vectors) + [text, text])
    called = f"llvm.experimental.constrained.{name}.v{kind.count}f32"
    # A constrained operation: LLVM assumes that ordinary arithmetic depends on its operands only, and moves it across a
    # change of the mode (tried with LLVM 22). No loop reads exceptions, so they are ignored.
    options = [ir.MetaDataString(module, option) for option in ("round.dynamic", "fpexcept.ignore")]
    return builder.call(cgutils.get_or_insert_function(module, function, called), [*vectors, *options])


def _by_mode_upward(builder: Any, name: str, vectors: list[Any], sign: Any) -> Any:
    """Generate an operation on vectors that is rounded up in mode DOWN, as the negative result of negated terms."""
    # The sum of the negated terms is rounded down and negated, which rounds it up. One mode thus serves both neighbours
    # and is set once. The sign mask is read from memory at run time: with a constant, LLVM moves a negation through
    # products and quotients, and the upper neighbour becomes the lower one (8 of 524,288 products were wrong).
    negative = (0, 1) if name == "fadd" else (0, 2)
    turned = [builder.fneg(vector) if i in negative else vector for i, vector in enumerate(vectors)]
    images = ir.VectorType(ir.IntType(32), vectors[0].type.count)
    lower = builder.bitcast(_by_mode(builder, name, turned), images)
    return builder.bitcast(builder.xor(lower, spread(builder, sign, images)), vectors[0].type)


def _to_nearest(builder: Any, name: str, vectors: list[Any]) -> Any:
    """Generate an operation on vectors in ordinary LLVM arithmetic."""
    if name != "fma":
        return getattr(builder, name)(*vectors)
    kind = vectors[0].type
    function = ir.FunctionType(kind, [kind] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.v{kind.count}f32"), vectors)


def _rounding(name: str, mode: int | None) -> Callable:
    """Return the function that generates an operation with this rounding."""

    def make(builder: Any, vectors: list[Any], others: list[Any]) -> Any:
        if mode is None:
            return _to_nearest(builder, name, vectors)
        if processor.ROUNDS_BY_INSTRUCTION:
            return _by_instruction(builder, name, vectors, mode)
        if mode == X86_UP:
            return _by_mode_upward(builder, name, vectors, *others)
        return _by_mode(builder, name, vectors)

    return make


#: Operations with their number of operands, and the functions that round them in the order of `MODES`.
ROUNDED: tuple[tuple[str, int, tuple[Callable, ...]], ...] = (
    ("fma", 3, (fma_down, fma_up, fma_to_zero, fma_near)),
    ("fmul", 2, (multiply_down, multiply_up, multiply_to_zero, multiply_near)),
    ("fadd", 2, (add_down, add_up, add_to_zero, add_near)),
)
MODES = (X86_DOWN, X86_UP, X86_TO_ZERO, None)
# The last operand of every function is the sign, a scalar. Only operations that round upward by the mode read it. The
# others also accept it, so that `operations.py` does not depend on the target processor.
for _name, _count, _functions in ROUNDED:
    for _rounded, _mode in zip(_functions, MODES, strict=True):
        define(_rounded, _count, 1, same, _rounding(_name, _mode))
