"""Sums in ascending order of k, rounded at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.accumulator import Engine, Operands, Place, kernel_place, whole_steps
from simfloat.accumulate.carrier import CARRIERS, quickest_step
from simfloat.accumulate.facts import Facts, terms_and_sums
from simfloat.arithmetic.exactness import check_precision, odd_suffices
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even


def sequential(
    format: Format | str, *, rounding: Rounding = nearest_even, products: Format | str | None = None
) -> Sequential:
    """Sum over ascending k from +0: sum = round(sum + a * b), in `format`.

    The product is exact, as in a fused multiply-add, or first rounded to the format `products`. Signs of zero follow
    IEEE 754-2019 section 6.3: under toward_negative +0 + -0 and x - x are -0.

    Raises ValueError for formats of more than 50 bits of precision, FP64 under nearest_even excepted.
    """
    return Sequential(as_format(format), rounding, None if products is None else as_format(products))


@dataclass(frozen=True)
class Sequential:
    """See :func:`sequential`."""

    format: Format
    rounding: Rounding = nearest_even
    products: Format | None = None

    scales: ClassVar[None] = None

    def __post_init__(self) -> None:
        for format in self._formats:
            check_precision(format, self.rounding)

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.format

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """One mode for products and sums."""
        return (self.rounding,)

    @property
    def stages(self) -> int:
        """One for the sums and one for the products."""
        return 2

    @property
    def _formats(self) -> tuple[Format, ...]:
        return (self.format,) if self.products is None else (self.format, self.products)

    def steps(self, terms: int) -> int:
        """One a product."""
        return whole_steps(terms)

    def sums(self, products: Facts, terms: int) -> Facts:
        """What is known of sums of so many such products."""
        _, sums = terms_and_sums(products, terms, self.format, self.rounding, self.products)
        return sums.numbers_of(self.format)

    def engine(self, operands: Operands) -> Engine:
        """The fastest loop that is exact for such operands."""
        if self._hardware is np.float64 or (self._hardware is np.float32 and operands.are_float32):
            return _loop(self, "native", self._hardware)
        return _engine(self, operands.a, operands.b, operands.depth)

    @cached_property
    def _hardware(self) -> FloatType | None:
        """The type whose fused multiply-add is the step that is wanted, if there is one."""
        if self.rounding != nearest_even or self.products is not None:
            return None
        return np.float64 if self.format == FP64 else np.float32 if self.format == FP32 else None

    def _quickest(self, a: Facts, b: Facts, depth: int) -> Engine:
        """The fastest loop that is exact for sums of so many products of numbers of `a` and `b`."""
        if self._hardware is np.float32 and CARRIERS[0].holds(a) and CARRIERS[0].holds(b):
            return _loop(self, "native", np.float32)
        terms, sums = terms_and_sums(a.times(b), depth, self.format, self.rounding, self.products)
        step = quickest_step(self._formats, self.rounding, (a, b), terms, sums)
        if step is None:
            return _Wide(self, *self._grids)
        name = f"{'fused' if self.products is None else 'unfused'}_{step.kind}"
        if self.rounding.is_stochastic:
            return _Random(self, name, *self._grids)
        return _loop(self, name, step.carrier, step.top)

    @property
    def _grids(self) -> tuple[NDArray, NDArray]:
        numbers = kernels.grid.numbers
        return numbers(self.format, self.rounding), numbers(self.products or self.format, self.rounding)

    def __repr__(self) -> str:
        return f"sequential({self.format!r}{self._options(repr)})"

    def __str__(self) -> str:
        return f"sequential({self.format}{self._options(str)})"

    def _options(self, text: Callable[[Format], str]) -> str:
        rounding = "" if self.rounding == nearest_even else f", rounding={self.rounding!r}"
        return rounding + ("" if self.products is None else f", products={text(self.products)}")


@lru_cache(maxsize=4096)
def _engine(accumulator: Sequential, a: Facts, b: Facts, depth: int) -> Engine:
    """`Sequential._quickest`, remembered: the proofs take longer than a small product."""
    return accumulator._quickest(a, b, depth)


class _Loop(NamedTuple):
    """A deterministic loop with the numbers it reads."""

    carrier: FloatType
    loop: Callable
    grid: NDArray
    products: NDArray
    sign: np.floating
    cost: float = 0.1

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        self.loop(a, b, out, self.grid, self.products, self.sign)


@lru_cache(maxsize=1024)
def _loop(accumulator: Sequential, step: str, carrier: FloatType, top: int | None = None) -> _Loop:
    """The loop of a deterministic step; `top` bounds its sums' exponents, but for the hardware's own steps."""
    mode, grid = accumulator.rounding, kernels.grid
    formats = (accumulator.format, accumulator.products or accumulator.format)
    if top is None:
        sums, products = (grid.numbers(format, mode).astype(carrier) for format in formats)
    else:
        sums, products = (grid.numbers_below(format, mode, top, carrier) for format in formats)
    sign = carrier(-1 if mode.mode == "toward_negative" else 1)
    cost = 0.03 if step == "native" else 0.5 if step.endswith(("directed", "to_odd")) else 0.2
    return _Loop(carrier, kernels.sequential.steps[step], sums, products, sign, cost)


class _Random(NamedTuple):
    """A loop that draws."""

    accumulator: Sequential
    step: str
    grid: NDArray
    products: NDArray
    carrier: FloatType = np.float64
    cost: float = 1.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        loop = kernels.sequential.random_steps[self.step]
        loop(a, b, out, self.grid, self.products, *kernel_place(place))


class _Wide(NamedTuple):
    """The loop for any operands, any grid and any mode."""

    accumulator: Sequential
    grid: NDArray
    products: NDArray
    carrier: FloatType = np.float64
    cost: float = 40.0

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        rounding, formats = self.accumulator.rounding, self.accumulator._formats
        sign = -1.0 if rounding.mode == "toward_negative" else 1.0
        pair = rounding.is_stochastic and not all(odd_suffices(format, rounding) for format in formats)
        rounds_products = self.accumulator.products is not None
        kernels.sequential.sequential_wide(
            a, b, out, self.grid, self.products, sign, *kernel_place(place), pair, rounds_products
        )
