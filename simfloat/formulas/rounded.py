"""The arithmetic that formulas compute with, as both front ends have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.simulation.arithmetic import Arithmetic

#: (arithmetic, gradient of the result, result, *operands) -> gradient of one operand
Slope = Callable[..., NDArray]


class Rounded(Protocol):
    """Operations on arrays whose every result is rounded once. Numbers are arrays without axes, exact in float64.

    `simulation.arithmetic.Arithmetic` rounds all of them at one place, `simulation.inside.Inside` each at its own.
    """

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """An operation of the catalog on numbers, elementwise."""

    def add(self, a: NDArray, b: NDArray) -> NDArray:
        """a + b."""

    def subtract(self, a: NDArray, b: NDArray) -> NDArray:
        """a - b."""

    def multiply(self, a: NDArray, b: NDArray) -> NDArray:
        """a * b."""

    def divide(self, a: NDArray, b: NDArray) -> NDArray:
        """a / b."""

    def round(self, x: NDArray, operation: str, *sources: NDArray) -> NDArray:
        """What the operation of this name finds among its `sources` without rounding, rounded as that step."""

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes`, which are dropped, through the policy's `reduce`."""

    def running_sums(self, rows: NDArray) -> NDArray:
        """The sums of all rows (n, columns) up to each, through the policy's `reduce`."""

    def mean(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes` divided by the number of terms."""

    def for_operation(self, operation: str) -> Arithmetic:
        """The arithmetic of the step of this name, for what is none of the operations here."""

    def with_format_of(self, x: NDArray, *sources: NDArray) -> NDArray:
        """`x` itself, a new array of numbers that were those of `sources`. Views need no such call."""

    def composite(self, name: str, formula: Callable[..., NDArray], *operands: NDArray, **options: Any) -> NDArray:
        """The result of another formula, under the name by which policies know it."""


def number(x: float) -> NDArray[np.float64]:
    """A number as an operand, exactly."""
    return np.array(float(x))


def where(u: Rounded, condition: NDArray[np.bool_], a: NDArray, b: NDArray) -> NDArray:
    """The numbers of `a` where the condition holds, else those of `b`, in the type of `a`; none is rounded."""
    # A single number is a scalar to arrays on any machine.
    return u.with_format_of(np.where(condition, a[()], b[()]).astype(a.dtype, copy=False), a, b)


def negative(u: Rounded, x: NDArray) -> NDArray:
    """-x as a step of its own."""
    return u.round(as_array(-x), "negative", x)


def absolute(u: Rounded, x: NDArray) -> NDArray:
    """|x| as a step of its own."""
    return u.round(as_array(np.abs(x)), "abs", x)


def sign(u: Rounded, x: NDArray) -> NDArray:
    """The sign of x, 0 at 0, as a step of its own."""
    return u.round(as_array(np.sign(x)), "abs", x)


def keepdims_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with axes of one element in the place of those that were reduced."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def total(u: Rounded, x: NDArray, axes: tuple[int, ...]) -> NDArray:
    """The sums over `axes`, each of which is kept with one element."""
    return u.sum(x, axes).reshape(keepdims_shape(x.shape, axes))


def average(u: Rounded, x: NDArray, axes: tuple[int, ...]) -> NDArray:
    """The means over `axes`, each of which is kept with one element."""
    return u.mean(x, axes).reshape(keepdims_shape(x.shape, axes))
