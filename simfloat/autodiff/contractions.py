"""Products of matrices, each with its derivatives beside it.

Operands are rounded to the policy's `compute`, gradients among them to `compute_gradients`, each by the recipe of what
it is: a parameter's own, or the layer's. Sums go through `accumulate`, in the backward pass `accumulate_gradients`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.record import Made, Operand, among, begin, finish, summed_to
from simfloat.autodiff.variable import as_variable
from simfloat.simulation.arithmetic import Arithmetic


def matmul(a: Operand, b: Operand) -> Made:
    """The matrix product, with NumPy's shapes."""
    a, b = as_variable(a), as_variable(b)
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {a.shape} and {b.shape}.")
    started = begin("matmul", a, b)
    a, b = started.operands
    a_input, b_input, g_input = started.input(0), started.input(1), started.place.gradient
    # Vectors are matrices of one row or column for the time of the product.
    x = a.numbers if a.ndim > 1 else a.numbers[np.newaxis]
    y = b.numbers if b.ndim > 1 else b.numbers[:, np.newaxis]
    arithmetic = started.forward
    product = arithmetic.matmul(x, y, started.input_now(0), started.input_now(1))
    full, a_shape, b_shape = product.shape, a.shape, b.shape

    def by_a(u: Arithmetic, g: NDArray) -> NDArray:
        gradient = u.matmul(g.reshape(full), np.swapaxes(y, -1, -2), g_input, b_input)
        return summed_to(u, gradient, x.shape).reshape(a_shape)

    def by_b(u: Arithmetic, g: NDArray) -> NDArray:
        gradient = u.matmul(np.swapaxes(x, -1, -2), g.reshape(full), a_input, g_input)
        return summed_to(u, gradient, y.shape).reshape(b_shape)

    rows, columns = (full[-2:-1] if a.ndim > 1 else ()), (full[-1:] if b.ndim > 1 else ())
    return finish(started, product.reshape(full[:-2] + rows + columns), arithmetic.format, by_a, by_b, reads="other")


def linear(x: Operand, weight: Operand, part: slice | None = None) -> Made:
    """x (..., inputs) times the transpose of weight (outputs, inputs), or of a part of its rows."""
    x, weight = as_variable(x), as_variable(weight)
    if weight.ndim != 2:
        raise ValueError(f"The weight of a linear layer has the shape (outputs, inputs), got {weight.shape}.")
    inputs = weight.shape[1]
    if x.ndim == 0 or x.shape[-1] != inputs:
        raise ValueError(f"A linear layer of {inputs} inputs takes (..., {inputs}), got {x.shape}.")
    started = begin("linear", x, weight)
    x, weight = started.operands
    x_input, w_input, g_input = started.input(0), started.input(1), started.place.gradient
    shape = x.shape
    rows, w = x.numbers.reshape(math.prod(shape[:-1]), inputs), weight.numbers if part is None else weight.numbers[part]
    arithmetic = started.forward
    product = arithmetic.matmul(rows, w.T, x_input, started.input_now(1))

    def by_input(u: Arithmetic, g: NDArray) -> NDArray:
        return u.matmul(g.reshape(product.shape), w, g_input, w_input).reshape(shape)

    def by_weight(u: Arithmetic, g: NDArray) -> NDArray:
        return among(u.matmul(g.reshape(product.shape).T, rows, g_input, x_input), weight.shape, part)

    return finish(
        started, product.reshape(*shape[:-1], w.shape[0]), arithmetic.format, by_input, by_weight, reads="other"
    )
