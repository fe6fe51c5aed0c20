"""Arguments of layers, checked: sizes, probabilities, indices, and images with or without a batch axis; and seeds.

The last part has the generators of initial values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.common import check_count, first_uneven_row, is_integer
from simfloat.simulation.formulas import Rounded


def check_sizes(**sizes: Any) -> None:
    """Raise ValueError naming the first that is no integer from 1."""
    for name, size in sizes.items():
        if not is_integer(size, 1):
            raise ValueError(f"{name} must be a positive integer, got {size!r}.")


def as_number(value: Any, name: str, least: float = -math.inf) -> float:
    """A finite number from `least` on."""
    number = as_operand(value, name)
    if number.ndim or not np.isfinite(number) or number < least:
        raise ValueError(
            f"{name} must be a finite number{f' from {least}' if least > -math.inf else ''}, got {value!r}."
        )
    return float(number)


def as_probability(p: Any, name: str = "p") -> float:
    """A number from 0 to 1."""
    number = as_operand(p, name)
    if number.ndim or not 0 <= number <= 1:
        raise ValueError(f"{name} is a probability, a number from 0 to 1, got {p!r}.")
    return float(number)


def check_not_in_place(inplace: Any) -> None:
    """Raise ValueError if a layer is to write over its input, as torch.nn's activations can be."""
    if inplace:
        raise ValueError(
            f"inplace must be False, got {inplace!r}: tensors are never written over, and results are the same without."
        )


def as_indices(x: ArrayLike, count: int, name: str) -> NDArray[np.integer]:
    """An array of integers from 0 below `count`; ValueError naming the first that is none."""
    try:
        indices = as_array(x)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array of integers{first_uneven_row(x)}.") from None
    if not indices.size and indices.dtype.kind == "f":
        return indices.astype(np.intp)
    if indices.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, got dtype {indices.dtype}.")
    wrong = (indices < 0) | (indices >= count)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        where = f" at {place[0] if len(place) == 1 else place}" if place else ""
        raise ValueError(f"{name} go from 0 to {count - 1}; got {indices[place]}{where}.")
    return indices


def apply_activation(
    name: str, formula: Callable[..., NDArray], slope: Callable[..., NDArray], x: Operand, **options: Any
) -> Tensor:
    """The composite of this name on x, by its formula and that of its derivative, with options that both have."""

    def to_x(u: Rounded, g: NDArray, outputs: NDArray | None, x: NDArray) -> NDArray:
        return slope(u, g, x, **options)

    return tensor_of(composite_operation(name, partial(formula, **options), (to_x,), x, reads="operands"))


def apply_to_sequences(function: Callable[[Tensor], Tensor], x: Operand) -> Tensor:
    """The result of a function of sequences (N, C, L) for x, which may be one sequence (C, L): then without N."""
    sequences = as_tensor(x)
    return function(sequences) if sequences.ndim != 2 else function(sequences.unsqueeze(0)).squeeze(0)


def apply_to_images(function: Callable[[Tensor], Tensor], x: Operand) -> Tensor:
    """The result of a function of images (N, C, H, W) for x, which may be one image (C, H, W): then without N."""
    images = as_tensor(x)
    return function(images) if images.ndim != 3 else function(images.unsqueeze(0)).squeeze(0)


if TYPE_CHECKING:  # numpy.random is imported when it is first used
    Seed: TypeAlias = np.random.Generator | int | None

_lock = Lock()
_shared: np.random.Generator | None = None


def seed(n: int = 0) -> None:
    """Restart the generator from which layers without `rng` draw their initial values, one layer after the other.

    It starts at 0 when simfloat.nn is imported. Raises ValueError unless n is an integer from 0.

    Examples:
        >>> sf.nn.seed(1)
        >>> first = sf.nn.Linear(2, 2)
        >>> sf.nn.seed(1)
        >>> bool(np.all(sf.nn.Linear(2, 2).weight.data == first.weight.data))
        True
    """
    global _shared
    check_count("The seed of initial values", n, 0)
    with _lock:
        _shared = np.random.default_rng(int(n))


def generator_of(rng: Seed) -> np.random.Generator:
    """The generator that `rng` stands for: itself, one started by an integer, or for None the one that all share.

    A generator hands out each of its numbers once, whichever thread asks.
    """
    global _shared
    if rng is None:
        with _lock:
            if _shared is None:
                _shared = np.random.default_rng(0)
            return _shared
    if isinstance(rng, np.random.Generator):
        return rng
    if not is_integer(rng, 0):
        raise ValueError(f"Initial values come from a NumPy generator or a seed, an integer from 0; got {rng!r}.")
    return np.random.default_rng(int(rng))
