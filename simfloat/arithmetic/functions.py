"""Elementary functions, rounded once."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operations import operate
from simfloat.arithmetic.stream import Stream
from simfloat.formats import Format, Rounding, nearest_even


class Function(Protocol):
    """A function of one array, rounded once to a format."""

    def __call__(
        self,
        x: ArrayLike,
        format: Format | str,
        rounding: Rounding = nearest_even,
        *,
        stream: Stream | None = None,
        observer: Observer | None = None,
    ) -> NDArray[np.floating]:
        """The function of every element of `x`."""


_RULES = """

    Correctly rounded in every deterministic mode for operands that are FP16 or BF16 numbers and formats of at most 16
    bits; otherwise the error is below 0.5 + 2^-20 units in the last place. The bits are the same on every machine.
    Options and errors as for :func:`simfloat.add`.
    """


_ALGEBRAIC = """

    Correctly rounded in every mode for all operands. Options and errors as for :func:`simfloat.add`.
    """


def _function(name: str, meaning: str, rules: str = _RULES) -> Function:
    def function(
        x: ArrayLike,
        format: Format | str,
        rounding: Rounding = nearest_even,
        *,
        stream: Stream | None = None,
        observer: Observer | None = None,
    ) -> NDArray[np.floating]:
        return operate(name, (x,), format, rounding, stream, observer)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning + rules
    return function


exp = _function("exp", "e to the power x.")
log = _function("log", "The natural logarithm of x: -inf at +-0, NaN below zero.")
log2 = _function("log2", "The logarithm of x to base 2: exact at powers of two, -inf at +-0, NaN below zero.")
tanh = _function("tanh", "The hyperbolic tangent of x.")
sigmoid = _function("sigmoid", "1 / (1 + exp(-x)).")
sin = _function("sin", "The sine of x in radians, however large: NaN at infinities.")
cos = _function("cos", "The cosine of x in radians, however large: NaN at infinities.")
erf = _function("erf", "The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.")
reciprocal = _function("reciprocal", "1 / x: infinite with the sign of x at +-0.", _ALGEBRAIC)
rsqrt = _function("rsqrt", "1 / sqrt(x): infinite with the sign of x at +-0, NaN below zero.", _ALGEBRAIC)


def power(
    a: ArrayLike,
    b: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """`a` to the power `b`; operands broadcast. NaN for a negative finite `a` and a finite `b` that is no integer.

    Specials are those of `pow` in IEEE 754-2019, section 9.2.1: 1 if `b` is +-0 or `a` is 1 even where the other is
    NaN, and for -1 to the power +-inf; +-0 to a negative power is infinite, with the sign of `a` if `b` is odd.

    Correctly rounded in every deterministic mode for operands that are FP16 or BF16 numbers and formats of at most 16
    bits; otherwise the error is below 0.5 + 2^-20 units in the last place. Options and errors as for `add`.
    """
    return operate("power", (a, b), format, rounding, stream, observer)
