"""Formulas: what derivatives and composites are, written once for tensors of this package and for PyTorch's.

A formula is a function of `u` and of arrays. `u` (`Rounded`) is the arithmetic of a place: each of its
operations is rounded once, as the policy says there. The docstring of a formula gives its operations in their order,
which is PyTorch's order; what moves, compares or chooses numbers is NumPy's, and `u.moved` (or `where`) says of a new
array whose numbers it has. Plain numbers are arrays without axes, made by `number`. There are

* *slopes*, ``slope(u, g, y, *operands)``: the gradient of one operand, from the gradient `g` of the result `y`;
* *composites*, ``softmax(u, x, axes)``: the result, or a tuple of it and of what the slopes read besides. Each of their
  operands that may require a gradient has a slope.

Which arithmetic a formula gets:

* going forward, a composite gets `simulation.inside.CompositeArithmetic`: every step has a place of its own, inside of
  the composite, by which policies, observers and random streams know it: ``softmax``, then ``exp``. A step that chooses
  numbers says as which operation it is rounded: ``u.round(np.abs(x), "abs", x)``. A composite inside of another one is
  ``u.composite("logsumexp", logsumexp, x)``;
* going back, a slope gets the arithmetic of the role of the gradient that it computes, at the place of the whole
  operation: a policy that names ``softmax`` says how every step of its gradient is rounded;
* where the policy fuses the composite, `CompositeArithmetic` in both directions: steps are rounded to the format of
  `reduce`, and the front end rounds the result, or the gradient, once.

To use a formula, in `simfloat.nn` and `simfloat.autodiff`: ``composite_operation("softmax", softmax, (softmax_slope,),
x)`` of `autodiff.composites`, with a slope for each operand. In PyTorch's rules, by the classes of `torch.formula`,
which give a formula the arguments of PyTorch's operation, tensors as arrays: ``Formula("softmax", softmax)`` for a
composite and for its gradient with respect to one operand, ``CompositeGradients("layer_norm", to_x, to_weight,
to_bias)`` for the gradients of several, ``GradientRule("tanh", slopes.tanh)`` for that of an operation which is no
composite.

Where PyTorch's own backward formula differs from the chain rule over the steps, a slope is PyTorch's, so that a model
has the same bits under both front ends.

The arithmetic that formulas compute with, as both front ends have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.simulation.arithmetic import Arithmetic

__all__: list[str] = []


#: (arithmetic, gradient of the result, result, *operands) -> gradient of one operand
Slope = Callable[..., NDArray]


class Rounded(Protocol):
    """Operations on arrays whose every result is rounded once. Numbers are arrays without axes, exact in float64.

    `simulation.arithmetic.Arithmetic` rounds all of them at one place, `simulation.inside.CompositeArithmetic` each at
    its own.
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
