"""Loops that make the exact results of an operation, in float64's round-to-odd, ready to be rounded once.

Every operation is a function of three operands and the sign of zero sums; those that need fewer ignore the rest.
Operands are flat arrays of one length, or of length 1 for a scalar. Blocks whose operands are moderate, and float32
operands mostly, take the quick formula, which vectorises; blocks with an extreme operand or a NaN the careful one.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels import exact, functions
from simfloat.kernels.exact import double_of, odd_of
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel, scalar, specialize
from simfloat.kernels.machine import fma, is_extreme
from simfloat.kernels.rounding import one_nan, stochastic_pair

BLOCK = 256


@scalar
def _load(operand, start, buffer):
    """Fill the buffer with an operand's elements from `start` on; returns whether one of them is extreme."""
    extreme = False
    if operand.size > 1:
        for i in range(min(BLOCK, operand.size - start)):
            x = operand[start + i]
            buffer[i] = x
            extreme |= is_extreme(x)
    elif start == 0:
        for i in range(BLOCK):
            buffer[i] = operand[0]
    return extreme | is_extreme(operand[0])


def _exact(a, b, c, sign, out):
    """Round-to-odd of the exact result for each element."""
    x, y, z = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, out.size, BLOCK):
        extreme = _load(a, start, x) | _load(b, start, y) | _load(c, start, z)
        block = out[start : start + BLOCK]
        for i in range(block.size):
            value = quick(x[i], y[i], z[i], sign)  # noqa: F821
            block[i] = value
            extreme |= value != value
        if extreme:
            for i in range(block.size):
                high, low, exponent = wide(x[i], y[i], z[i], sign)  # noqa: F821
                block[i] = odd_of(high, low, exponent)


def _drawn(a, b, c, sign, words, out, numbers):
    """Each exact result rounded at random from more bits than float64 has: for p + bits + 2 > 53."""
    grid = unpack(numbers)
    x, y, z = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, out.size, BLOCK):
        _load(a, start, x), _load(b, start, y), _load(c, start, z)
        for i in range(min(BLOCK, out.size - start)):
            high, low, exponent = wide(x[i], y[i], z[i], sign)  # noqa: F821
            out[start + i] = one_nan(stochastic_pair(high, low, exponent, words[start + i], grid))


def _double(a, b, c, sign, out):
    """Each exact result rounded to nearest even in float64."""
    x, y, z = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, out.size, BLOCK):
        _load(a, start, x), _load(b, start, y), _load(c, start, z)
        for i in range(min(BLOCK, out.size - start)):
            high, low, exponent = wide(x[i], y[i], z[i], sign)  # noqa: F821
            out[start + i] = double_of(high, low, exponent)


@kernel
def native_fma(a, b, c, out):
    """a * b + c as the hardware rounds it, in the type of `out`."""
    a_step, b_step, c_step = np.int64(a.size == out.size), np.int64(b.size == out.size), np.int64(c.size == out.size)
    for i in range(out.size):
        out[i] = fma(out.dtype.type(a[i * a_step]), out.dtype.type(b[i * b_step]), out.dtype.type(c[i * c_step]))


#: name -> (quick, wide): the exact result in one float64, and in two with an exponent.
OPERATIONS = {
    "add": (lambda x, y, z, s: exact.add_odd(x, y, s), lambda x, y, z, s: exact.add_wide(x, y, s)),
    "subtract": (lambda x, y, z, s: exact.add_odd(x, -y, s), lambda x, y, z, s: exact.add_wide(x, -y, s)),
    "multiply": (lambda x, y, z, s: exact.multiply_odd(x, y), lambda x, y, z, s: exact.multiply_wide(x, y)),
    "divide": (lambda x, y, z, s: exact.divide_odd(x, y), lambda x, y, z, s: exact.divide_wide(x, y)),
    "fma": (lambda x, y, z, s: exact.fma_odd(x, y, z, s), lambda x, y, z, s: exact.fma_wide(x, y, z, s)),
    "sqrt": (lambda x, y, z, s: exact.sqrt_odd(x), lambda x, y, z, s: exact.sqrt_wide(x)),
    "exp": (lambda x, y, z, s: functions.exp_quick(x), lambda x, y, z, s: functions.exp_wide(x)),
    "log": (lambda x, y, z, s: functions.log_quick(x), lambda x, y, z, s: functions.log_wide(x)),
    "tanh": (lambda x, y, z, s: functions.tanh_quick(x), lambda x, y, z, s: functions.tanh_wide(x)),
    "sigmoid": (lambda x, y, z, s: functions.sigmoid_quick(x), lambda x, y, z, s: functions.sigmoid_wide(x)),
}

exact_results, drawn_results, double_results = {}, {}, {}
for _name, (_quick, _wide) in OPERATIONS.items():
    _bound = {"quick": scalar(_quick), "wide": scalar(_wide)}
    exact_results[_name] = specialize(_exact, f"exact_{_name}", **_bound)
    drawn_results[_name] = specialize(_drawn, f"drawn_{_name}", **_bound)
    double_results[_name] = specialize(_double, f"double_{_name}", **_bound)
