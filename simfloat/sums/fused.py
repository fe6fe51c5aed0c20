"""Sums of several products at once, aligned and truncated as in tensor cores, and custom matrix units."""

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

#: FP32 truncated to 14 significant bits, the format of sums in the FP8 units of Ada and Hopper.
E8M13 = Format(8, 13)

#: The number of products of a tile above which its operands are tested for infinities and NaN, to skip their handling.
LEAST_FOR_FINITE_TEST = 1 << 16

#: log2 of the range of products, and of the powers of two that represent zeros.
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
    """Sum chunks of products as tensor cores do: align them to the largest exponent, truncate, add, and round once.

    A step takes `terms` products and the partial sum. Let e be the largest of their exponents. Each exact product and
    the partial sum are rounded to multiples of 2^(e - fraction_bits), in the mode `align`, and are added without error.
    Then the total is rounded to `output`. A short last chunk is padded with zeros. Zero results are +0.

    The exponent of a product is the sum of the exponents of its operands. An exponent below emin counts as emin: for
    operands, emin of the format that they are rounded to (`inputs` of matmul, or otherwise the dtype of the array); for
    the partial sum, emin of `output`.

    This is T-FDPA of Xie et al., MMA-Sim (arXiv 2511.10909), with free parameters; simfloat.tensor_core has the
    parameters of real hardware.

    Parameters:
        terms: the number of products of a chunk, 1 to 1024.
        fraction_bits: the number of bits that are kept below the largest exponent, 1 to 40.
        output: the format that totals are rounded to, or its name.
        rounding: the mode of this rounding; a stochastic mode uses one draw per chunk. By default, as in tensor cores,
            totals are truncated to FP32 and Format(8, 13), and are rounded to nearest even to other formats. The
            default truncation returns infinity for a total beyond the largest number, while ``rounding=toward_zero``
            returns the largest number.
        align: the mode of the alignment: toward_zero truncates, nearest_even rounds, toward_negative rounds down, as a
            shift of a two's complement number does, and to_odd sets the last bit that is kept if any bit below it is
            set (a sticky bit).
        zero_exponent: a zero takes part in the alignment with this exponent, -800 to 800; by default not at all.

    Returns:
        The accumulator.

    Raises:
        ValueError: if `terms`, `fraction_bits` or `zero_exponent` is out of range, or another mode is passed as
            `align`.
        ValueError: if `output` has no numbers between 2^-800 and 2^800.

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
        for name in ("terms", "fraction_bits", "zero_exponent"):  # NumPy integers become Python integers for printing
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else int(value))
        # Without this, the total of a chunk could be rounded to a number that the next chunk cannot be scaled with.
        if self.output.max < 2.0**-EXPONENT_RANGE or self.output.smallest_subnormal > 2.0**EXPONENT_RANGE:
            raise ValueError(
                f"output must have numbers between 2^-{EXPONENT_RANGE} and 2^{EXPONENT_RANGE}; those of {self.output} "
                f"reach from {self.output.smallest_subnormal} to {self.output.max}."
            )
        self.mode.check_overflow(self.output)
        if not self.align.aligns:
            # The default is named first.
            *most, last = sorted(
                filter(lambda mode: Rounding(mode).aligns, MODES), key=lambda mode: mode != toward_zero.mode
            )
            raise ValueError(
                f"align must be {', '.join(most)} or {last}, the rounding of terms to the last bit that is kept; "
                f"got {self.align!r}."
            )

    @property
    def needs_narrow_operands(self) -> bool:
        """True: its products are exact float64 values."""
        return True

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.output

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """The mode of the total of a chunk, if it is not the default of the hardware."""
        return () if self.rounding is None else (self.rounding,)

    @property
    def stages(self) -> int:
        """The number of stages of random bits: one, for chunks, if the mode is stochastic."""
        return int(self.mode.is_stochastic)

    def steps(self, terms: int) -> int:
        """Return the number of steps; a step is a chunk."""
        return whole_steps(self.roundings, -(-terms // self.terms))

    @property
    def chunk(self) -> int:
        """The number of products of a chunk."""
        return self.terms

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return bounds on a sum of `terms` products with the given bounds: truncation does not make sums larger."""
        # Other modes may round up at every chunk, up to the largest number: then only the bounds of the format are
        # known.
        is_inward = self.align == toward_zero and self.mode in (nearest_even, toward_zero)
        return products.after_summation(terms).within_format(self.output) if is_inward else format_bounds(self.output)

    def engine_for_all(self, a: Format, b: Format) -> Engine | None:
        """Return the loop if it accepts all products of numbers of these formats, otherwise None."""
        products = format_bounds(a).product_bounds(format_bounds(b))
        # This loop does not accept all products of formats with a wide range, but it accepts the products of most
        # operands: then the bounds of the operands decide.
        if not _are_exact_products(products):
            return None
        in_float32 = a.fits_float32 and b.fits_float32
        return self.choose_engine((a.precision, b.precision), (a.emin, b.emin), in_float32)

    def engine(self, problem: Problem) -> Engine:
        """Return the loop; raise ValueError for products that float64 cannot represent."""
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
        """Return the engine for operands with these significant bits and least exponents, which may exceed float32."""
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
        """The conversion of totals to the output format: a name of `kernels.units.aligned.ROUNDINGS`."""
        mode, output = self.mode, self.output
        if self.rounding is None and mode == toward_zero:
            return "truncated"
        if self._is_exact:
            return "nearest"
        return kernels.rounding.grid.way_of(mode) if kernels.rounding.grid.has_plain_grid(output, mode) else "general"

    @cached_property
    def unit(self) -> NDArray[np.float64]:
        """The parameters of the sum that kernels read."""
        zero = kernels.units.aligned.NOTHING if self.zero_exponent is None else 2.0 ** int(self.zero_exponent)
        how = kernels.units.aligned.codes_of_unit(self.align.steps, self.conversion)
        return np.array([self.terms, 2.0 ** int(self.fraction_bits), 2.0**self.output.emin, zero, *how])

    @cached_property
    def grid(self) -> NDArray[np.float64]:
        """The packed grid of the output format and the rounding mode."""
        return kernels.rounding.grid.pack_grid(self.output, nearest_even if self._is_exact else self.mode)

    @property
    def _is_exact(self) -> bool:
        """True if totals, which have at most 53 bits, are numbers of the output format, so that no mode changes
        them."""
        return self.output == FP64 and not self.mode.saturates


def _are_exact_products(products: Bounds) -> bool:
    """True if a fused sum of such products can be computed exactly."""
    return products.precision <= 53 and _is_near_one(products)


def _is_near_one(numbers: Bounds) -> bool:
    """True if such values remain in the range of float64 when they are scaled by powers of two."""
    return numbers.low >= -EXPONENT_RANGE and numbers.high <= EXPONENT_RANGE


def _check_integer(name: str, value: object, least: int, most: int) -> None:
    if not is_integer(value, least, most):
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}.")


class FusedEngine(NamedTuple):
    """An engine that finds the exponents of the operands, then sums."""

    fused: Fused
    least: tuple[int, int]  # emin of the left and right operands of the user
    block: int = 1  # products per scale
    cuts_to_tf32: bool = False  # a TF32 unit truncates float32 operands
    carrier: FloatType = np.float64
    cost: float = 0.3

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        machine = region.machine
        if self.cuts_to_tf32:
            a, b = cut_to_tf32(a), cut_to_tf32(b)
        # The exponent of a product depends on the formats of its operands. In a tile of the transposed product these
        # are swapped.
        left, right = reversed(self.least) if region.is_transposed else self.least
        a_powers, b_powers = binade_powers(a, left, machine), binade_powers(b, right, machine)
        if region.scales is not None:
            # Scales are powers of two: the exponent of a scaled product is the sum of all four exponents.
            s, t = (np.repeat(x, self.block, axis) for x, axis in zip(region.scales, (1, 0), strict=True))
            s, t = s[:, : a.shape[1]], t[: b.shape[0]]
            a, b, a_powers, b_powers = a * s, b * t, a_powers * s, b_powers * t
        # The power of an infinity or of NaN is not finite. If all powers are finite, the loop omits a second sum, which
        # computes the IEEE 754 result for infinities and NaN.
        many = a.size * b.shape[1] >= LEAST_FOR_FINITE_TEST
        finite = many and bool(a_powers.max() < np.inf and b_powers.max() < np.inf)
        loop = machine.loops.fused_loops.loops[self.fused.align.steps][self.fused.conversion]
        loop(a, b, a_powers, b_powers, out, self.fused.unit, self.fused.grid, finite, *kernel_region(region))


def binade_powers(x: NDArray, emin: int, device: Device) -> NDArray[np.float64]:
    """Return the power of two at or below every magnitude, at least 2^emin; 0 for zeros."""
    out = empty(x.shape, np.float64, device)
    device.loops.fused_loops.fill_powers(x, 2.0**emin, out)
    return out
