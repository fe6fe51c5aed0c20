"""The hardware's products and sums on lanes, rounded down, up, toward zero or to nearest even.

A processor rounds as its rounding mode says, or, with vectors of 512 bits on x86, as an instruction says itself. Where
there is a mode, `set_mode` sets it before a loop and `restore_mode` restores it: between the two stands nothing but
operations on lanes, loads and stores, of which none can fail, and whatever else LLVM moves there is exact in any mode.
LLVM knows these operations as ones that read the mode (its constrained intrinsics), and moves none of them across a
write of it. It would take any other arithmetic for a function of its operands, and does take a negation through a
product; so what is rounded up, which is the negative of what is rounded down, is made by turning a sign whose place,
`sign`, is only known when the loop runs. What is rounded to nearest even is LLVM's usual arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from simfloat.kernels.compile import intrinsics, processor
from simfloat.kernels.lanes.lanes import define, same, spread

#: Modes as LLVM's `set.rounding` takes them, and as an instruction of x86 does: the mode, and no exceptions.
DOWN, TO_ZERO, NEAREST = 3, 0, 1
X86_DOWN, X86_UP, X86_TO_ZERO = 9, 10, 11


def set_mode(mode):
    """Let the processor round so, if it has a mode that the operations below follow; what it was."""
    return np.int32(1)


def restore_mode(mode):
    """Let it round as before."""


def fma_down(x, lanes, sums, sign):
    """x * lanes + sums rounded down, where the mode is DOWN; x is a number."""
    return _on_each_lane(_down, x, lanes, sums)


def fma_up(x, lanes, sums, sign):
    """x * lanes + sums rounded up, where the mode is DOWN, too; x is a number."""
    return _on_each_lane(_up, x, lanes, sums)


def fma_to_zero(x, lanes, sums, sign):
    """x * lanes + sums rounded toward zero, where the mode is TO_ZERO; x is a number."""
    return _on_each_lane(_to_zero, x, lanes, sums)


def fma_near(x, lanes, sums, sign):
    """x * lanes + sums rounded to nearest even, where the mode is NEAREST; x is a number."""
    return _on_each_lane(intrinsics.fma, x, lanes, sums)


def multiply_down(x, lanes, sign):
    """x * lanes rounded down."""
    return _on_each_lane(_down, x, lanes, _zeros_beside(x, lanes))


def multiply_up(x, lanes, sign):
    """x * lanes rounded up."""
    return _on_each_lane(_up, x, lanes, _zeros_beside(x, lanes))


def multiply_to_zero(x, lanes, sign):
    """x * lanes rounded toward zero."""
    return _on_each_lane(_to_zero, x, lanes, _zeros_beside(x, lanes))


def multiply_near(x, lanes, sign):
    """x * lanes rounded to nearest even."""
    return x * lanes


def add_down(a, b, sign):
    """a + b rounded down."""
    return _on_each_lane(_down, np.float32(1.0), a, b)


def add_up(a, b, sign):
    """a + b rounded up."""
    return _on_each_lane(_up, np.float32(1.0), a, b)


def add_to_zero(a, b, sign):
    """a + b rounded toward zero."""
    return _on_each_lane(_to_zero, np.float32(1.0), a, b)


def add_near(a, b, sign):
    """a + b rounded to nearest even."""
    return a + b


def _on_each_lane(function: Callable, x: Any, lanes: Any, sums: Any) -> Any:
    with np.errstate(all="ignore"):
        rounded = [function(np.float32(x), p, s) for p, s in zip(lanes, sums, strict=True)]
    return np.array(rounded, np.float32)


def _zeros_beside(x: Any, lanes: Any) -> Any:
    """Zeros whose addition changes no product, a zero with a sign among them."""
    return np.copysign(np.float32(0.0), np.copysign(np.float32(1.0), x) * np.copysign(np.float32(1.0), lanes))


def _down(x: Any, p: Any, s: Any) -> Any:
    near = intrinsics.fma(x, p, s)
    if not (np.isfinite(x) and np.isfinite(p) and np.isfinite(s)):
        return near
    exact = Fraction(float(x)) * Fraction(float(p)) + Fraction(float(s))
    if exact == 0:
        return near if np.signbit(near) or np.signbit(x * p) == np.signbit(s) else np.float32(-0.0)
    # An infinity that comes of finite terms is beyond every number, so rounded down it is the largest finite one; -inf
    # is what such a sum becomes when it is rounded down, and stays.
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


@overload(set_mode, jit_options={"forceinline": True})
def _set_mode(mode):
    if processor.ROUNDS_BY_INSTRUCTION:
        return lambda mode: np.int32(1)

    # The mode is set around the steps of one panel and restored after it, in the thread that sums: in between nothing
    # can fail, and Python's handlers of signals do not run. Everything else computes in the usual environment.
    def change(mode):
        before = _llvm_get_mode()
        _llvm_set_mode(mode)
        return before

    return change


@overload(restore_mode, jit_options={"forceinline": True})
def _restore_mode(mode):
    if processor.ROUNDS_BY_INSTRUCTION:
        return lambda mode: None
    return lambda mode: _llvm_set_mode(mode)


#: Operations as LLVM calls them, among the instructions of x86 too.
X86_NAMES = {"fma": "vfmadd", "fmul": "mul", "fadd": "add"}


def _by_instruction(builder: Any, name: str, vectors: list[Any], mode: int) -> Any:
    """An operation on vectors, rounded as an instruction of x86 says."""
    kind, word = vectors[0].type, ir.IntType(32)
    function = ir.FunctionType(kind, [kind] * len(vectors) + [word])
    # AVX-512 has the rounding in the instruction, {rd-sae} and its like: no mode is set, nothing has to be restored,
    # and neighbouring instructions may round in different directions. These exist for vectors of 512 bits only.
    called = f"llvm.x86.avx512.{X86_NAMES[name]}.ps.512"
    declared = cgutils.get_or_insert_function(builder.module, function, called)
    return builder.call(declared, [*vectors, ir.Constant(word, mode)])


def _by_mode(builder: Any, name: str, vectors: list[Any]) -> Any:
    """An operation on vectors, rounded as the processor's mode says."""
    kind, text, module = vectors[0].type, ir.MetaDataType(), builder.module
    function = ir.FunctionType(kind, [kind] * len(vectors) + [text, text])
    called = f"llvm.experimental.constrained.{name}.v{kind.count}f32"
    # A constrained operation, since LLVM takes its usual arithmetic for a function of the operands alone and moves it
    # across a write of the mode (tried with LLVM 22). No loop reads exceptions, so these are ignored.
    options = [ir.MetaDataString(module, option) for option in ("round.dynamic", "fpexcept.ignore")]
    return builder.call(cgutils.get_or_insert_function(module, function, called), [*vectors, *options])


def _by_mode_upward(builder: Any, name: str, vectors: list[Any], sign: Any) -> Any:
    """An operation on vectors rounded up where the mode is DOWN: the negative of the result for negative terms."""
    # A sum of the negative terms, rounded down and negated, is rounded up, so one mode serves both neighbours and is
    # set once. The sign mask comes from memory at run time: with a constant, LLVM moves a negation through products and
    # quotients, and the upper neighbour becomes the lower one (8 of 524,288 products were wrong).
    negative = (0, 1) if name == "fadd" else (0, 2)
    turned = [builder.fneg(vector) if i in negative else vector for i, vector in enumerate(vectors)]
    images = ir.VectorType(ir.IntType(32), vectors[0].type.count)
    lower = builder.bitcast(_by_mode(builder, name, turned), images)
    return builder.bitcast(builder.xor(lower, spread(builder, sign, images)), vectors[0].type)


def _to_nearest(builder: Any, name: str, vectors: list[Any]) -> Any:
    """An operation on vectors in LLVM's usual arithmetic."""
    if name != "fma":
        return getattr(builder, name)(*vectors)
    kind = vectors[0].type
    function = ir.FunctionType(kind, [kind] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.v{kind.count}f32"), vectors)


def _rounding(name: str, mode: int | None) -> Callable:
    """What makes an operation that is rounded so."""

    def make(builder: Any, vectors: list[Any], others: list[Any]) -> Any:
        if mode is None:
            return _to_nearest(builder, name, vectors)
        if processor.ROUNDS_BY_INSTRUCTION:
            return _by_instruction(builder, name, vectors, mode)
        if mode == X86_UP:
            return _by_mode_upward(builder, name, vectors, *others)
        return _by_mode(builder, name, vectors)

    return make


#: Operations of so many operands, and the functions that round them as `MODES` says.
ROUNDED: tuple[tuple[str, int, tuple[Callable, ...]], ...] = (
    ("fma", 3, (fma_down, fma_up, fma_to_zero, fma_near)),
    ("fmul", 2, (multiply_down, multiply_up, multiply_to_zero, multiply_near)),
    ("fadd", 2, (add_down, add_up, add_to_zero, add_near)),
)
MODES = (X86_DOWN, X86_UP, X86_TO_ZERO, None)
# The last operand of every function is the sign, a plain number. Only operations by the mode that are rounded upward
# read it; the others get it so that `operations.py` need not know which processor it compiles for.
for _name, _count, _functions in ROUNDED:
    for _rounded, _mode in zip(_functions, MODES, strict=True):
        define(_rounded, _count, 1, same, _rounding(_name, _mode))
