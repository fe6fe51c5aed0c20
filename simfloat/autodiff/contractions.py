"""Products of matrices and the addition of a bias, each with its derivatives beside it.

Operands of products are rounded to the policy's `compute`, gradients among them to `compute_gradients`, each by the
recipe of what it is: a parameter's own, or the layer's. Sums go through `accumulate`, in the backward pass
`accumulate_gradients`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.record import Operand, Operations, Result, begin, finish, round_to_shape, sum_to_shape
from simfloat.autodiff.variable import as_variable
from simfloat.environment import in_usual_environment
from simfloat.formulas.weighted_rows import weighted_values
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.widest import contains


@in_usual_environment
class Contractions(Operations[Result]):
    """The products of a tensor with matrices."""

    def matmul(self, other: Operand) -> Result:
        """The matrix product, as ``@``, with NumPy's shapes."""
        return self._product(other)

    def weighted_sum(self, values: Operand) -> Result:
        """The product of these weights, from 0 on, with values, whose rows the largest weight scales for the product.

        The order of roundings is that of `formulas.weighted_rows.weighted_sum`. Fused attention multiplies so.
        """
        return self._product(values, are_weights=True)

    def _product(self, other: Operand, *, are_weights: bool = False) -> Result:
        right = as_variable(other)
        a_shape, b_shape = self.shape, right.shape
        if not a_shape or not b_shape or a_shape[-1] != b_shape[max(len(b_shape) - 2, 0)]:
            raise ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {a_shape} and {b_shape}.")
        started = begin("matmul", self, right)
        a, b = (operand.numbers for operand in started.operands)
        a_input, b_input, g_input = started.input(0), started.input(1), started.place.gradient
        # Vectors are matrices of one row or column for the time of the product.
        x = a if a.ndim > 1 else a[np.newaxis]
        y = b if b.ndim > 1 else b[:, np.newaxis]
        arithmetic = started.forward
        inputs = started.forward_input(0), started.forward_input(1)
        product = weighted_values(arithmetic, x, y, inputs) if are_weights else arithmetic.matmul(x, y, *inputs)
        full = product.shape

        def by_a(u: Arithmetic, g: NDArray) -> NDArray:
            gradient = u.matmul(g.reshape(full), np.swapaxes(y, -1, -2), g_input, b_input)
            return sum_to_shape(u, gradient, x.shape).reshape(a_shape)

        def by_b(u: Arithmetic, g: NDArray) -> NDArray:
            gradient = u.matmul(np.swapaxes(x, -1, -2), g.reshape(full), a_input, g_input)
            return sum_to_shape(u, gradient, y.shape).reshape(b_shape)

        rows, columns = (full[-2:-1] if a.ndim > 1 else ()), (full[-1:] if b.ndim > 1 else ())
        result = product.reshape(full[:-2] + rows + columns)
        return self.from_result(finish(started, result, arithmetic.format, by_a, by_b, reads="other"))

    def linear(self, weight: Operand, part: slice | None = None) -> Result:
        """x (..., inputs) times the transpose of weight (outputs, inputs), or of a part of its rows."""
        weight = as_variable(weight)
        shape, w_shape = self.shape, weight.shape
        if len(w_shape) != 2:
            raise ValueError(f"The weight of a linear layer has the shape (outputs, inputs), got {w_shape}.")
        inputs = w_shape[1]
        if not shape or shape[-1] != inputs:
            raise ValueError(f"A linear layer of {inputs} inputs takes (..., {inputs}), got {shape}.")
        started = begin("linear", self, weight)
        x, used = started.operands
        x_input, w_input, g_input = started.input(0), started.input(1), started.place.gradient
        rows, w = x.numbers.reshape(math.prod(shape[:-1]), inputs), used.numbers if part is None else used.numbers[part]
        arithmetic = started.forward
        product = arithmetic.matmul(rows, w.T, x_input, started.forward_input(1))

        def by_input(u: Arithmetic, g: NDArray) -> NDArray:
            return u.matmul(g.reshape(product.shape), w, g_input, w_input).reshape(shape)

        def by_weight(u: Arithmetic, g: NDArray) -> NDArray:
            return _among_zeros(u.matmul(g.reshape(product.shape).T, rows, g_input, x_input), w_shape, part)

        result = product.reshape(*shape[:-1], len(w))
        return self.from_result(finish(started, result, arithmetic.format, by_input, by_weight, reads="other"))

    def add_bias(self, bias: Operand, axis: int = -1, part: slice | None = None) -> Result:
        """This product + bias, or a part of it, one number for each place along `axis`: a layer's second operation.

        An addition like any other but where results are ``widest``: there the product's format decides. Under automatic
        mixed precision PyTorch's linear layers and convolutions take their bias in the format that they compute in, and
        its gradient comes in that format, or in the bias's own unless that is a wider one.
        """
        started = begin("add", self, as_variable(bias))
        product, used = started.operands
        added, shape = used.numbers if part is None else used.numbers[part], used.shape
        place, format = started.place, product.stored_format
        arithmetic = place.forward_in(format) if place.is_widest else place.forward

        def to_product(u: Arithmetic, g: NDArray) -> NDArray:
            return u.round(g)

        def to_bias(u: Arithmetic, g: NDArray) -> NDArray:
            return _among_zeros(
                round_to_shape(u, g if axis == -1 else np.moveaxis(g, axis, -1), added.shape), shape, part
            )

        behind = [1] * (product.ndim - 1 - axis % product.ndim)
        total = arithmetic.add(product.numbers, added.reshape(*added.shape, *behind))
        result = finish(started, total, arithmetic.format, to_product, to_bias)
        if result.node is None or not place.takes_formats:
            return self.from_result(result)
        bias_format = used.stored_format
        formats = format, format if contains(bias_format, format) else bias_format
        return self.from_result(result._replace(node=result.node._replace(formats=formats)))


def _among_zeros(gradient: NDArray, shape: tuple[int, ...], part: slice | None) -> NDArray:
    """The gradient of a part of an operand's first axis, among the zeros of the rest; that of all of it as it is."""
    if part is None:
        return gradient
    full = np.zeros(shape, gradient.dtype, like=gradient)
    full[part] = gradient
    return full
