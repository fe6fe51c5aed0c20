"""The random Hadamard transform: it spreads outliers over their block, before operands are rounded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.environment import in_usual_environment

#: Sizes whose square root is a power of two, so that entries of the matrix are, too.
SIZES = (4, 16, 64)


@in_usual_environment
def hadamard(size: int = 16) -> Hadamard:
    """A random Hadamard transform of each run of `size` numbers along k: their products with D H / sqrt(size).

    H is Sylvester's matrix of ones and minus ones, D a diagonal of random signs, the same for all of a simulation. As
    the role `rotation` of a policy it is applied to both operands of products that give a parameter's gradient, before
    they are rounded: the exact product stays what it was, and outliers are spread over a run. Each transformed number
    is the exact sum, rounded once to FP32; a short last run is filled up with zeros. Layers that are to go without are
    overrides with ``rotation=None``.

    Raises ValueError for a size other than 4, 16 and 64.

    Sources: Pretraining Large Language Models with NVFP4, arXiv 2509.25149; TransformerEngine, NVFP4BlockScaling.

    Examples:
        >>> sf.policies["nvfp4"].rotation
        hadamard(16)
    """
    return Hadamard(size)


@in_usual_environment
@dataclass(frozen=True)
class Hadamard:
    """See :func:`hadamard`."""

    size: int = 16

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size not in SIZES:
            raise ValueError(f"The size of a Hadamard transform is 4, 16 or 64, got {self.size!r}.")

    def matrix(self, seed: int) -> NDArray[np.float32]:
        """D H / sqrt(size), whose rows have random signs: + where the first bit of a word of this seed is 0."""
        return _matrix(self.size, seed)

    def __repr__(self) -> str:
        return f"hadamard({self.size})"


@lru_cache(maxsize=64)
def _matrix(size: int, seed: int) -> NDArray[np.float32]:
    rows = np.ones((1, 1))
    while len(rows) < size:
        rows = np.block([[rows, rows], [rows, -rows]])
    signs = np.where(random_words(Draw(0, seed), 0, size) >> np.uint32(31), -1.0, 1.0)
    matrix = (signs[:, np.newaxis] * rows / np.sqrt(size)).astype(np.float32)
    matrix.flags.writeable = False
    return matrix
