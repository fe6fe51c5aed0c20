"""Checks of layer arguments (sizes, probabilities, indices, batch axes), and the generators of initial values."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.common import check_count, first_uneven_row, is_integer, message_text
from simfloat.options import Reader


def check_sizes(**sizes: Any) -> None:
    """Raise ValueError that names the first argument that is not the size of an axis: a positive integer."""
    for name, size in sizes.items():
        if not is_integer(size, 1, sys.maxsize):
            raise ValueError(f"{name} must be a positive integer, got {message_text(size)}.")


def as_size(name: str, size: Any) -> Any:
    """Return a positive integer; raise ValueError for anything else."""
    check_sizes(**{name: size})
    return size


def as_axis(name: str, axis: Any) -> Any:
    """Return the number of an axis; raise ValueError if it is not an integer."""
    if not is_integer(axis):
        raise ValueError(f"{name} must be an integer, the number of an axis, got {axis!r}.")
    return axis


def as_number(name: str, value: Any, least: float = -math.inf) -> float:
    """Return `value` as a finite float; raise ValueError if it is below `least`."""
    number = as_operand(value, name)
    if number.ndim or not np.isfinite(number) or number < least:
        raise ValueError(
            f"{name} must be a finite number{f' from {least}' if least > -math.inf else ''}, got {value!r}."
        )
    return float(number)


def as_positive(name: str, value: Any) -> float:
    """Return `value` as a finite float above 0."""
    if as_number(name, value) <= 0:
        raise ValueError(f"{name} must be above 0, got {value!r}.")
    return float(value)


number_from_zero = partial(as_number, least=0.0)


def as_probability(name: str, p: Any) -> float:
    """Return `p` as a float; raise ValueError unless it is from 0 to 1."""
    number = as_operand(p, name)
    if number.ndim or not 0 <= number <= 1:
        raise ValueError(f"{name} is a probability, a number from 0 to 1, got {p!r}.")
    return float(number)


def check_not_in_place(name: str, inplace: Any) -> None:
    """Raise ValueError if a layer is asked to overwrite its input, as the activations of torch.nn can."""
    if inplace:
        raise ValueError(
            f"{name} must be False, got {inplace!r}: tensors are never overwritten, and the results are the same."
        )


def either(first: str, second: str) -> Reader[Any]:
    """Return a reader for one of two words."""

    def read(name: str, value: Any) -> Any:
        if value not in (first, second):
            raise ValueError(f"{name} must be {first!r} or {second!r}, got {value!r}.")
        return value

    return read


def one_of(*words: str) -> Reader[Any]:
    """Return a reader for one of several words."""

    def read(name: str, value: Any) -> Any:
        if value not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}; got {value!r}.")
        return value

    return read


def as_indices(x: ArrayLike, count: int, name: str) -> NDArray[np.integer]:
    """Return an array of integers from 0 to `count` - 1; raise ValueError that names the first invalid one."""
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


def apply_to_batch(function: Callable[[Tensor], Tensor], x: Operand, axes: int) -> Tensor:
    """Apply a function of sequences, images or volumes (N, C, ...) with `axes` axes behind C; without N, as for one."""
    batch = as_tensor(x)
    return function(batch) if batch.ndim != axes + 1 else function(batch.unsqueeze(0)).squeeze(0)


if TYPE_CHECKING:  # numpy.random is imported when it is first used
    Seed: TypeAlias = np.random.Generator | int | None

_lock = Lock()
_shared: np.random.Generator | None = None


def seed(n: int = 0) -> None:
    """Restart the shared generator that provides the initial values of layers without `rng`.

    Layers draw from it in the order of their creation. It starts with seed 0 when simfloat.nn is imported.

    Parameters:
        n: the seed, an integer from 0.

    Raises:
        ValueError: if n is not an integer from 0.

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
    """Return the generator for `rng`: a generator itself, a new one for an integer seed, the shared one for None.

    A generator hands out each value once, even if several threads draw from it.
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
        raise ValueError(f"rng must be a NumPy generator or a seed, an integer from 0; got {rng!r}.")
    return np.random.default_rng(int(rng))
