"""Sums of several products at once, aligned and cut off, as tensor cores make them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.accumulator import Engine, Operand, Operands, Place, whole_steps
from simfloat.accumulate.facts import Facts
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import FP16, FP32, FP64, Format, Rounding, as_format, nearest_even

#: FP32 cut to 14 significant bits, as FP8 units of Ada and Hopper give it.
E8M13 = Format(8, 13)

#: What zeros take part with where they take no part.
NO_POWER = 2.0**-900


def fused(terms: int, fraction_bits: int, output: Format | str = FP32, *, zero_exponent: int | None = None) -> Fused:
    """Chunks of `terms` products and the sum so far, aligned to the largest exponent, cut, added and rounded.

    Every exact product and the sum so far are truncated toward zero to multiples of 2^(e - fraction_bits), where e is
    the largest of their exponents, and added without error. The total is rounded toward zero to FP32 or Format(8, 13)
    (beyond the largest number it becomes infinite), or to nearest even to FP16; zeros are +0. A product's exponent is
    the sum of its operands' exponents, read as at least emin of the format that they are rounded to (`inputs` of
    matmul; without it that of their float32 or float64 array). A zero takes part with 2^zero_exponent, or, by
    default, not at all. This is T-FDPA of Xie et al., MMA-Sim (arXiv 2511.10909); simfloat.tensor_core has the
    numbers of real units. A short last chunk is padded with zeros.

    Raises ValueError for other outputs, terms outside 1 to 1024, or fraction_bits outside 1 to 40.
    """
    output = as_format(output)
    for name, value, most in (("terms", terms, 1024), ("fraction_bits", fraction_bits, 40)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 1 <= value <= most:
            raise ValueError(f"{name} must be an integer from 1 to {most}, got {value!r}.")
    if output not in (FP32, FP16, E8M13):
        raise ValueError(f"A fused sum comes in FP32, FP16 or Format(8, 13), got output={output}.")
    if zero_exponent is not None and not isinstance(zero_exponent, int | np.integer):
        raise ValueError(f"zero_exponent must be an integer or None, got {zero_exponent!r}.")
    return Fused(int(terms), int(fraction_bits), output, None if zero_exponent is None else int(zero_exponent))


@dataclass(frozen=True)
class Fused:
    """See :func:`fused`."""

    terms: int
    fraction_bits: int
    output: Format = FP32
    zero_exponent: int | None = None

    scales: ClassVar[None] = None
    stages: ClassVar[int] = 0
    roundings: ClassVar[tuple[Rounding, ...]] = ()

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.output

    def steps(self, terms: int) -> int:
        """One a product."""
        return whole_steps(terms)

    def sums(self, products: Facts, terms: int) -> Facts:
        """What is known of sums of so many such products: cutting does not make them larger."""
        return products.summed(terms).numbers_of(self.output)

    def engine(self, operands: Operands) -> Engine:
        """The loop, which needs products that float64 holds."""
        x, y = operands.x, operands.y
        products = operands.products
        if products.precision > 53 or products.low < -800 or products.high > 800:
            raise ValueError(
                f"A fused sum needs exact products of at most 53 bits within 2^-800 to 2^800; these have up to "
                f"{products.precision} bits and reach from 2^{products.low} to 2^{products.high}. Pass inputs=."
            )
        finite = operands.a.finite and operands.b.finite
        return FusedEngine(self, (_format(x).emin, _format(y).emin), finite)

    @cached_property
    def unit(self) -> NDArray[np.float64]:
        """The fields of kernels.fused.Unit."""
        zero = NO_POWER if self.zero_exponent is None else 2.0**self.zero_exponent
        return np.array([self.terms, 2.0**self.fraction_bits, 2.0**self.output.emin, zero])

    @cached_property
    def grid(self) -> NDArray[np.float64]:
        """The numbers of the output format."""
        return kernels.grid.numbers(self.output, nearest_even)

    def __repr__(self) -> str:
        zero = "" if self.zero_exponent is None else f", zero_exponent={self.zero_exponent}"
        return f"fused({self.terms}, {self.fraction_bits}, {self.output!r}{zero})"

    def __str__(self) -> str:
        zero = "" if self.zero_exponent is None else f", zero_exponent={self.zero_exponent}"
        return f"fused({self.terms}, {self.fraction_bits}, {self.output}{zero})"


class FusedEngine(NamedTuple):
    """Finds the exponents of the operands, then sums."""

    fused: Fused
    least: tuple[int, int]  # emin of the left and of the right operand
    finite: bool
    block: int = 1  # products a scale
    cuts: bool = False  # a TF32 unit cuts float32 operands
    carrier: FloatType = np.float64
    cost: float = 0.3

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        if self.cuts:
            a, b = cut_to_tf32(a), cut_to_tf32(b)
        left, right = reversed(self.least) if place.swapped else self.least
        a_powers, b_powers = powers(a, left), powers(b, right)
        if place.scales is not None:
            # Powers of two: a scaled product's exponent is the sum of all four.
            s, t = (np.repeat(x, self.block, axis) for x, axis in zip(place.scales, (1, 0), strict=True))
            s, t = s[:, : a.shape[1]], t[: b.shape[0]]
            a, b, a_powers, b_powers = a * s, b * t, a_powers * s, b_powers * t
        loop = kernels.fused.loops["nearest" if self.fused.output == FP16 else "truncated"]
        loop(a, b, a_powers, b_powers, out, self.fused.unit, self.fused.grid, self.finite)


def cut_to_tf32(x: NDArray) -> NDArray[np.float64]:
    """float32 numbers without their last 13 bits, which a TF32 unit does not read."""
    image = x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), np.nan, image.view(np.float32)).astype(np.float64)


def _format(operand: Operand) -> Format:
    """The format that an operand was rounded to, or else that of its array."""
    return operand.format or (FP32 if operand.array.dtype == np.float32 else FP64)


def powers(x: NDArray, emin: int) -> NDArray[np.float64]:
    """The power of two at or below every magnitude, at least 2^emin; 0 for zeros."""
    out = np.empty(x.shape)
    kernels.fused.powers_of(x, 2.0**emin, out)
    return out
