"""Formulas of derivatives and composites, written once for tensors of simfloat and of PyTorch.

A formula is a function of `u` and of arrays. `u` (`Rounded`) is the arithmetic of a place: it rounds the result of
each operation once, as the policy says. The docstring of a formula states its operations in their order, which is the
order of PyTorch. Operations that move, compare or choose values use NumPy; `u.with_format_of` (or `where`) then
records the format of the new array. Constants are 0-dimensional arrays, created by `number`. There are two kinds:

* *slopes*, ``slope(u, g, y, *operands)``: the gradient of one operand, from the gradient `g` of the result `y`;
* *composites*, ``softmax(u, x, axes)``: the result, or a tuple of the result and other arrays that the slopes read.
  Each operand that may require a gradient has a slope.

The arithmetic `u` of a formula depends on the pass:

* In the forward pass, a composite gets `inside.CompositeArithmetic`. Every step has its own place inside the
  composite, which policies, observers and random streams use: ``softmax``, then ``exp``. A step that chooses values
  names its operation: ``u.round(np.abs(x), "abs", x)``. A composite inside another one is ``u.composite("logsumexp",
  logsumexp, x)``.
* In the backward pass, a slope gets the arithmetic of the role of its gradient, at the place of the whole operation:
  an override of ``softmax`` sets the rounding of every step of its gradient.
* If the policy fuses the composite, both directions use `CompositeArithmetic`: steps are rounded to the format of
  `reduce`, and the front end rounds the result, or the gradient, once.

In `simfloat.nn` and `simfloat.autodiff`, use ``composite_operation("softmax", softmax, (softmax_slope,), x)`` of
`autodiff.composites`, with a slope for each operand. In the rules for PyTorch, use the classes of `torch.formula`,
which pass the arguments of the PyTorch operation to a formula, with tensors as arrays: ``Formula("softmax",
softmax)`` for a composite and for its gradient with respect to one operand; ``CompositeGradients("layer_norm", to_x,
to_weight, to_bias)`` for the gradients of several operands; ``GradientRule("tanh", slopes.tanh)`` for an operation
that is not a composite.

If the backward formula of PyTorch differs from the chain rule over the steps, the slope follows PyTorch, so that a
model has the same bits in both front ends.
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
    """Operations on arrays that round every result once. Constants are 0-dimensional arrays, exact in float64.

    `simulation.arithmetic.Arithmetic` rounds all of them at one place, `inside.CompositeArithmetic` each at its own
    place.
    """

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """Compute an elementwise operation of the catalog."""

    def add(self, a: NDArray, b: NDArray) -> NDArray:
        """Return a + b."""

    def subtract(self, a: NDArray, b: NDArray) -> NDArray:
        """Return a - b."""

    def multiply(self, a: NDArray, b: NDArray) -> NDArray:
        """Return a * b."""

    def divide(self, a: NDArray, b: NDArray) -> NDArray:
        """Return a / b."""

    def round(self, x: NDArray, operation: str, *sources: NDArray) -> NDArray:
        """Round values that the operation of this name computes from its `sources` without rounding."""

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """Sum over `axes`, which are dropped, with the accumulator `reduce` of the policy."""

    def running_sums(self, rows: NDArray) -> NDArray:
        """Return the sums of rows 0 to i for every i, of rows (n, columns), with the accumulator `reduce` of the
        policy.
        """

    def mean(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """Return the sums over `axes` divided by the number of terms."""

    def for_operation(self, operation: str) -> Arithmetic:
        """Return the arithmetic of the step of this name, for operations that are not methods of this class."""

    def with_format_of(self, x: NDArray, *sources: NDArray) -> NDArray:
        """Return `x`, a new array of values of `sources`, after recording its format; views do not need this call."""

    def composite(self, name: str, formula: Callable[..., NDArray], *operands: NDArray, **options: Any) -> NDArray:
        """Compute another formula, under the name by which policies refer to it."""


def number(x: float) -> NDArray[np.float64]:
    """Return a constant as an exact operand."""
    return np.array(float(x))


def where(u: Rounded, condition: NDArray[np.bool_], a: NDArray, b: NDArray) -> NDArray:
    """Select values of `a` where the condition is True, otherwise of `b`, in the type of `a`, without rounding."""
    # Single elements become scalars, which combine with arrays on any device.
    return u.with_format_of(np.where(condition, a[()], b[()]).astype(a.dtype, copy=False), a, b)


def negative(u: Rounded, x: NDArray) -> NDArray:
    """Return -x as a separate step."""
    return u.round(as_array(-x), "negative", x)


def absolute(u: Rounded, x: NDArray) -> NDArray:
    """Return |x| as a separate step."""
    return u.round(as_array(np.abs(x)), "abs", x)


def sign(u: Rounded, x: NDArray) -> NDArray:
    """Return the sign of x, 0 at 0, as a separate step."""
    return u.round(as_array(np.sign(x)), "abs", x)


def keepdims_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape with size 1 for the reduced axes."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def total(u: Rounded, x: NDArray, axes: tuple[int, ...]) -> NDArray:
    """Sum over `axes`, which are kept with size 1."""
    return u.sum(x, axes).reshape(keepdims_shape(x.shape, axes))


def average(u: Rounded, x: NDArray, axes: tuple[int, ...]) -> NDArray:
    """Return the means over `axes`, which are kept with size 1."""
    return u.mean(x, axes).reshape(keepdims_shape(x.shape, axes))


def sum_to_shape(u: Rounded, gradient: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Sum a gradient over the axes along which an operand of `shape` was broadcast."""
    if gradient.shape == shape:
        return gradient
    added = gradient.ndim - len(shape)
    axes = [i for i in range(gradient.ndim) if i < added or (shape[i - added] == 1 and gradient.shape[i] != 1)]
    return u.sum(gradient, tuple(axes)).reshape(shape)
