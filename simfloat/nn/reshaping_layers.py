"""Layers that give numbers another shape, or leave them as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.checks import is_integer
from simfloat.nn.module import Module


class Identity(Module):
    """x itself, unrounded: the place of a layer that a model has not. Arguments of any kind are taken, and left.

    Examples:
        >>> layer = sf.nn.Identity()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([0.1])
        >>> y.data
        array([0.1])
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same."""
        return as_tensor(x)


class Flatten(Module):
    """The axes from `start_dim` to `end_dim` as one; by default all but the first, which counts examples.

    Examples:
        >>> layer = sf.nn.Flatten()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 256)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Operand) -> Tensor:
        """x (N, C, H, W) -> (N, C * H * W), as an example."""
        return as_tensor(x).flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Its axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """The axis `dim` as several, of the sizes unflattened_size, one of which may be -1, what is left.

    Raises ValueError for what is no axis and no sizes, and when it is called, for sizes that do not fit.

    Examples:
        >>> layer = sf.nn.Unflatten(1, (4, -1))
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 12)))
        >>> y.shape
        (2, 4, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        sizes = tuple(unflattened_size) if isinstance(unflattened_size, tuple | list) else ()
        if not is_integer(dim) or not sizes or not all(is_integer(size, -1) for size in sizes):
            raise ValueError(
                f"Unflatten takes the number of an axis and a tuple of sizes, got {dim!r} and {unflattened_size!r}."
            )
        self.dim, self.unflattened_size = dim, sizes

    def forward(self, x: Operand) -> Tensor:
        """x with an axis of n elements -> the same with several, of n elements together."""
        x = as_tensor(x)
        if not -x.ndim <= self.dim < x.ndim:
            raise ValueError(f"Unflatten needs the axis {self.dim} of x, got shape {x.shape}.")
        axis = self.dim % x.ndim
        return x.reshape(*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :])

    def extra_repr(self) -> str:
        """Its axis and sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
