"""Loops over the results of an operation: exact ones in float64's round-to-odd, ready to be rounded once; or rounded.

Every operation is a function of three operands and the sign of zero sums; those that need fewer ignore the rest.
Arithmetic has loops of its own here; functions have those of `function_loops.py`.
"""

from __future__ import annotations

import operator

import numpy as np

from simfloat.kernels import unrounded
from simfloat.kernels.function_loops import BLOCK, FunctionLoops, any_extreme, part, repeated
from simfloat.kernels.functions import (
    arcs,
    error_function,
    exponential,
    gamma,
    gelu,
    hurwitz_zeta,
    hyperbolic,
    inverse_error,
    inverse_hyperbolic,
    logarithm,
    modified_bessel,
    power,
    reciprocal_root,
    scaled_tail,
    shifted_logarithm,
    trigonometric,
)
from simfloat.kernels.general import round_pair
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel, scalar
from simfloat.kernels.machine import fma, is_extreme, root
from simfloat.kernels.plain import one_nan
from simfloat.kernels.random import as_word
from simfloat.kernels.unrounded import odd_of

#: In float32, so that it takes any type that it meets.
ONE = np.float32(1.0)


def exact_loop(quick, wide):
    """Round-to-odd of the exact result for each element."""

    @kernel
    def loop(a, b, c, sign, out):
        a_repeated, b_repeated, c_repeated = repeated(a), repeated(b), repeated(c)
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = part(a, a_repeated, start, stop), part(b, b_repeated, start, stop)
            z, block = part(c, c_repeated, start, stop), out[start:stop]
            careful = any_extreme(a, x) | any_extreme(b, y) | any_extreme(c, z)
            for i in range(block.size):
                value = quick(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)
                block[i] = value
                careful |= np.int64(value != value)
            if careful != 0:
                for i in range(block.size):
                    if is_extreme(x[i]) or is_extreme(y[i]) or is_extreme(z[i]) or block[i] != block[i]:
                        high, low, exponent = wide(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)
                        block[i] = odd_of(high, low, exponent)

    return loop


def paired_loop(wide):
    """Each exact result rounded once from more bits than float64 shows: see general.round_pair."""

    @kernel
    def loop(a, b, c, sign, words, out, numbers):
        grid = unpack(numbers)
        a_repeated, b_repeated, c_repeated, words_repeated = repeated(a), repeated(b), repeated(c), repeated(words)
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            x, y = part(a, a_repeated, start, stop), part(b, b_repeated, start, stop)
            z, block = part(c, c_repeated, start, stop), out[start:stop]
            block_words = part(words, words_repeated, start, stop)
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


def _of_one(function):
    """A function of one operand as one of three and a sign."""
    return scalar(lambda x, y, z, sign: function(x))


def _of_two(function):
    return scalar(lambda x, y, z, sign: function(x, y))


def _of_three(function):
    return scalar(lambda x, y, z, sign: function(x, y, z))


def _sum_of_two(function):
    """A function of two operands and the sign of its zero sums."""
    return scalar(lambda x, y, z, sign: function(x, y, sign))


def _sum_of_three(function):
    return scalar(lambda x, y, z, sign: function(x, y, z, sign))


@scalar
def carefully(x):
    """The quick formula of functions that have none."""
    return np.nan


@scalar
def _carefully_of_two(x, y):
    return np.nan


#: name -> (how its functions are called, quick, wide): the exact result in one float64, and in two with an exponent.
_OPERATIONS = {
    "add": (_sum_of_two, unrounded.add_odd, unrounded.add_wide),
    "subtract": (_sum_of_two, unrounded.subtract_odd, unrounded.subtract_wide),
    "multiply": (_of_two, unrounded.multiply_odd, unrounded.multiply_wide),
    "divide": (_of_two, unrounded.divide_odd, unrounded.divide_wide),
    "fma": (_sum_of_three, unrounded.fma_odd, unrounded.fma_wide),
    "sqrt": (_of_one, unrounded.sqrt_odd, unrounded.sqrt_wide),
    "reciprocal": (_of_one, unrounded.reciprocal_odd, unrounded.reciprocal_wide),
    "rsqrt": (_of_one, reciprocal_root.rsqrt_quick, reciprocal_root.rsqrt_wide),
    "exp": (_of_one, exponential.exp_quick, exponential.exp_wide),
    "log": (_of_one, logarithm.log_quick, logarithm.log_wide),
    "log2": (_of_one, logarithm.log2_quick, logarithm.log2_wide),
    "log10": (_of_one, logarithm.log10_quick, logarithm.log10_wide),
    "power": (_of_two, power.power_quick, power.power_wide),
    "tanh": (_of_one, exponential.tanh_quick, exponential.tanh_wide),
    "expm1": (_of_one, hyperbolic.expm1_quick, hyperbolic.expm1_wide),
    "log1p": (_of_one, shifted_logarithm.log1p_quick, shifted_logarithm.log1p_wide),
    "sinh": (_of_one, hyperbolic.sinh_quick, hyperbolic.sinh_wide),
    "cosh": (_of_one, hyperbolic.cosh_quick, hyperbolic.cosh_wide),
    "asinh": (_of_one, inverse_hyperbolic.asinh_quick, inverse_hyperbolic.asinh_wide),
    "acosh": (_of_one, inverse_hyperbolic.acosh_quick, inverse_hyperbolic.acosh_wide),
    "atanh": (_of_one, inverse_hyperbolic.atanh_quick, inverse_hyperbolic.atanh_wide),
    "sigmoid": (_of_one, exponential.sigmoid_quick, exponential.sigmoid_wide),
    "sin": (_of_one, trigonometric.sin_quick, trigonometric.sin_wide),
    "cos": (_of_one, trigonometric.cos_quick, trigonometric.cos_wide),
    "tan": (_of_one, trigonometric.tan_quick, trigonometric.tan_wide),
    "asin": (_of_one, arcs.asin_quick, arcs.asin_wide),
    "acos": (_of_one, arcs.acos_quick, arcs.acos_wide),
    "atan": (_of_one, arcs.atan_quick, arcs.atan_wide),
    "atan2": (_of_two, arcs.atan2_quick, arcs.atan2_wide),
    "gelu": (_of_one, gelu.gelu_quick, gelu.gelu_wide),
    "erf": (_of_one, error_function.erf_quick, error_function.erf_wide),
    "erfc": (_of_one, error_function.erfc_quick, error_function.erfc_wide),
    "erfcx": (_of_one, carefully, scaled_tail.erfcx_wide),
    "erfinv": (_of_one, carefully, inverse_error.erfinv_wide),
    "ndtri": (_of_one, carefully, inverse_error.ndtri_wide),
    "log_ndtr": (_of_one, carefully, scaled_tail.log_ndtr_wide),
    "lgamma": (_of_one, carefully, gamma.lgamma_wide),
    "digamma": (_of_one, carefully, gamma.digamma_wide),
    "zeta": (_of_two, _carefully_of_two, hurwitz_zeta.zeta_wide),
    "i0": (_of_one, carefully, modified_bessel.i0_wide),
    "i0e": (_of_one, carefully, modified_bessel.i0e_wide),
    "i1": (_of_one, carefully, modified_bessel.i1_wide),
    "i1e": (_of_one, carefully, modified_bessel.i1e_wide),
}

#: name -> (quick, wide) as functions of three operands and a sign.
OPERATIONS = {name: (called(quick), called(wide)) for name, (called, quick, wide) in _OPERATIONS.items()}

#: name -> the hardware's own operation.
NATIVE = {
    "add": _of_two(operator.add),
    "subtract": _of_two(operator.sub),
    "multiply": _of_two(operator.mul),
    "divide": _of_two(operator.truediv),
    "fma": _of_three(fma),
    "sqrt": _of_one(root),
    "reciprocal": _of_one(scalar(lambda x: ONE / x)),
}


#: name -> both loops of a function.
FUNCTIONS = {
    name: FunctionLoops(None if _OPERATIONS[name][1] in (carefully, _carefully_of_two) else quick, wide)
    for name, (quick, wide) in OPERATIONS.items()
    if name not in NATIVE
}

#: By the name of the operation. The hardware rounds others to nearest even in float64.
exact_results = {name: exact_loop(*OPERATIONS[name]) for name in NATIVE} | {
    name: loops.exact for name, loops in FUNCTIONS.items()
}
paired_results = {name: paired_loop(OPERATIONS[name][1]) for name in NATIVE} | {
    name: loops.paired for name, loops in FUNCTIONS.items()
}
double_results = {name: loops.double for name, loops in FUNCTIONS.items()}
native_results = {name: native_loop(function) for name, function in NATIVE.items()}
