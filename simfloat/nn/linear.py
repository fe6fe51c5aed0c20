"""Fully connected layers, and embeddings: tables of vectors, looked up by index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import on_cpu
from simfloat.autodiff import Parameter, Tensor, concatenate
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, compose
from simfloat.common import check_flags, is_integer
from simfloat.nn.arguments import as_indices, as_number, check_sizes, generator_of
from simfloat.nn.module import Module

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed


class Linear(Module):
    """x W^T + b: the contraction and the addition are each rounded.

    weight is (out_features, in_features), bias (out_features) or absent. Both start uniform in +-1 / sqrt(in_features),
    as in torch.nn, from `rng`, a NumPy generator or a seed; without one from the generator of `seed`.

    Raises ValueError unless the sizes are positive integers.

    Examples:
        >>> layer = sf.nn.Linear(3, 4, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 3)))
        >>> y.shape
        (2, 4)
        >>> [name for name, parameter in layer.named_parameters()]
        ['weight', 'bias']
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, rng: Seed = None) -> None:
        super().__init__()
        check_flags(bias=bias)
        check_sizes(in_features=in_features, out_features=out_features)
        generator = generator_of(rng)
        bound = 1 / math.sqrt(in_features)
        self.weight = Parameter(generator.uniform(-bound, bound, (out_features, in_features)))
        self.bias = Parameter(generator.uniform(-bound, bound, out_features)) if bias else None

    @property
    def in_features(self) -> int:
        """The size of an input's last axis."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """The size of an output's last axis."""
        return self.weight.shape[0]

    def forward(self, x: Operand) -> Tensor:
        """x (..., in_features) -> (..., out_features)."""
        product = as_tensor(x).linear(self.weight)
        return product if self.bias is None else product.add_bias(self.bias)

    def extra_repr(self) -> str:
        """Its sizes, and whether it lacks a bias."""
        return f"{self.in_features}, {self.out_features}{', bias=False' if self.bias is None else ''}"


MODES = ("sum", "mean", "max")


class Embedding(Module):
    """The rows of a table that integers name. Nothing is rounded; gradients of one row are added through `reduce`.

    weight is (num_embeddings, embedding_dim), normal with variance 1 as in torch.nn, from `rng`, a NumPy generator or a
    seed; without one from the generator of `seed`. The row `padding_idx` starts at zero and has no gradient.

    Raises ValueError unless the sizes are positive integers and padding_idx is a row; for max_norm, with which PyTorch
    writes over the table while the model runs, for scale_grad_by_freq and sparse, saying what to do instead.

    Examples:
        >>> layer = sf.nn.Embedding(10, 4, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1, 2, 3]])
        >>> y.shape
        (1, 3, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        *,
        rng: Seed = None,
    ) -> None:
        super().__init__()
        check_flags(scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)
        _check_plain(max_norm, norm_type, scale_grad_by_freq, sparse)
        check_sizes(num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        if padding_idx is not None and not is_integer(padding_idx, -num_embeddings, num_embeddings - 1):
            raise ValueError(f"padding_idx is a row, from {-num_embeddings} to {num_embeddings - 1}: {padding_idx!r}.")
        table = generator_of(rng).standard_normal((num_embeddings, embedding_dim))
        self.padding_idx = None if padding_idx is None else int(padding_idx) % num_embeddings
        if self.padding_idx is not None:
            table[self.padding_idx] = 0
        self.weight = Parameter(table)

    @property
    def num_embeddings(self) -> int:
        """The number of rows."""
        return self.weight.shape[0]

    @property
    def embedding_dim(self) -> int:
        """The size of a row."""
        return self.weight.shape[1]

    def forward(self, input: ArrayLike) -> Tensor:
        """Integers (...) -> (..., embedding_dim). Raises ValueError for an integer that names no row."""
        places = as_indices(input, self.num_embeddings, "Indices of an embedding")
        return self.weight.embedding(places, self.padding_idx)

    def extra_repr(self) -> str:
        """Its sizes, and the row of padding."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class EmbeddingBag(Embedding):
    """The sum, mean or maximum of the rows that the integers of a bag name.

    Parameters as in Embedding. Sums go through the policy's `reduce`, in the order of the bag. A bag with nothing in it
    gives zeros; indices equal to `padding_idx` are not in it.

    Examples:
        >>> layer = sf.nn.EmbeddingBag(10, 4, mode="sum", rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1, 2, 3], [4, 4, 4]])
        >>> y.shape
        (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: Literal["sum", "mean", "max"] = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        rng: Seed = None,
    ) -> None:
        check_flags(include_last_offset=include_last_offset)
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, rng=rng
        )
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}.")
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(
        self, input: ArrayLike, offsets: ArrayLike | None = None, per_sample_weights: Operand | None = None
    ) -> Tensor:
        """Bags of integers -> (bags, embedding_dim).

        input is (bags, n), or all bags one after the other with `offsets`, the place where each begins (and, with
        include_last_offset, where the last one ends). per_sample_weights, of the shape of input, multiply the rows of
        sums. Raises ValueError for integers that name no row, offsets that do not ascend from 0, and wrong shapes.
        """
        places = as_indices(input, self.num_embeddings, "Indices of an embedding")
        bag_numbers, count = self._bags(places, offsets)
        named = places.reshape(-1)
        is_in_bag = np.ones_like(named, bool) if self.padding_idx is None else named != self.padding_idx
        named = named[is_in_bag]
        lengths = np.bincount(bag_numbers[on_cpu(is_in_bag)], minlength=count)
        if per_sample_weights is None:
            return compose("embedding_bag", lambda w: self._pool_bags(w.embedding(named), lengths), self.weight)
        factors = as_tensor(per_sample_weights)
        if self.mode != "sum" or factors.shape != places.shape:
            raise ValueError(
                f"per_sample_weights are for mode='sum' and have the input's shape {places.shape}; got {factors.shape} "
                f"and mode={self.mode!r}."
            )
        return compose(
            "embedding_bag",
            lambda w, f: self._pool_bags(w.embedding(named) * f.reshape(-1)[is_in_bag].unsqueeze(1), lengths),
            self.weight,
            factors,
        )

    def _bags(self, places: NDArray[np.integer], offsets: ArrayLike | None) -> tuple[NDArray[np.integer], int]:
        """For every index the number of its bag, and the number of bags."""
        if places.ndim == 2 and offsets is None:
            return np.repeat(np.arange(len(places)), places.shape[1]), len(places)
        if places.ndim != 1 or offsets is None:
            raise ValueError(
                "EmbeddingBag takes an input (bags, n), or one of one axis with offsets; "
                f"got shape {places.shape}{'' if offsets is None else ' and offsets'}."
            )
        starts = on_cpu(as_indices(offsets, places.size + 1, "Offsets"))
        begins = starts.ndim == 1 and (starts.size or not places.size) and not starts[:1].any()
        if not begins or (starts[1:] < starts[:-1]).any():
            raise ValueError(f"Offsets ascend from 0, got {starts.tolist()}.")
        ends = np.append(starts, places.size) if not self.include_last_offset else starts
        if self.include_last_offset and ends[-1:].tolist() != [places.size]:
            raise ValueError(f"The last offset is {places.size}, the end of the input, got {starts.tolist()}.")
        return np.repeat(np.arange(len(ends) - 1), np.diff(ends)), len(ends) - 1

    def _pool_bags(self, rows: Tensor, lengths: NDArray[np.integer]) -> Tensor:
        """Rows, bag after bag, reduced to one row a bag: bags of equal length together."""
        starts = np.cumsum(lengths) - lengths
        sizes = np.unique(lengths)
        if len(sizes) == 1:
            return self._reduce_bags(rows.reshape(len(lengths), int(sizes[0]), self.embedding_dim))
        bags = [np.flatnonzero(lengths == size) for size in sizes]
        pools = [
            self._reduce_bags(rows[starts[bag][:, np.newaxis] + np.arange(size)])
            for bag, size in zip(bags, sizes, strict=True)
        ]
        order = np.argsort(np.concatenate([*bags, np.zeros(0, int)]))
        return concatenate(pools)[order] if pools else rows

    def _reduce_bags(self, rows: Tensor) -> Tensor:
        """Bags (bags, n, embedding_dim) -> (bags, embedding_dim); the sum of nothing is zero, whatever the mode."""
        if self.mode == "sum" or not rows.shape[1]:
            return rows.sum(1)
        return rows.mean(1) if self.mode == "mean" else rows.max(1)

    def extra_repr(self) -> str:
        """Its sizes and mode, and the row of padding."""
        return f"{super().extra_repr()}, mode={self.mode!r}"


def _check_plain(max_norm: Any, norm_type: Any, scale_grad_by_freq: Any, sparse: Any) -> None:
    """Raise ValueError for what PyTorch's tables do and these do not, saying why and what to do."""
    as_number(norm_type, "norm_type")
    if max_norm is not None:
        raise ValueError(
            f"max_norm must be None, got {max_norm!r}: the forward pass of a simulation writes to no parameter, whose "
            "numbers change in the formats of an update. Shorten rows after optimizer.step(), by assigning weight.data."
        )
    if scale_grad_by_freq:
        raise ValueError(
            "scale_grad_by_freq must be False: gradients of a row are added, each sum rounded as the policy says. "
            "Divide rows of weight.grad by np.bincount of the indices before optimizer.step()."
        )
    if sparse:
        raise ValueError("sparse must be False: gradients are whole arrays here, with the same numbers.")
