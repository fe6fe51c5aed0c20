"""Fully connected layers, and embeddings: tables of vectors that are looked up by index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import on_cpu
from simfloat.autodiff import Parameter, Tensor, concatenate
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, compose
from simfloat.common import is_integer
from simfloat.nn.arguments import as_indices, as_number, as_size, generator_of, one_of
from simfloat.nn.layer import Layer
from simfloat.options import KW_ONLY, InitVar, anything, flag, option, with_options

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed


@with_options
class Linear(Layer):
    """x W^T + b; the contraction and the addition are each rounded.

    weight is (out_features, in_features) and bias is (out_features). Both start uniform in +-1 / sqrt(in_features), as
    in torch.nn.

    Parameters:
        in_features: the size of the last axis of x.
        out_features: the size of the last axis of the result.
        bias: False for a layer without bias.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer.

    Examples:
        >>> layer = sf.nn.Linear(3, 4, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 3)))
        >>> y.shape
        (2, 4)
        >>> [name for name, parameter in layer.named_parameters()]
        ['weight', 'bias']
    """

    inputs: InitVar[int] = option(as_size, alias="in_features")
    outputs: InitVar[int] = option(as_size, alias="out_features")
    has_bias: InitVar[bool] = option(flag, default=True, alias="bias")
    _: KW_ONLY
    rng: InitVar[Seed] = option(anything, default=None)

    def _start(self, **arguments: Any) -> None:
        generator, out_features = generator_of(arguments["rng"]), arguments["out_features"]
        bound = 1 / math.sqrt(arguments["in_features"])
        self.weight = Parameter(generator.uniform(-bound, bound, (out_features, arguments["in_features"])))
        self.bias = Parameter(generator.uniform(-bound, bound, out_features)) if arguments["bias"] else None

    @property
    def in_features(self) -> int:
        """The size of the last axis of the input."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """The size of the last axis of the output."""
        return self.weight.shape[0]

    def forward(self, x: Operand) -> Tensor:
        """Map x (..., in_features) to (..., out_features)."""
        product = as_tensor(x).linear(self.weight)
        return product if self.bias is None else product.add_bias(self.bias)

    def extra_repr(self) -> str:
        """Return the sizes as text, and bias=False if the bias is absent."""
        return f"{self.in_features}, {self.out_features}{', bias=False' if self.bias is None else ''}"


def affine(
    x: Operand, weight: Parameter, bias: Parameter | None, rows: slice | None = None, part: slice | None = None
) -> Tensor:
    """Multiply x by the transpose of some rows of the weight, and add a part of the bias."""
    product = as_tensor(x).linear(weight, rows)
    return product if bias is None else product.add_bias(bias, part=part)


def _without_max_norm(name: str, value: Any) -> None:
    """Raise ValueError for a limit of the rows' norms, with the reason and a replacement."""
    if value is not None:
        raise ValueError(
            f"{name} must be None, got {value!r}: the forward pass of a simulation never changes a parameter, "
            "because updates have their own formats. Shorten rows after optimizer.step(), by assigning weight.data."
        )


def _without_scaled_gradients(name: str, value: Any) -> None:
    """Raise ValueError for gradients that are divided by counts, with the reason and a replacement."""
    if flag(name, value):
        raise ValueError(
            f"{name} must be False: gradients of a row are added, each sum rounded as the policy says. "
            "Divide rows of weight.grad by np.bincount of the indices before optimizer.step()."
        )


def _without_sparse_gradients(name: str, value: Any) -> None:
    """Raise ValueError for sparse gradients."""
    if flag(name, value):
        raise ValueError(f"{name} must be False: gradients are dense arrays, with the same values.")


@with_options
class Embedding(Layer):
    """The rows of a table at integer indices. Nothing is rounded; gradients of the same row are added through `reduce`.

    weight is (num_embeddings, embedding_dim) and starts normal with variance 1, as in torch.nn.

    Parameters:
        num_embeddings: the number of rows.
        embedding_dim: the size of a row.
        padding_idx: a row that starts at zero and receives no gradient; None for no such row.
        max_norm: must be None: in PyTorch, it overwrites rows of the table during the forward pass.
        norm_type: a number, ignored, because it belongs to max_norm.
        scale_grad_by_freq, sparse: must be False.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer; if padding_idx is not a row; for the options that are not
            supported, with a replacement.

    Examples:
        >>> layer = sf.nn.Embedding(10, 4, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1, 2, 3]])
        >>> y.shape
        (1, 3, 4)
    """

    rows: InitVar[int] = option(as_size, alias="num_embeddings")
    columns: InitVar[int] = option(as_size, alias="embedding_dim")
    padding_idx: int | None = option(anything, default=None)
    max_norm: InitVar[float | None] = option(_without_max_norm, default=None)
    norm_type: InitVar[float] = option(as_number, default=2.0)
    scale_grad_by_freq: InitVar[bool] = option(_without_scaled_gradients, default=False)
    sparse: InitVar[bool] = option(_without_sparse_gradients, default=False)
    _: KW_ONLY
    rng: InitVar[Seed] = option(anything, default=None)

    def _start(self, **arguments: Any) -> None:
        rows, padding_idx = arguments["num_embeddings"], self.padding_idx
        if padding_idx is not None and not is_integer(padding_idx, -rows, rows - 1):
            raise ValueError(f"padding_idx must be a row, from {-rows} to {rows - 1}; got {padding_idx!r}.")
        table = generator_of(arguments["rng"]).standard_normal((rows, arguments["embedding_dim"]))
        if padding_idx is not None:
            self.padding_idx = int(padding_idx) % rows
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
        """Map integers (...) to rows (..., embedding_dim); raise ValueError for an index out of range."""
        places = as_indices(input, self.num_embeddings, "Indices of an embedding")
        return self.weight.embedding(places, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the sizes and the padding row as text."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


@with_options
class EmbeddingBag(Embedding):
    """The sum, mean or maximum of the table rows that the indices of each bag select.

    Sums go through the policy's `reduce`, in the order of the bag. An empty bag gives zeros. Indices equal to
    `padding_idx` do not count as members of a bag.

    Parameters:
        num_embeddings: the number of rows.
        embedding_dim: the size of a row.
        max_norm: must be None.
        norm_type: a number, ignored.
        scale_grad_by_freq, sparse: must be False.
        mode: "sum", "mean" or "max".
        include_last_offset: True if the offsets of a call end with the end of the last bag.
        padding_idx: a row that starts at zero, receives no gradient and is left out of bags; None for no such row.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if `mode` is unknown; otherwise as for Embedding.

    Examples:
        >>> layer = sf.nn.EmbeddingBag(10, 4, mode="sum", rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1, 2, 3], [4, 4, 4]])
        >>> y.shape
        (2, 4)
    """

    _: KW_ONLY
    max_norm: InitVar[float | None] = option(_without_max_norm, default=None)
    norm_type: InitVar[float] = option(as_number, default=2.0)
    scale_grad_by_freq: InitVar[bool] = option(_without_scaled_gradients, default=False)
    mode: Literal["sum", "mean", "max"] = option(one_of("sum", "mean", "max"), default="mean")
    sparse: InitVar[bool] = option(_without_sparse_gradients, default=False)
    include_last_offset: bool = option(flag, default=False)
    padding_idx: int | None = option(anything, default=None)

    def forward(
        self, input: ArrayLike, offsets: ArrayLike | None = None, per_sample_weights: Operand | None = None
    ) -> Tensor:
        """Reduce each bag of indices to one row; the result is (bags, embedding_dim).

        Parameters:
            input: indices (bags, n), or the indices of all bags in one axis, together with `offsets`.
            offsets: the positions in `input` where the bags begin, ascending from 0. With include_last_offset, the last
                one is the end of the last bag.
            per_sample_weights: factors for the rows, with the shape of `input`; only for mode "sum".

        Raises:
            ValueError: if an index is out of range, offsets do not ascend from 0, or a shape does not fit.
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
        """Return for every index the number of its bag, and the number of bags."""
        if places.ndim == 2 and offsets is None:
            return np.repeat(np.arange(len(places)), places.shape[1]), len(places)
        if places.ndim != 1 or offsets is None:
            raise ValueError(
                "EmbeddingBag takes an input (bags, n), or an input with one axis together with offsets; "
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
        """Reduce consecutive bags of rows to one row per bag; bags of equal length are reduced together."""
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
        """Reduce bags (bags, n, embedding_dim) to (bags, embedding_dim); an empty bag gives zeros in every mode."""
        if self.mode == "sum" or not rows.shape[1]:
            return rows.sum(1)
        return rows.mean(1) if self.mode == "mean" else rows.max(1)

    def extra_repr(self) -> str:
        """Return the sizes, the padding row and the mode as text."""
        return f"{super().extra_repr()}, mode={self.mode!r}"
