"""What pairwise and compensated sums share: every operation is rounded to one format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.accumulator import Engine, Operands, Place, kernel_place, whole_steps
from simfloat.accumulate.carrier import quickest_step
from simfloat.accumulate.facts import Facts, terms_and_sums
from simfloat.arithmetic.exactness import check_precision, odd_suffices
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import FP32, FP64, Format, Rounding, nearest_even

#: Nanoseconds of a rounded operation, by the kind of step.
COSTS = {
    **{"native": 0.02, "plain": 0.1, "odd": 0.15, "directed": 0.4, "to_odd": 0.4},
    **{"random_plain": 1.0, "random_odd": 1.0, "wide": 30.0},
}


@dataclass(frozen=True)
class Stepwise:
    """A sum whose products and steps are all rounded to `format`; subclasses name the kernel that orders them."""

    format: Format
    rounding: Rounding = nearest_even

    #: The kernel module, how many stages of random bits it draws, and how many roundings it makes a product.
    kernel: ClassVar[str]
    stages: ClassVar[int]
    operations: ClassVar[int]
    scales: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_precision(self.format, self.rounding)

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.format

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """One mode for all operations."""
        return (self.rounding,)

    def steps(self, terms: int) -> int:
        """One a product."""
        return whole_steps(terms)

    def sums(self, products: Facts, terms: int) -> Facts:
        """What is known of sums of so many such products."""
        _, sums = _terms_and_sums(self.format, self.rounding, products, terms)
        return sums.numbers_of(self.format)

    def engine(self, operands: Operands) -> Engine:
        """The fastest loop that is exact for such operands."""
        if self.rounding == nearest_even and self.format in (FP32, FP64):
            if self.format == FP64 or operands.in_float32:
                return _engine(self, "native", np.float64 if self.format == FP64 else np.float32, None)
        return _quickest(self, operands.a, operands.b, operands.depth)

    def _options(self) -> str:
        return "" if self.rounding == nearest_even else f", rounding={self.rounding!r}"

    def __repr__(self) -> str:
        return f"{self.kernel}({self.format!r}{self._options()})"

    def __str__(self) -> str:
        return f"{self.kernel}({self.format}{self._options()})"


def _terms_and_sums(format: Format, rounding: Rounding, products: Facts, depth: int) -> tuple[Facts, Facts]:
    """Of the operands of additions, and of their sums."""
    # Corrections are a few times larger than what they correct at most.
    terms, sums = terms_and_sums(products, 4 * depth, format, rounding, format)
    # Both operands of an addition may be sums: numbers of the format.
    return terms._replace(precision=format.precision), sums


class _Loop(NamedTuple):
    """A loop with the numbers it reads."""

    carrier: FloatType
    loop: Any
    numbers: NDArray[np.floating]
    sign: np.floating
    pair: bool
    cost: float

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        where, seed = kernel_place(place)
        self.loop(a, b, out, self.numbers, self.sign, self.pair, where, seed)


@lru_cache(maxsize=1024)
def _quickest(accumulator: Stepwise, a: Facts, b: Facts, depth: int) -> _Loop:
    """The fastest loop that is exact for sums of so many products."""
    terms, sums = _terms_and_sums(accumulator.format, accumulator.rounding, a.times(b), depth)
    step = quickest_step((accumulator.format,), accumulator.rounding, (a, b), terms, sums)
    if step is None:
        return _engine(accumulator, "wide", np.float64, None)
    if accumulator.rounding.is_stochastic:
        return _engine(accumulator, f"random_{step.kind}", step.carrier, None)
    return _engine(accumulator, *step)


@lru_cache(maxsize=1024)
def _engine(accumulator: Stepwise, kind: str, carrier: FloatType, top: int | None) -> _Loop:
    format, rounding = accumulator.format, accumulator.rounding
    loops: Mapping[str, Any] = getattr(kernels, accumulator.kernel).loops
    if top is None:
        numbers = kernels.grid.numbers(format, rounding).astype(carrier)
    else:
        numbers = kernels.grid.numbers_below(format, rounding, top, carrier)
    sign = carrier(-1 if rounding.mode == "toward_negative" else 1)
    pair = rounding.is_stochastic and not odd_suffices(format, rounding)
    return _Loop(carrier, loops[kind], numbers, sign, pair, accumulator.operations * COSTS[kind])
