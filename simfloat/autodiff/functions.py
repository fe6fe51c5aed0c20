"""Functions of tensors that layers and losses are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.autodiff import bias as biases
from simfloat.autodiff import contractions, dropping, indexing, joining
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import Tensor, tensor_of


def linear(x: Operand, weight: Operand, part: slice | None = None) -> Tensor:
    """x (..., inputs) times the transpose of weight (outputs, inputs), or of a part of its rows."""
    return tensor_of(contractions.linear(x, weight, part))


def add_bias(product: Tensor, bias: Tensor, axis: int = -1, part: slice | None = None) -> Tensor:
    """product + bias, or a part of it, along `axis`: a layer's second operation; ``widest`` is the product's format."""
    return tensor_of(biases.add_bias(product, bias, axis, part))


def times_factors(a: Tensor, factors: NDArray[np.floating]) -> Tensor:
    """a * factors, an array of the same shape; ``widest`` is the format of `a`."""
    return tensor_of(dropping.times_factors(a, factors))


def pick(a: Tensor, labels: NDArray[np.integer]) -> Tensor:
    """For every row of `a` (..., classes) the element that `labels` (...) names."""
    return tensor_of(indexing.pick(a, labels))


def embedding(weight: Tensor, places: NDArray[np.integer], padding: int | None = None) -> Tensor:
    """The rows of a table (rows, width) that `places` (...) name; the row `padding` gets no gradient."""
    return tensor_of(indexing.embedding(weight, places, padding))


def concatenate(tensors: Sequence[Operand], axis: int = 0) -> Tensor:
    """Tensors and arrays one after the other along `axis`; their other axes have equal sizes.

    As in every movement no number is rounded. The result's `format` is the one that all have in common; of several it
    is the narrowest of them that holds the numbers of all, or else of the catalog (FP32 for BF16 and FP16); it is None
    if one of them is data, of which nothing is known.

    Raises ValueError for no tensors, for shapes that do not fit, and for an axis that is not there.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     joined = sf.concatenate([sf.Tensor([1.0]), sf.Tensor([2.0, 3.0])])
        >>> joined.shape
        (3,)
    """
    return tensor_of(joining.concatenate(tensors, axis))


def stack(tensors: Sequence[Operand], axis: int = 0) -> Tensor:
    """Tensors and arrays of one shape along a new axis, at the place `axis` of the result; else as `concatenate`.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     rows = sf.stack([sf.Tensor([1.0, 2.0]), sf.Tensor([3.0, 4.0])])
        >>> rows.shape
        (2, 2)
    """
    return tensor_of(joining.stack(tensors, axis))


def where(condition: ArrayLike, a: Operand, b: Operand) -> Tensor:
    """The elements of `a` where `condition` holds, else those of `b`; the three shapes are broadcast.

    condition holds truth values, as comparisons of tensors do. The `format` is that of `concatenate`; a number such
    as 0.0 or -inf counts only where the other operand's format does not have it. Gradients of an operand that was
    broadcast are added through the policy's `reduce`.

    Raises ValueError for shapes that do not fit, and for a condition that holds no truth values.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     chosen = sf.where(np.array([True, False]), sf.Tensor([1.0, 2.0]), 0.0)
        >>> chosen.data
        array([1., 0.])
    """
    return tensor_of(joining.where(condition, a, b))
