"""The generators of initial values."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from simfloat.checks import check_count, is_integer

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
