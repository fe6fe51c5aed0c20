"""Products of matrices of tensors, each with its derivatives beside it.

Operands are rounded to the policy's `compute`, gradients among them to `compute_gradients`, and every sum goes through
its accumulator.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.place import Unit
from simfloat.autodiff.record import Operand, begin, finish, summed_to
from simfloat.autodiff.tensor import Tensor, as_tensor


def matmul(a: Operand, b: Operand) -> Tensor:
    """The matrix product, with NumPy's shapes."""
    a, b = as_tensor(a), as_tensor(b)
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {a.shape} and {b.shape}.")
    place = begin("matmul", a, b)
    operands, gradients = place.recipe.compute, place.recipe.compute_gradients
    # Vectors are matrices of one row or column for the time of the product.
    x = a.data if a.ndim > 1 else a.data[np.newaxis]
    y = b.data if b.ndim > 1 else b.data[:, np.newaxis]
    product = place.forward.matmul(x, y, (operands, operands))
    full, a_shape, b_shape = product.shape, a.shape, b.shape

    def by_a(unit: Unit, g: NDArray) -> NDArray:
        gradient = unit.matmul(g.reshape(full), np.swapaxes(y, -1, -2), (gradients, operands))
        return summed_to(unit, gradient, x.shape).reshape(a_shape)

    def by_b(unit: Unit, g: NDArray) -> NDArray:
        gradient = unit.matmul(np.swapaxes(x, -1, -2), g.reshape(full), (operands, gradients))
        return summed_to(unit, gradient, y.shape).reshape(b_shape)

    rows, columns = (full[-2:-1] if a.ndim > 1 else ()), (full[-1:] if b.ndim > 1 else ())
    return finish(place, product.reshape(full[:-2] + rows + columns), (a, b), by_a, by_b)


def linear(a: Operand, weight: Tensor) -> Tensor:
    """a (..., inputs) times the transpose of weight (outputs, inputs)."""
    a = as_tensor(a)
    if a.ndim == 0 or a.shape[-1] != weight.shape[1]:
        raise ValueError(f"A linear layer of {weight.shape[1]} inputs takes (..., {weight.shape[1]}), got {a.shape}.")
    place = begin("linear", a, weight)
    operands, gradients = place.recipe.compute, place.recipe.compute_gradients
    shape = a.shape
    rows, w = a.data.reshape(math.prod(shape[:-1]), shape[-1]), weight.data
    product = place.forward.matmul(rows, w.T, (operands, operands))

    def by_input(unit: Unit, g: NDArray) -> NDArray:
        return unit.matmul(g.reshape(product.shape), w, (gradients, operands)).reshape(shape)

    def by_weight(unit: Unit, g: NDArray) -> NDArray:
        return unit.matmul(g.reshape(product.shape).T, rows, (gradients, operands))

    return finish(place, product.reshape(*shape[:-1], w.shape[0]), (a, weight), by_input, by_weight)
