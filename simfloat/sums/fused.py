"""Sums of several products at once, aligned and cut off, as tensor cores make them, and units of one's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.machines import Device
from simfloat.arithmetic.operands import FloatType, empty
from simfloat.common import is_integer
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even, toward_zero
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import MODES, RoundingLike, as_rounding
from simfloat.sums.accumulator import Accumulator, Engine, Region, kernel_region, whole_steps
from simfloat.sums.bounds import Bounds, format_bounds
from simfloat.sums.integers import choose_integer_engine, cut_to_tf32
from simfloat.sums.operands import Problem

#: FP32 cut to 14 significant bits, as FP8 units of Ada and Hopper give it.
E8M13 = Format(8, 13)

#: Products of a tile from which on a look at its operands is worth what it spares: the care for infinities and NaN.
LEAST_FOR_FINITE_TEST = 1 << 16

#: Products lie inside these powers of two, and so do the powers that zeros take part with.
EXPONENT_RANGE = 800


def fused(
    terms: int,
    fraction_bits: int,
    output: FormatLike = FP32,
    *,
    rounding: RoundingLike | None = None,
    align: RoundingLike = toward_zero,
    zero_exponent: int | None = None,
) -> Fused:
    """Chunks of `terms` products and the sum so far, aligned to the largest exponent, cut, added and rounded.

    Every exact product and the sum so far are taken to multiples of 2^(e - fraction_bits), where e is the largest of
    their exponents, and added without error. `align` says how: toward_zero, which cuts them off, nearest_even, or
    to_odd, which sets the last bit that is kept where there is anything below it: a sticky bit. A product's exponent
    is the sum of its operands' exponents, read as at least emin of the format that they are rounded to (`inputs` of
    matmul; without it that of their float32 or float64 array), and that of the sum so far is read as at least emin of
    `output`. A zero takes part with 2^zero_exponent, or, by default, not at all. A short last chunk is padded with
    zeros.

    The total is rounded to `output`, any format, in the mode `rounding`, any mode; stochastic ones draw once a chunk.
    By default, as tensor cores do it, that is toward zero to FP32 and Format(8, 13), where a total beyond the largest
    number becomes infinite, while ``rounding=toward_zero`` stops there; and to nearest even to other formats. Zeros
    are +0.

    This is T-FDPA of Xie et al., MMA-Sim (arXiv 2511.10909), with parts of one's own; simfloat.tensor_core has the
    numbers of real units.

    Raises ValueError for terms outside 1 to 1024, fraction_bits outside 1 to 40, zero_exponent outside -800 to 800,
    an output without numbers between 2^-800 and 2^800, and other modes as `align`.

    Examples:
        >>> four = sf.fused(4, 23)  # four products at a time, cut to 23 bits below the largest
        >>> sf.dot([2.0**24, 1.0, 1.0, 1.0], np.ones(4), accumulate=four)
        array(16777216.)
        >>> rounded = sf.fused(4, 4, sf.BF16, align=sf.nearest_even)
        >>> sf.dot([16.0, 0.75, 0.75, 0.75], np.ones(4), accumulate=rounded)
        array(19.)
        >>> sf.dot([16.0, 0.75, 0.75, 0.75], np.ones(4), accumulate=sf.fused(4, 4, sf.BF16))
        array(16.)
    """
    rounding = None if rounding is None else as_rounding(rounding)
    return Fused(
        terms,
        fraction_bits,
        as_format(output),
        rounding=rounding,
        align=as_rounding(align, "align"),
        zero_exponent=zero_exponent,
    )


@dataclass(frozen=True, repr=False)
class Fused(Accumulator):
    """See :func:`fused`."""

    terms: int
    fraction_bits: int
    output: Format = FP32
    rounding: Rounding | None = field(default=None, kw_only=True)
    align: Rounding = field(default=toward_zero, kw_only=True)
    zero_exponent: int | None = field(default=None, kw_only=True)

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "fused"

    def __post_init__(self) -> None:
        _check_integer("terms", self.terms, 1, 1024)
        _check_integer("fraction_bits", self.fraction_bits, 1, 40)
        if self.zero_exponent is not None:
            _check_integer("zero_exponent", self.zero_exponent, -EXPONENT_RANGE, EXPONENT_RANGE)
        for name in ("terms", "fraction_bits", "zero_exponent"):  # NumPy's integers print as what they are
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else int(value))
        # A chunk's total would be rounded to a largest or a smallest number that the next chunk cannot be scaled with.
        if self.output.max < 2.0**-EXPONENT_RANGE or self.output.smallest_subnormal > 2.0**EXPONENT_RANGE:
            raise ValueError(
                f"output must have numbers between 2^-{EXPONENT_RANGE} and 2^{EXPONENT_RANGE}; those of {self.output} "
                f"reach from {self.output.smallest_subnormal} to {self.output.max}."
            )
        if not self.align.aligns:
            # The default comes first.
            *most, last = sorted(
                filter(lambda mode: Rounding(mode).aligns, MODES), key=lambda mode: mode != toward_zero.mode
            )
            raise ValueError(
                f"align must be {', '.join(most)} or {last}, how terms are taken to the last bit that is kept; "
                f"got {self.align!r}."
            )

    @property
    def needs_narrow_operands(self) -> bool:
        """Its products are exact float64 numbers."""
        return True

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.output

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """That of a chunk's total, if it is not as hardware has it."""
        return () if self.rounding is None else (self.rounding,)

    @property
    def stages(self) -> int:
        """Chunks draw from one stage, where they draw."""
        return int(self.mode.is_stochastic)

    def steps(self, terms: int) -> int:
        """A step is a chunk."""
        return whole_steps(self.roundings, -(-terms // self.terms))

    @property
    def chunk(self) -> int:
        """The products of a chunk."""
        return self.terms

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """What is known of sums of so many such products: cutting does not make them larger."""
        # Other modes may round up at every chunk, in the end to the largest number: all that is known is the format.
        is_inward = self.align == toward_zero and self.mode in (nearest_even, toward_zero)
        return products.after_summation(terms).within_format(self.output) if is_inward else format_bounds(self.output)

    def engine_for_all(self, a: Format, b: Format) -> Engine | None:
        """The loop, where it takes all products of numbers of the formats."""
        products = format_bounds(a).product_bounds(format_bounds(b))
        # Formats of wide range have products that this loop does not take, although most
        # operands' are taken: then the bounds of the operands decide.
        if not _are_exact_products(products):
            return None
        in_float32 = a.fits_float32 and b.fits_float32
        return self.choose_engine((a.precision, b.precision), (a.emin, b.emin), in_float32)

    def engine(self, problem: Problem) -> Engine:
        """The loop, which needs products that float64 holds."""
        products = problem.products
        if not _are_exact_products(products):
            raise ValueError(
                f"A fused sum needs exact products of at most 53 bits within 2^-{EXPONENT_RANGE} to "
                f"2^{EXPONENT_RANGE}; these have up to {products.precision} bits and reach from 2^{products.low} to "
                f"2^{products.high}. Pass inputs=."
            )
        if problem.initial is not None and not _is_near_one(problem.initial):
            raise ValueError(
                f"initial= of a fused sum must hold numbers within 2^-{EXPONENT_RANGE} to 2^{EXPONENT_RANGE}."
            )
        in_float32 = problem.a.in_float32 and problem.b.in_float32
        least = problem.a.known_or_array_format.emin, problem.b.known_or_array_format.emin
        return self.choose_engine((problem.a.bounds.precision, problem.b.bounds.precision), least, in_float32)

    def choose_engine(
        self, precisions: tuple[int, int], least: tuple[int, int], in_float32: bool = True, dropped: int = 0
    ) -> Engine:
        """The engine for operands of these significant bits and least exponents, that float32 holds or does not."""
        wide = FusedEngine(self, least, cuts_to_tf32=dropped > 0)
        return choose_integer_engine(wide, self, precisions, least, dropped) if in_float32 else wide

    @cached_property
    def mode(self) -> Rounding:
        """The mode in which totals are rounded."""
        if self.rounding is not None:
            return self.rounding
        return toward_zero if self.output in (FP32, E8M13) else nearest_even

    @cached_property
    def conversion(self) -> str:
        """How totals are taken to the output format: a name of `kernels.units.aligned.ROUNDINGS`."""
        mode, output = self.mode, self.output
        if self.rounding is None and mode == toward_zero:
            return "truncated"
        if self._is_exact:
            return "nearest"
        return kernels.rounding.grid.way_of(mode) if kernels.rounding.grid.has_plain_grid(output, mode) else "general"

    @cached_property
    def unit(self) -> NDArray[np.float64]:
        """The numbers that kernels read of a fused sum."""
        zero = kernels.units.aligned.NOTHING if self.zero_exponent is None else 2.0 ** int(self.zero_exponent)
        how = kernels.units.aligned.codes_of_unit(self.align.steps, self.conversion)
        return np.array([self.terms, 2.0 ** int(self.fraction_bits), 2.0**self.output.emin, zero, *how])

    @cached_property
    def grid(self) -> NDArray[np.float64]:
        """The numbers of the output format, and how they are picked."""
        return kernels.rounding.grid.pack_grid(self.output, nearest_even if self._is_exact else self.mode)

    @property
    def _is_exact(self) -> bool:
        """Whether totals, which have at most 53 bits, are numbers of the output: in every mode they are themselves."""
        return self.output == FP64 and not self.mode.saturates


def _are_exact_products(products: Bounds) -> bool:
    """Whether a fused sum is computed exactly from such products."""
    return products.precision <= 53 and _is_near_one(products)


def _is_near_one(numbers: Bounds) -> bool:
    """Whether scaling such numbers by powers of two keeps them inside float64."""
    return numbers.low >= -EXPONENT_RANGE and numbers.high <= EXPONENT_RANGE


def _check_integer(name: str, value: object, least: int, most: int) -> None:
    if not is_integer(value, least, most):
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}.")


class FusedEngine(NamedTuple):
    """Finds the exponents of the operands, then sums."""

    fused: Fused
    least: tuple[int, int]  # emin of the user's left and right operand
    block: int = 1  # products a scale
    cuts_to_tf32: bool = False  # a TF32 unit cuts float32 operands
    carrier: FloatType = np.float64
    cost: float = 0.3

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        machine = region.machine
        if self.cuts_to_tf32:
            a, b = cut_to_tf32(a), cut_to_tf32(b)
        # A product's exponent is that of its operands' formats, and a
        # tile of the transposed product has them exchanged.
        left, right = reversed(self.least) if region.is_transposed else self.least
        a_powers, b_powers = binade_powers(a, left, machine), binade_powers(b, right, machine)
        if region.scales is not None:
            # Powers of two: a scaled product's exponent is the sum of all four.
            s, t = (np.repeat(x, self.block, axis) for x, axis in zip(region.scales, (1, 0), strict=True))
            s, t = s[:, : a.shape[1]], t[: b.shape[0]]
            a, b, a_powers, b_powers = a * s, b * t, a_powers * s, b_powers * t
        # The power of an infinity or of NaN is not finite. Where all powers are, the loop
        # leaves out a second sum, which finds what IEEE 754 makes of them.
        many = a.size * b.shape[1] >= LEAST_FOR_FINITE_TEST
        finite = many and bool(a_powers.max() < np.inf and b_powers.max() < np.inf)
        loop = machine.loops.fused_loops.loops[self.fused.align.steps][self.fused.conversion]
        loop(a, b, a_powers, b_powers, out, self.fused.unit, self.fused.grid, finite, *kernel_region(region))


def binade_powers(x: NDArray, emin: int, device: Device) -> NDArray[np.float64]:
    """The power of two at or below every magnitude, at least 2^emin; 0 for zeros."""
    out = empty(x.shape, np.float64, device)
    device.loops.fused_loops.fill_powers(x, 2.0**emin, out)
    return out
