"""Elementary functions, rounded once."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operations import operate
from simfloat.arithmetic.stream import BitStream
from simfloat.formats import Format, Rounding, nearest_even


class Function(Protocol):
    """A function of one array, rounded once to a format."""

    def __call__(
        self,
        x: ArrayLike,
        format: Format | str,
        rounding: Rounding = nearest_even,
        *,
        stream: BitStream | None = None,
        observer: Observer | None = None,
    ) -> NDArray[np.floating]:
        """The function of every element of `x`."""


_RULES = """

    Correctly rounded in every deterministic mode for operands that are FP16 or BF16 numbers and formats of at most 16
    bits; otherwise the error is below 0.5 + 2^-20 units in the last place. The bits are the same on every machine.
    Options and errors as for :func:`simfloat.add`.
    """


def _function(name: str, meaning: str) -> Function:
    def function(
        x: ArrayLike,
        format: Format | str,
        rounding: Rounding = nearest_even,
        *,
        stream: BitStream | None = None,
        observer: Observer | None = None,
    ) -> NDArray[np.floating]:
        return operate(name, (x,), format, rounding, stream, observer)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning + _RULES
    return function


exp = _function("exp", "e to the power x.")
log = _function("log", "The natural logarithm of x: -inf at +-0, NaN below zero.")
tanh = _function("tanh", "The hyperbolic tangent of x.")
sigmoid = _function("sigmoid", "1 / (1 + exp(-x)).")
