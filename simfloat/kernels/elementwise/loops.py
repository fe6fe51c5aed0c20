"""Loops over the results of operations: exact results, ready for a single rounding, or rounded results.

Operands are flat arrays of equal length, or of length 1 for a scalar.

Exact results are computed in one float64 by a fast formula, `quick`, which is vectorised. For extreme operands and NaN,
to which it need not apply, a careful formula, `wide`, computes (high + low) * 2^exponent in parts. The same happens for
all operands if one float64 has too few bits. The formulas of a function are long, and take seconds to compile. Each is
therefore compiled in a single loop, and most programs need only the loop of the fast formula. The loops that round the
parts serve all operations.

Every operation is a function of three operands and the sign of zero sums; operations with fewer operands ignore the
rest. The loops of functions have only the operands of the function, as float64 vectors: with scalars, float32 vectors
and three operands they took four times as long to compile (AMD Zen 3), and ran no faster.
"""

from __future__ import annotations

import operator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.kernels import functions
from simfloat.kernels.compile.intrinsics import fma, is_extreme, root
from simfloat.kernels.compile.jit import kernel, scalar, vector_kernel
from simfloat.kernels.elementwise import exact
from simfloat.kernels.elementwise.double import round_pair_to_double_in_mode
from simfloat.kernels.elementwise.exact import round_pair_to_double, round_pair_to_odd
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import one_nan, round_pair
from simfloat.kernels.rounding.random import as_word

BLOCK = 2048

#: Number of results in parts that are computed before they are rounded, while they are in the caches.
CHUNK = 1 << 14

FLOAT64 = np.dtype(np.float64)


@scalar
def repeat_scalar(operand):
    """Return a block that repeats the only element of a scalar operand; an empty array for a vector."""
    return np.full(BLOCK if operand.size == 1 else 0, operand[0] if operand.size else operand.dtype.type(0))


@scalar
def operand_slice(operand, repeated, start, stop):
    """Return the elements of an operand from start to stop."""
    return operand[start:stop] if operand.size > 1 else repeated[: stop - start]


@scalar
def any_extreme(operand, part):
    """Return 1 if an element of the part is extreme, otherwise 0; an or of integers is vectorised, of booleans not."""
    if operand.size == 1:
        return np.int64(is_extreme(operand[0]))
    extreme = np.int64(0)
    for i in range(part.size):
        extreme |= np.int64(is_extreme(part[i]))
    return extreme


def quick_loop(quick):
    """Return the loop that rounds each exact result of arithmetic to odd by the fast formula.

    Results are NaN if the formula does not apply. The loop returns nonzero if there is a NaN.
    """

    @kernel
    def loop(a, b, c, sign, out):
        a_repeated, b_repeated, c_repeated = repeat_scalar(a), repeat_scalar(b), repeat_scalar(c)
        unknown = np.int64(0)
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, block = operand_slice(c, c_repeated, start, stop), out[start:stop]
            extreme = any_extreme(a, x) | any_extreme(b, y) | any_extreme(c, z)
            unknown |= extreme
            for i in range(block.size):
                value = quick(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)
                block[i] = value
                unknown |= np.int64(value != value)
            if extreme != 0:
                # Results of extreme operands are overwritten after the loop, not skipped in it: a branch would keep the
                # formula from being vectorised, and blocks with such operands are rare.
                for i in range(block.size):
                    if is_extreme(x[i]) | is_extreme(y[i]) | is_extreme(z[i]):
                        block[i] = np.nan
        return unknown

    return loop


def parts_loop(wide):
    """Return the loop of arithmetic for exact results in parts: all high ones, all low ones, all exponents."""

    @kernel
    def loop(a, b, c, sign, parts):
        highs, lows, exponents = _split_parts(parts)
        a_repeated, b_repeated, c_repeated = repeat_scalar(a), repeat_scalar(b), repeat_scalar(c)
        for start in range(0, highs.size, BLOCK):
            stop = min(start + BLOCK, highs.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, high = operand_slice(c, c_repeated, start, stop), highs[start:stop]
            low, exponent = lows[start:stop], exponents[start:stop]
            for i in range(high.size):
                high[i], low[i], exponent[i] = wide(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)

    return loop


def quick_function_loop(quick, operand_count):
    """Return the loop that computes a function by the fast formula, as `quick_loop` does for arithmetic."""
    if operand_count == 1:

        @vector_kernel
        def loop(a, out):
            for i in range(out.size):
                out[i] = quick(a[i])
            return mark_extreme(a, out)

    else:

        @vector_kernel
        def loop(a, b, out):
            for i in range(out.size):
                out[i] = quick(a[i], b[i])
            return mark_extreme(a, out) | mark_extreme(b, out)

    return loop


@scalar
def mark_extreme(operand, out):
    """Replace the results of extreme operands by NaN; return nonzero if a result is NaN."""
    unknown = np.int64(0)
    for i in range(out.size):
        out[i] = np.nan if is_extreme(operand[i]) else out[i]
        unknown |= np.int64(out[i] != out[i])
    return unknown


def function_parts_loop(wide, operand_count):
    """Return the loop that computes a function in parts, as `parts_loop` does for arithmetic."""
    if operand_count == 1:

        @vector_kernel
        def loop(a, parts):
            highs, lows, exponents = _split_parts(parts)
            for i in range(a.size):
                highs[i], lows[i], exponents[i] = wide(a[i])

    else:

        @vector_kernel
        def loop(a, b, parts):
            highs, lows, exponents = _split_parts(parts)
            for i in range(a.size):
                highs[i], lows[i], exponents[i] = wide(a[i], b[i])

    return loop


@kernel
def widen(operand, out):
    """Write a vector, or a scalar as often as necessary, in float64."""
    step = np.int64(operand.size == out.size)
    for i in range(out.size):
        out[i] = operand[i * step]


@scalar
def _split_parts(parts):
    size = parts.size // 3
    return parts[:size], parts[size : 2 * size], parts[2 * size :].view(np.int64)


@kernel
def round_parts(parts, out, words, grid_numbers):
    """Round exact results once from more bits than float64 has: see `one_number.round_pair`."""
    (highs, lows, exponents), grid, words_repeated = (
        _split_parts(parts),
        unpack_grid(grid_numbers),
        repeat_scalar(words),
    )
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        high, low, exponent = highs[start:stop], lows[start:stop], exponents[start:stop]
        block, block_words = out[start:stop], operand_slice(words, words_repeated, start, stop)
        for i in range(block.size):
            block[i] = one_nan(round_pair(high[i], low[i], exponent[i], as_word(block_words[i]), grid))


@kernel
def round_parts_to_odd(parts, out):
    """Round exact results to odd in float64."""
    highs, lows, exponents = _split_parts(parts)
    for i in range(out.size):
        out[i] = round_pair_to_odd(highs[i], lows[i], exponents[i])


@kernel
def round_parts_to_double(parts, out):
    """Round exact results to nearest even in float64."""
    highs, lows, exponents = _split_parts(parts)
    for i in range(out.size):
        out[i] = round_pair_to_double(highs[i], lows[i], exponents[i])


@kernel
def round_parts_to_double_in_mode(parts, out, words, grid_numbers):
    """Round exact results to FP64 in the deterministic mode of the grid; `words` is not read."""
    (highs, lows, exponents), grid = _split_parts(parts), unpack_grid(grid_numbers)
    for i in range(out.size):
        out[i] = one_nan(round_pair_to_double_in_mode(highs[i], lows[i], exponents[i], grid))


class OperationLoops:
    """The exact results of an operation of arithmetic, rounded in four ways, with two loops for this operation."""

    def __init__(self, quick: Any, wide: Any) -> None:
        self.quick, self.parts = quick_loop(quick), parts_loop(wide)

    def write_rounded_to_odd(self, a: NDArray, b: NDArray, c: NDArray, sign: float, out: NDArray) -> None:
        """Write results rounded to odd."""
        if self.quick(a, b, c, sign, out):
            # Few elements need the careful formula. They are gathered, computed and put back, so that this formula has
            # a separate loop, and the fast loop stays short.
            at = np.flatnonzero(np.isnan(out))
            operands: Any = (x if x.size == 1 else x[at] for x in (a, b, c))
            some = np.empty(at.size)
            self._by_parts(round_parts_to_odd, *operands, sign, some)
            out[at] = some

    def write_doubles(self, a: NDArray, b: NDArray, c: NDArray, sign: float, out: NDArray) -> None:
        """Write results rounded to nearest even in float64."""
        self._by_parts(round_parts_to_double, a, b, c, sign, out)

    def write_rounded(
        self, a: NDArray, b: NDArray, c: NDArray, sign: float, words: NDArray, out: NDArray, grid_numbers: NDArray
    ) -> None:
        """Write results rounded once, if that needs more bits than float64 has."""
        self._by_parts(round_parts, a, b, c, sign, out, words, grid_numbers)

    def write_doubles_in_mode(
        self, a: NDArray, b: NDArray, c: NDArray, sign: float, words: NDArray, out: NDArray, grid_numbers: NDArray
    ) -> None:
        """Write results rounded to FP64 in the deterministic mode of the grid."""
        self._by_parts(round_parts_to_double_in_mode, a, b, c, sign, out, words, grid_numbers)

    def _by_parts(self, finish: Any, a: NDArray, b: NDArray, c: NDArray, sign: float, out: NDArray, *how: Any) -> None:
        """Write the results after rounding by `finish`, chunk by chunk."""
        if out.size > CHUNK:
            for start in range(0, out.size, CHUNK):
                stop = min(start + CHUNK, out.size)
                operands: Any = [_operand_chunk(x, start, stop) for x in (a, b, c)]
                words = [_operand_chunk(x, start, stop) for x in how[:1]]
                self._by_parts(finish, *operands, sign, out[start:stop], *words, *how[1:])
            return
        parts = np.empty(3 * out.size)
        self.parts(a, b, c, sign, parts)
        finish(parts, out, *how)


class FunctionLoops(OperationLoops):
    """The exact results of a function, rounded in four ways; its loops have only the operands of the function."""

    def __init__(self, quick: Any, wide: Any, operand_count: int) -> None:
        self.operand_count = operand_count
        self._quick: Any = None if quick is None else quick_function_loop(quick, operand_count)
        self._parts = function_parts_loop(wide, operand_count)

    def write_rounded_to_odd(self, a: NDArray, b: NDArray, c: NDArray, sign: float, out: NDArray) -> None:
        """Write results rounded to odd, chunk by chunk."""
        if self._quick is None:
            self._by_parts(round_parts_to_odd, a, b, c, sign, out)
        elif out.size <= CHUNK:
            super().write_rounded_to_odd(a, b, c, sign, out)
        else:
            for start in range(0, out.size, CHUNK):
                stop = min(start + CHUNK, out.size)
                x, y, z = (_operand_chunk(operand, start, stop) for operand in (a, b, c))
                super().write_rounded_to_odd(x, y, z, sign, out[start:stop])

    def quick(self, a: NDArray, b: NDArray, c: NDArray, sign: float, out: NDArray) -> int:
        """Write results by the fast formula, or NaN; return nonzero if there is a NaN."""
        return self._quick(*self._operands(a, b, out.size), out)

    def parts(self, a: NDArray, b: NDArray, c: NDArray, sign: float, parts: NDArray) -> None:
        """Write results in parts."""
        self._parts(*self._operands(a, b, parts.size // 3), parts)

    def _operands(self, a: NDArray, b: NDArray, size: int) -> list[NDArray]:
        return [_as_doubles(operand, size) for operand in (a, b)[: self.operand_count]]


def _as_doubles(operand: NDArray, size: int) -> NDArray:
    if operand.dtype is FLOAT64 and operand.size == size:
        return operand
    doubles = np.empty(size)
    widen(operand, doubles)
    return doubles


def _operand_chunk(operand: NDArray, start: int, stop: int) -> NDArray:
    return operand if operand.size == 1 else operand[start:stop]


#: In float32, so that an operation with it keeps the type of the other operand.
ONE = np.float32(1.0)


@scalar
def is_same_memory(out, operand):
    """Return True if two vectors begin at the same place."""
    return out.ctypes.data == operand.ctypes.data


def native_loop(function):
    """Return the loop of an operation that the hardware rounds to nearest even, in the type of `out`."""

    @kernel
    def loop(a, b, c, out):
        a_step, b_step, c_step = (
            np.int64(a.size == out.size),
            np.int64(b.size == out.size),
            np.int64(c.size == out.size),
        )
        for i in range(out.size):
            x, y, z = out.dtype.type(a[i * a_step]), out.dtype.type(b[i * b_step]), out.dtype.type(c[i * c_step])
            out[i] = one_nan(function(x, y, z, 1.0))

    return loop


def _accept_one(function):
    """Return a function of three operands and a sign, from a function of one operand."""
    return scalar(lambda x, y, z, sign: function(x))


def _accept_two(function):
    return scalar(lambda x, y, z, sign: function(x, y))


def _accept_three(function):
    return scalar(lambda x, y, z, sign: function(x, y, z))


def _accept_two_and_sign(function):
    """Return a function of three operands and a sign, from a function of two and the sign of its zero sums."""
    return scalar(lambda x, y, z, sign: function(x, y, sign))


def _accept_three_and_sign(function):
    return scalar(lambda x, y, z, sign: function(x, y, z, sign))


@scalar
def no_quick_formula(x, y, z, sign):
    """Return NaN, for functions without a fast formula."""
    return np.nan


def _functions():
    """Return the formulas of the files in `kernels/functions`: name -> (number of operands, quick, wide)."""
    pairs = {}
    for file in iter_modules(functions.__path__):
        module = import_module(f"{functions.__name__}.{file.name}")
        for name, wide in vars(module).items():
            if name.endswith("_wide") and name[0] != "_" and wide.__module__ == module.__name__:
                name = name.removesuffix("_wide")
                operand_count = getattr(wide, "py_func", wide).__code__.co_argcount
                pairs[name] = operand_count, getattr(module, f"{name}_quick", None), wide
    return pairs


#: name -> (adapter, quick, wide) for arithmetic: `quick` returns the exact result as one float64, rounded to odd, and
#: `wide` as two float64 values with an exponent.
_ARITHMETIC = {
    "add": (_accept_two_and_sign, exact.add_odd, exact.add_wide),
    "subtract": (_accept_two_and_sign, exact.subtract_odd, exact.subtract_wide),
    "multiply": (_accept_two, exact.multiply_odd, exact.multiply_wide),
    "divide": (_accept_two, exact.divide_odd, exact.divide_wide),
    "fma": (_accept_three_and_sign, exact.fma_odd, exact.fma_wide),
    "sqrt": (_accept_one, exact.sqrt_odd, exact.sqrt_wide),
    "reciprocal": (_accept_one, exact.reciprocal_odd, exact.reciprocal_wide),
}
_FUNCTIONS = _functions()

#: name -> (quick, wide) as functions of three operands and a sign.
OPERATIONS = {name: (called(quick), called(wide)) for name, (called, quick, wide) in _ARITHMETIC.items()}
for name, (operand_count, quick, wide) in _FUNCTIONS.items():
    called = (_accept_one, _accept_two)[operand_count - 1]
    OPERATIONS[name] = no_quick_formula if quick is None else called(quick), called(wide)

#: name -> the operation of the hardware.
NATIVE = {
    "add": _accept_two(operator.add),
    "subtract": _accept_two(operator.sub),
    "multiply": _accept_two(operator.mul),
    "divide": _accept_two(operator.truediv),
    "fma": _accept_three(fma),
    "sqrt": _accept_one(root),
    "reciprocal": _accept_one(scalar(lambda x: ONE / x)),
}

#: The operations that FP64 may round in every mode: the two parts of their exact results decide each rounding.
IN_EVERY_MODE = (*NATIVE, "rsqrt", "cbrt", "hypot")

#: name -> both loops of an operation.
OPERATION_LOOPS: dict[str, OperationLoops] = {
    **{name: OperationLoops(*OPERATIONS[name]) for name in _ARITHMETIC},
    **{name: FunctionLoops(quick, wide, operand_count) for name, (operand_count, quick, wide) in _FUNCTIONS.items()},
}

#: By the name of the operation. The hardware rounds the operations without `double_results` to nearest even in float64.
exact_results = {name: loops.write_rounded_to_odd for name, loops in OPERATION_LOOPS.items()}
paired_results = {name: loops.write_rounded for name, loops in OPERATION_LOOPS.items()}
double_results = {name: loops.write_doubles for name, loops in OPERATION_LOOPS.items() if name not in NATIVE}
doubles_in_mode = {name: OPERATION_LOOPS[name].write_doubles_in_mode for name in IN_EVERY_MODE}
native_results = {name: native_loop(function) for name, function in NATIVE.items()}
