"""Loops that make the exact results of an operation, in float64's round-to-odd, ready to be rounded once.

Every operation is a function of three operands and the sign of zero sums; those that need fewer ignore the rest.
Operands are flat arrays of one length, or of length 1 for a scalar. A block is computed by the quick formula, which
vectorises; then elements with an extreme operand or a NaN, for which it need not hold, by the careful one.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels import exact
from simfloat.kernels.exact import double_of, odd_of
from simfloat.kernels.functions import (
    error_function,
    exponential,
    gelu,
    logarithm,
    power,
    reciprocal_root,
    trigonometric,
)
from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel, scalar, specialize
from simfloat.kernels.machine import fma, is_extreme
from simfloat.kernels.rounding import one_nan, stochastic_pair

BLOCK = 2048


@scalar
def _repeated(operand):
    """A block of a scalar operand's only element; nothing for a vector."""
    return np.full(BLOCK if operand.size == 1 else 0, operand[0] if operand.size else operand.dtype.type(0))


@scalar
def _part(operand, repeated, start, stop):
    """The elements of an operand from start to stop."""
    return operand[start:stop] if operand.size > 1 else repeated[: stop - start]


@scalar
def _any_extreme(operand, part):
    """1 if an element of the part is extreme, else 0: integers, since an or of booleans would not vectorise."""
    if operand.size == 1:
        return np.int64(is_extreme(operand[0]))
    found = np.int64(0)
    for i in range(part.size):
        found |= np.int64(is_extreme(part[i]))
    return found


def _exact(a, b, c, sign, out):
    """Round-to-odd of the exact result for each element."""
    a_repeated, b_repeated, c_repeated = _repeated(a), _repeated(b), _repeated(c)
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y = _part(a, a_repeated, start, stop), _part(b, b_repeated, start, stop)
        z, block = _part(c, c_repeated, start, stop), out[start:stop]
        careful = _any_extreme(a, x) | _any_extreme(b, y) | _any_extreme(c, z)
        for i in range(block.size):
            value = quick(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)  # noqa: F821
            block[i] = value
            careful |= np.int64(value != value)
        if careful != 0:
            for i in range(block.size):
                if is_extreme(x[i]) or is_extreme(y[i]) or is_extreme(z[i]) or block[i] != block[i]:
                    high, low, exponent = wide(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)  # noqa: F821
                    block[i] = odd_of(high, low, exponent)


def _drawn(a, b, c, sign, words, out, numbers):
    """Each exact result rounded at random from more bits than float64 has: for p + bits + 2 > 53."""
    grid = unpack(numbers)
    a_repeated, b_repeated, c_repeated = _repeated(a), _repeated(b), _repeated(c)
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y = _part(a, a_repeated, start, stop), _part(b, b_repeated, start, stop)
        z, block = _part(c, c_repeated, start, stop), out[start:stop]
        for i in range(block.size):
            high, low, exponent = wide(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)  # noqa: F821
            block[i] = one_nan(stochastic_pair(high, low, exponent, words[start + i], grid))


def _double(a, b, c, sign, out):
    """Each exact result rounded to nearest even in float64."""
    a_repeated, b_repeated, c_repeated = _repeated(a), _repeated(b), _repeated(c)
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y = _part(a, a_repeated, start, stop), _part(b, b_repeated, start, stop)
        z, block = _part(c, c_repeated, start, stop), out[start:stop]
        for i in range(block.size):
            high, low, exponent = wide(np.float64(x[i]), np.float64(y[i]), np.float64(z[i]), sign)  # noqa: F821
            block[i] = double_of(high, low, exponent)


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
    "reciprocal": (lambda x, y, z, s: exact.divide_odd(1.0, x), lambda x, y, z, s: exact.divide_wide(1.0, x)),
    "rsqrt": (lambda x, y, z, s: reciprocal_root.rsqrt_quick(x), lambda x, y, z, s: reciprocal_root.rsqrt_wide(x)),
    "exp": (lambda x, y, z, s: exponential.exp_quick(x), lambda x, y, z, s: exponential.exp_wide(x)),
    "log": (lambda x, y, z, s: logarithm.log_quick(x), lambda x, y, z, s: logarithm.log_wide(x)),
    "log2": (lambda x, y, z, s: logarithm.log2_quick(x), lambda x, y, z, s: logarithm.log2_wide(x)),
    "power": (lambda x, y, z, s: power.power_quick(x, y), lambda x, y, z, s: power.power_wide(x, y)),
    "tanh": (lambda x, y, z, s: exponential.tanh_quick(x), lambda x, y, z, s: exponential.tanh_wide(x)),
    "sigmoid": (lambda x, y, z, s: exponential.sigmoid_quick(x), lambda x, y, z, s: exponential.sigmoid_wide(x)),
    "sin": (lambda x, y, z, s: trigonometric.sin_quick(x), lambda x, y, z, s: trigonometric.sin_wide(x)),
    "cos": (lambda x, y, z, s: trigonometric.cos_quick(x), lambda x, y, z, s: trigonometric.cos_wide(x)),
    "gelu": (lambda x, y, z, s: gelu.gelu_quick(x), lambda x, y, z, s: gelu.gelu_wide(x)),
    "erf": (lambda x, y, z, s: error_function.erf_quick(x), lambda x, y, z, s: error_function.erf_wide(x)),
}

exact_results, drawn_results, double_results = {}, {}, {}
for _name, (_quick, _wide) in OPERATIONS.items():
    _bound = {"quick": scalar(_quick), "wide": scalar(_wide)}
    exact_results[_name] = specialize(_exact, f"exact_{_name}", **_bound)
    drawn_results[_name] = specialize(_drawn, f"drawn_{_name}", **_bound)
    double_results[_name] = specialize(_double, f"double_{_name}", **_bound)
