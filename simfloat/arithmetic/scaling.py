"""Scalings of whole operands, and the random Hadamard transform.

A scaling multiplies values before a cast rounds them, so that they fill the range of a narrow format. The transform
spreads outliers over their block before operands are rounded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.common import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, Format, Rounding

#: The range of scales: the positive float32 numbers.
SMALLEST, LARGEST = np.float32(FP32.smallest_subnormal), np.float32(FP32.max)

#: The largest margin; a larger one would leave nothing of the range of any format.
MOST_MARGIN = 64

#: The default length of the history in TransformerEngine's DelayedScaling.
HISTORY = 1024


class Scaling:
    """The rule by which a cast finds its scales: :func:`per_tensor`, :func:`delayed` or :func:`block`."""

    @property
    def is_whole(self) -> bool:
        """True if there is a scale of the whole operand, by which sums are divided at the end."""
        return True

    def check(self, format: Format) -> None:
        """Raise ValueError for a format that it cannot scale to."""
        if not format.fits_float32:
            raise ValueError(f"Values can be scaled to formats that float32 can represent, got {format}.")


class WholeScaling(Scaling, ABC):
    """A scaling with one scale for all elements of an operand."""

    @abstractmethod
    def scale(self, x: NDArray, format: Format, history: AmaxHistory | None) -> float:
        """Return the scale of the operand `x`: a positive float32 number."""


def per_tensor() -> PerTensor:
    """Scale each operand by s = max / amax: the largest number of the format over the largest magnitude of the operand.

    amax is rounded to float32, and the quotient is a float32 division, limited to the positive float32 numbers. If amax
    is then zero, infinite or NaN, s is 1: zeros stay zeros, and a saturating cast turns infinities into +-max.

    Returns:
        A scaling for the option `scale` of :func:`cast`.

    Source: TransformerEngine, Float8CurrentScaling.

    Examples:
        >>> sf.dot([1e-9, 2e-9], [1.0, 1.0], inputs=sf.E4M3, accumulate=sf.FP32)
        array(0.)
        >>> sf.dot([1e-9, 2e-9], [1.0, 1.0], inputs=sf.scaled(sf.E4M3, sf.per_tensor()), accumulate=sf.FP32)
        array(3.00000003e-09)
    """
    return PerTensor()


@dataclass(frozen=True)
class PerTensor(WholeScaling):
    """See :func:`per_tensor`."""

    def scale(self, x: NDArray, format: Format, history: AmaxHistory | None) -> float:
        """Return max / amax of `x` itself."""
        amax = largest_magnitude(x)
        return float(scale_quotients(format.max, amax)) if np.isfinite(amax) and amax > 0 else 1.0

    def __repr__(self) -> str:
        return "per_tensor()"


def delayed(history: int = HISTORY, margin: int = 0) -> Delayed:
    """Scale each operand by a factor computed from earlier operands: s = max / 2^margin / amax.

    amax is the largest magnitude of the last `history` operands of this use, rounded to float32; the first s is 1. A
    use is one operand of one operation, in one phase, of the layer at one path, and has its own history. If the last
    `history` operands are all zeros, or if they contain an infinity or a NaN, s keeps its last value. s is a float32
    quotient, limited to the positive float32 numbers.

    The present operand does not determine its own scale. An element x saturates if x s is beyond the largest number of
    the format: in the first call if abs(x) > max, and later if abs(x) > 2^margin amax. A margin of 1 therefore allows
    operands to become twice as large before they saturate.

    Histories are part of the state of a simulation, and outside of `simulate` this scaling raises ValueError.
    ``sim.state["casts"]``, or ``run.state["casts"]`` for a PyTorch model, is a list with a dictionary for each use: its
    `path`, `phase` and `operation`; for a product of the backward pass the index `operand` of the operand whose
    gradient it computes; the `factor`, 0 for the left factor of the product and 1 for the right one; its `amaxes`; and
    `greatest`, the amax of the next scale.

    Parameters:
        history: the number of earlier operands that count.
        margin: the binades of the range that stay unused, an integer from -64 to 64.

    Returns:
        A scaling for the option `scale` of :func:`cast`.

    Raises:
        ValueError: if `history` is not a positive integer, or `margin` is not an integer from -64 to 64.

    Source: TransformerEngine, DelayedScaling.

    Examples:
        >>> sf.scaled(sf.E4M3, sf.delayed(history=16))
        cast(Format(4, 3, special='fn', name='E4M3'), scale=delayed(history=16))
        >>> sf.policies["fp8-delayed"].compute == sf.scaled(sf.E4M3, sf.delayed())
        True
        >>> with sf.simulate("fp8-delayed") as sim:
        ...     y = sf.nn.Linear(2, 1, rng=0)(np.array([[3.5, -1.0]]))
        >>> [sf.E4M3.max / use["greatest"] for use in sim.state["casts"] if use["factor"] == 0]  # the next scale of x
        [128.0]
    """
    return Delayed(history, margin)


@dataclass(frozen=True)
class Delayed(WholeScaling):
    """See :func:`delayed`."""

    history: int = HISTORY
    margin: int = 0

    def __post_init__(self) -> None:
        if not is_integer(self.history, 1):
            raise ValueError(f"history must be a positive integer, the operands that count; got {self.history!r}.")
        if not is_integer(self.margin, -MOST_MARGIN, MOST_MARGIN):
            raise ValueError(f"margin must be an integer from -{MOST_MARGIN} to {MOST_MARGIN}; got {self.margin!r}.")

    def scale(self, x: NDArray, format: Format, history: AmaxHistory | None) -> float:
        """Return the scale that follows from the history; then append the largest magnitude of `x` to the history."""
        if history is None:
            raise ValueError(
                "A delayed scaling is computed from earlier operands, which a simulation stores: use it in a policy "
                "inside `with simfloat.simulate(policy):`, or scale by simfloat.per_tensor()."
            )
        amax = history.greatest
        history.append(largest_magnitude(x), self.history)
        return 1.0 if amax is None else float(scale_quotients(format.max * 2.0**-self.margin, amax))

    def __repr__(self) -> str:
        values = {"history": (self.history, HISTORY), "margin": (self.margin, 0)}
        options = [f"{name}={value}" for name, (value, default) in values.items() if value != default]
        return f"delayed({', '.join(options)})"


class AmaxHistory:
    """The largest magnitudes of the last operands of one use, the newest last; None for a magnitude that is not finite.

    `greatest` is the amax from which scales are computed: the largest entry at the last time when all were finite and
    one was above zero.
    """

    __slots__ = ("amaxes", "greatest")

    def __init__(self) -> None:
        self.amaxes: list[float | None] = []
        self.greatest: float | None = None

    def copy(self) -> AmaxHistory:
        """Return another history with the same magnitudes."""
        history = AmaxHistory()
        history.amaxes, history.greatest = list(self.amaxes), self.greatest
        return history

    def append(self, amax: np.float32, length: int) -> None:
        """Append the newest magnitude; keep the last `length` of them."""
        self.amaxes.append(float(amax) if np.isfinite(amax) else None)
        del self.amaxes[:-length]
        numbers = [number for number in self.amaxes if number is not None]
        if len(numbers) == len(self.amaxes) and max(numbers) > 0:
            self.greatest = max(numbers)


def check_saturates(rounding: Rounding) -> None:
    """Raise ValueError if overflow must become an infinity: scaled values are always clamped."""
    if rounding.overflows:
        raise ValueError(
            f"Scaled values that overflow are clamped to the largest number, and {rounding} turns overflow into an "
            "infinity. Leave .overflowing() out."
        )


def largest_magnitude(x: NDArray) -> np.float32:
    """Return the largest magnitude, rounded to float32; 0 for an empty array, NaN if an element is NaN."""
    if x.size == 0:
        return np.float32(0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.float32(float(np.maximum(np.max(x), -np.min(x))))


def scale_quotients(most: float, amax: Any) -> Any:
    """Return most / amax for float32 values `amax`, rounded once to float32 and limited to its positive numbers."""
    with np.errstate(all="ignore"):  # float64 has enough bits, and the exponent range for a `most` with a margin
        return np.clip((np.float64(most) / amax).astype(np.float32), SMALLEST, LARGEST)


#: The sizes. Their square roots are powers of two, so the elements of the matrix are powers of two as well.
SIZES = (4, 16, 64)


@in_usual_environment
def hadamard(size: int = 16) -> Hadamard:
    """Make a random Hadamard transform: each run of `size` values along k is multiplied by D H / sqrt(size).

    H is Sylvester's matrix of ones and minus ones. D is a diagonal of random signs, the same throughout a simulation.
    As the role `rotation` of a policy, the transform is applied to both operands of the products that give the gradient
    of a parameter, before they are rounded. It does not change the exact product, and spreads outliers over a run. Each
    transformed value is the exact sum, rounded once to FP32. A short last run is filled with zeros. To exclude layers,
    use an override with ``rotation=None``.

    Parameters:
        size: the length of a run: 4, 16 or 64.

    Returns:
        The transform, for the role `rotation` of a policy.

    Raises:
        ValueError: if `size` is not 4, 16 or 64.

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
        """Return D H / sqrt(size). Its rows have random signs: + if the first bit of a word of this seed is 0."""
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
