"""`u`: the rounded arithmetic that a user's operation gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff.reductions import Axes, normalized_axes
from simfloat.formats import Format
from simfloat.formulas.rounded import keepdims_shape
from simfloat.simulation.arithmetic import Arithmetic, Input

#: How the gradient of the result is called among the operands of a product.
GRADIENT = "gradient"


class UserArithmetic:
    """What a user's operation computes with: every result is rounded once, as the policy says where it runs.

    The package's functions are its methods, without format and mode: ``u.add(a, b)``, ``u.fma(a, b, c)``, ``u.exp(x)``.
    They take arrays and numbers, and broadcast; of numbers alone they make a scalar of NumPy's, which goes with arrays
    on any machine. What moves, selects or negates numbers is NumPy's.
    """

    __slots__ = ("_arithmetic", "_inputs")

    def __init__(self, arithmetic: Arithmetic, inputs: Mapping[str, Input]) -> None:
        self._arithmetic, self._inputs = arithmetic, inputs

    @property
    def format(self) -> Format:
        """The format of its results."""
        return self._arithmetic.format

    def round(self, x: ArrayLike) -> NDArray[np.floating]:
        """The numbers themselves, rounded."""
        return self._arithmetic.round(as_operand(x))[()]

    def sum(self, x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> NDArray[np.floating]:
        """The sums over `axis` through the policy's `reduce`, in row-major order; over all axes by default."""
        x = as_operand(x)
        axes = normalized_axes(axis, x.ndim)
        total = self._arithmetic.sum(x, axes)
        return total.reshape(keepdims_shape(x.shape, axes)) if keepdims else total

    def matmul(self, a: ArrayLike, b: ArrayLike, a_is: str, b_is: str) -> NDArray[np.floating]:
        """The products of matrices (..., m, k) and (..., k, n) through the policy's `accumulate`.

        `a_is` and `b_is` are the name of the operation's operand that each of them is, perhaps transposed or reshaped,
        or ``"gradient"``: they say how it is rounded first. Raises ValueError for other names.
        """
        a, b = as_operand(a, "a"), as_operand(b, "b")
        if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
            raise ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {a.shape} and {b.shape}.")
        return self._arithmetic.matmul(a, b, self._input(a_is), self._input(b_is))

    def _input(self, name: str) -> Input:
        if name in self._inputs:
            return self._inputs[name]
        if not self._inputs:
            raise ValueError(f'{self._arithmetic.where} multiplies matrices: declare it with kind="contraction".')
        raise ValueError(
            f"{self._arithmetic.where} rounds operands of matmul as one of {', '.join(self._inputs)}; got {name!r}."
        )

    def __getattr__(self, name: str) -> Callable[..., NDArray[np.floating]]:
        if name not in FUNCTIONS:
            raise AttributeError(
                f"The arithmetic of an operation has no {name!r}. It has round, sum, matmul, {', '.join(FUNCTIONS)}."
            )
        return partial(self._apply, name)

    def _apply(self, name: str, *operands: ArrayLike) -> NDArray[np.floating]:
        names = FUNCTIONS[name].operands
        if len(operands) != len(names):
            raise TypeError(f"{name} takes the operands {', '.join(names)}, got {len(operands)} of them.")
        return self._arithmetic.apply(name, *map(as_operand, operands, names))[()]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FUNCTIONS})
