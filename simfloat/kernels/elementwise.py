"""Loops over the results of an operation: exact ones in float64's round-to-odd, ready to be rounded once; or rounded.

Every operation is a function of three operands and the sign of zero sums; those that need fewer ignore the rest.
Arithmetic has loops of its own here; functions have those of `function_loops.py`.
"""

from __future__ import annotations

import operator
from importlib import import_module
from pkgutil import iter_modules

import numpy as np

from simfloat.kernels import functions, unrounded
from simfloat.kernels.function_loops import BLOCK, FunctionLoops, any_extreme, operand_slice, repeat_scalar
from simfloat.kernels.general import round_pair
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import fma, is_extreme, root
from simfloat.kernels.plain import one_nan
from simfloat.kernels.random import as_word
from simfloat.kernels.unrounded import round_pair_to_odd

#: In float32, so that it takes any type that it meets.
ONE = np.float32(1.0)


def exact_loop(quick, wide):
    """Round-to-odd of the exact result for each element."""

    @kernel
    def loop(a, b, c, sign, out):
        a_repeated, b_repeated, c_repeated = repeat_scalar(a), repeat_scalar(b), repeat_scalar(c)
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, block = operand_slice(c, c_repeated, start, stop), out[start:stop]
            careful = any_extreme(a, x) | any_extreme(b, y) | any_extreme(c, z)
            for i in range(block.size):
                value = quick(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)
                block[i] = value
                careful |= np.int64(value != value)
            if careful != 0:
                for i in range(block.size):
                    if is_extreme(x[i]) or is_extreme(y[i]) or is_extreme(z[i]) or block[i] != block[i]:
                        high, low, exponent = wide(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)
                        block[i] = round_pair_to_odd(high, low, exponent)

    return loop


def paired_loop(wide):
    """Each exact result rounded once from more bits than float64 shows: see general.round_pair."""

    @kernel
    def loop(a, b, c, sign, words, out, grid_numbers):
        grid = unpack_grid(grid_numbers)
        a_repeated, b_repeated, c_repeated, words_repeated = (
            repeat_scalar(a),
            repeat_scalar(b),
            repeat_scalar(c),
            repeat_scalar(words),
        )
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = operand_slice(a, a_repeated, start, stop), operand_slice(b, b_repeated, start, stop)
            z, block = operand_slice(c, c_repeated, start, stop), out[start:stop]
            block_words = operand_slice(words, words_repeated, start, stop)
            for i in range(block.size):
                high, low, exponent = wide(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)
                block[i] = one_nan(round_pair(high, low, exponent, as_word(block_words[i]), grid))

    return loop


def native_loop(function):
    """What the hardware rounds to nearest even itself, in the type of `out`."""

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
    """A function of one operand as one of three and a sign."""
    return scalar(lambda x, y, z, sign: function(x))


def _accept_two(function):
    return scalar(lambda x, y, z, sign: function(x, y))


def _accept_three(function):
    return scalar(lambda x, y, z, sign: function(x, y, z))


def _accept_two_and_sign(function):
    """A function of two operands and the sign of its zero sums."""
    return scalar(lambda x, y, z, sign: function(x, y, sign))


def _accept_three_and_sign(function):
    return scalar(lambda x, y, z, sign: function(x, y, z, sign))


@scalar
def no_quick_formula(x, y, z, sign):
    """The quick formula of functions that have none."""
    return np.nan


def _functions():
    """The pairs of the files of `kernels/functions`, by their names: name -> (how they are called, quick, wide)."""
    found = {}
    for file in iter_modules(functions.__path__):
        module = import_module(f"{functions.__name__}.{file.name}")
        for name, wide in vars(module).items():
            if name.endswith("_wide") and name[0] != "_" and wide.__module__ == module.__name__:
                name = name.removesuffix("_wide")
                called = (_accept_one, _accept_two)[getattr(wide, "py_func", wide).__code__.co_argcount - 1]
                found[name] = called, getattr(module, f"{name}_quick", None), wide
    return found


#: name -> (how its functions are called, quick, wide): the exact result in one float64, and in two with an exponent.
_OPERATIONS = {
    "add": (_accept_two_and_sign, unrounded.add_odd, unrounded.add_wide),
    "subtract": (_accept_two_and_sign, unrounded.subtract_odd, unrounded.subtract_wide),
    "multiply": (_accept_two, unrounded.multiply_odd, unrounded.multiply_wide),
    "divide": (_accept_two, unrounded.divide_odd, unrounded.divide_wide),
    "fma": (_accept_three_and_sign, unrounded.fma_odd, unrounded.fma_wide),
    "sqrt": (_accept_one, unrounded.sqrt_odd, unrounded.sqrt_wide),
    "reciprocal": (_accept_one, unrounded.reciprocal_odd, unrounded.reciprocal_wide),
    **_functions(),
}

#: name -> (quick, wide) as functions of three operands and a sign.
OPERATIONS = {
    name: (no_quick_formula if quick is None else called(quick), called(wide))
    for name, (called, quick, wide) in _OPERATIONS.items()
}

#: name -> the hardware's own operation.
NATIVE = {
    "add": _accept_two(operator.add),
    "subtract": _accept_two(operator.sub),
    "multiply": _accept_two(operator.mul),
    "divide": _accept_two(operator.truediv),
    "fma": _accept_three(fma),
    "sqrt": _accept_one(root),
    "reciprocal": _accept_one(scalar(lambda x: ONE / x)),
}


#: name -> both loops of a function.
FUNCTIONS = {
    name: FunctionLoops(None if quick is no_quick_formula else quick, wide)
    for name, (quick, wide) in OPERATIONS.items()
    if name not in NATIVE
}

#: By the name of the operation. The hardware rounds others to nearest even in float64.
exact_results = {name: exact_loop(*OPERATIONS[name]) for name in NATIVE} | {
    name: loops.write_rounded_to_odd for name, loops in FUNCTIONS.items()
}
paired_results = {name: paired_loop(OPERATIONS[name][1]) for name in NATIVE} | {
    name: loops.write_rounded for name, loops in FUNCTIONS.items()
}
double_results = {name: loops.write_doubles for name, loops in FUNCTIONS.items()}
native_results = {name: native_loop(function) for name, function in NATIVE.items()}
