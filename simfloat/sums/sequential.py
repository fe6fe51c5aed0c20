"""Sums in ascending order of k, rounded at every step, and the steps that the hardware rounds natively.

All processors round FP32 and FP64 to nearest even natively; for other steps it depends on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.operations import compute
from simfloat.arithmetic.target import Target, check_precision, odd_suffices
from simfloat.formats import BF16, FP16, FP32, FP64, Format, Rounding, as_format, nearest_even, to_odd
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.sums.accumulator import Accumulator, Around, Engine, Region, around_operands, kernel_region
from simfloat.sums.bounds import Bounds, quickest_step, terms_and_sums
from simfloat.sums.lanes import can_drop_bits, fits_when_lifted, lane_loop, lift_exponent
from simfloat.sums.operands import Problem

#: The kinds of steps that take bit patterns. The prefixes of kinds that truncate bits: of float32 sums, and of sums and
#: left factors that are multiplied by a power of two.
IMAGES, CUT, LIFTED = ("halves", "bfloats"), "cut_", "lifted_"


def hardware_kind(problem: Problem, rounding: Rounding, *formats: Format) -> str | None:
    """Return the kind of steps that the device has in hardware for these sums, rounded in `formats`; None if none."""
    loops, format = problem.device.loops, formats[0]
    if any(other != format for other in formats):
        return None
    if format == FP32 and rounding.instruction and loops.processor.COMPUTES_DIRECTED:
        return rounding.mode if problem.a.in_float32 and problem.b.in_float32 else None
    if rounding == nearest_even and format == FP16 and loops.processor.COMPUTES_FP16:
        return "halves" if _are_in_format(problem, FP16) else None
    if rounding == nearest_even and format == BF16 and loops.processor.COMPUTES_BF16 and _are_in_format(problem, BF16):
        return "bfloats"
    # A GPU's fma.rz, .rm and .rp round FP32 in the directed modes. Formats with the exponents of float32 are computed
    # by truncating bits of these results. For other formats the operands are multiplied by a power of two first, so
    # that both smallest normal numbers are the same.
    has_exponents_of_float32 = kernels.rounding.grid.has_exponents_of_float32(format)
    # In the directed modes, these instructions return the largest number on overflow, and never an infinity.
    if has_exponents_of_float32 and rounding.overflows:
        return None
    is_cut = has_exponents_of_float32 and not rounding.saturates
    kind = f"{CUT if is_cut else LIFTED}{rounding.steps}"
    if not loops.processor.COMPUTES_DIRECTED or kind not in loops.stepwise.stepwise_loops["fused"]:
        return None
    if is_cut:
        return kind if problem.a.in_float32 and problem.b.in_float32 else None
    return kind if _can_be_scaled(problem, rounding, format) else None


def _can_be_scaled(problem: Problem, rounding: Rounding, format: Format) -> bool:
    """True if truncated float32 sums, times a power of two, give these sums, and no method is faster.

    FP16 to nearest even is converted by one instruction, which is faster.
    """
    if not (can_drop_bits(format, format, rounding) and format.has_nan) or (format, rounding) == (FP16, nearest_even):
        return False
    return all(fits_when_lifted(operand, lift_exponent(format)) for operand in (problem.a, problem.b))


def _are_in_format(problem: Problem, format: Format) -> bool:
    """True if the operands and the start values of the sums are numbers of the format."""
    all_bounds = (problem.a.bounds, problem.b.bounds, problem.initial)
    return all(bounds is None or bounds.are_in_format(format) for bounds in all_bounds)


class ScalableLoop(Engine, Protocol):
    """An engine that can be scaled: its values are multiplied by a power of two."""

    def with_scaled_grids(self, factor: np.float32) -> Engine:
        """Return the engine with its grids multiplied by a power of two, `factor`."""


def hardware_engine(engine: ScalableLoop, kind: str, format: Format) -> Engine:
    """Return the engine that runs a loop of this kind on float32 arrays, for sums in a format."""
    if kind.startswith(LIFTED):
        factor = np.float32(2.0 ** lift_exponent(format))
        return around_operands(
            engine.with_scaled_grids(factor), partial(_multiply_by_power, factor), partial(_divide_by_power, factor)
        )
    if kind in IMAGES:
        return around_operands(engine, partial(_as_images, kind), partial(_write_numbers, kind), stacks=True)
    return engine


def _multiply_by_power(
    factor: np.float32, a: NDArray, b: NDArray, out: NDArray, region: Region
) -> tuple[NDArray, NDArray, NDArray]:
    """Multiply left factors and start values by a power of two, which loses no bit of them.

    It is chosen only if neither sums nor left factors leave the range of float32.
    """
    return a * factor, b, out * factor


def _divide_by_power(factor: np.float32, sums: NDArray, out: NDArray, region: Region) -> None:
    out[...] = sums * (np.float32(1.0) / factor)


def _as_images(
    kind: str, a: NDArray, b: NDArray, out: NDArray, region: Region
) -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the bit patterns of arrays, which loops of this kind take."""
    left, right, sums = (region.machine.new_array("empty", x.shape, np.uint16) for x in (a, b, out))
    image_loop = region.machine.loops.halves.image_loops[kind]
    for x, images in ((a, left), (b, right), (out, sums)):
        image_loop(x, images)
    return left, right, sums


def _write_numbers(kind: str, sums: NDArray, out: NDArray, region: Region) -> None:
    region.machine.loops.halves.number_loops[kind](sums, out)


def sequential(
    format: FormatLike, rounding: RoundingLike = nearest_even, *, products: FormatLike | None = None
) -> SequentialSum:
    """Sum over ascending k from +0: sum = round(sum + a * b), in `format`.

    The product is exact, as in a fused multiply-add, or it is first rounded to the format `products`. Signs of zero
    follow IEEE 754-2019 section 6.3: under toward_negative, +0 + -0 and x - x are -0.

    Parameters:
        format: the format of the partial sums, or its name. A fixed-point format may have at most 51 bits, or 50 if it
            is unsigned or not symmetric.
        rounding: the mode of all roundings; by default to nearest even.
        products: the format that products are rounded to before they are added; by default they are exact.

    Returns:
        The accumulator.

    Raises:
        ValueError: if `format`, `products` or `rounding` is invalid.
        ValueError: if a format has more than 50 bits of precision, except for FP64 in a deterministic mode.

    Examples:
        >>> sf.dot([0.1, 0.2], [0.3, 0.4], inputs=sf.FP16, accumulate=sf.sequential(sf.FP16, rounding=sf.toward_zero))
        array(0.10992432)
        >>> sf.dot([0.1, 0.2], [0.3, 0.4], inputs=sf.FP16, accumulate=sf.sequential(sf.FP32, products=sf.FP16))
        array(0.10995483)
    """
    products = None if products is None else as_format(products)
    return SequentialSum(as_format(format), rounding=as_rounding(rounding), products=products)


def as_accumulator(x: Accumulator | FormatLike) -> Accumulator:
    """Return the accumulator that `x` means: itself, or `sequential` for a format, its name or a dtype."""
    if isinstance(x, Accumulator):
        return x
    try:
        format = as_format(x)
    except ValueError as error:
        if isinstance(x, str):
            raise ValueError(
                f"{error} Other accumulators are values, such as "
                "simfloat.kahan(simfloat.BF16) and simfloat.tensor_core('hopper')."
            ) from None
        text = f"accumulate must be a simfloat accumulator or a format, got {x!r} of type {type(x).__name__}"
        if callable(x) and getattr(x, "__module__", "").startswith("simfloat.sums."):
            options = "sf.FP16" if x.__name__ in ("kahan", "pairwise", "sequential") else "..."
            text += f": call the function, write sf.{x.__name__}({options})"
        elif callable(x):
            text += ": to add by your function (a, b, start), write simfloat.custom(function, format)"
        raise ValueError(f"{text}.") from None
    try:
        return _sequential_in_format(format)
    except ValueError as error:
        raise ValueError(
            f"accumulate: {error} A sum that is rounded once, at its end, may have any format: "
            f"accumulate=simfloat.exact, output=simfloat.{format if format.is_fixed else repr(format)}."
        ) from None


@lru_cache(maxsize=1024)
def _sequential_in_format(format: Format) -> SequentialSum:
    return SequentialSum(format)


@dataclass(frozen=True, repr=False)
class SequentialSum(Accumulator):
    """See :func:`sequential`."""

    format: Format
    rounding: Rounding = field(default=nearest_even, kw_only=True)
    products: Format | None = field(default=None, kw_only=True)

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "sequential"
    stages: ClassVar[int] = 2  # the sums, then the products
    chunk: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for format in self._formats:
            check_precision(format, self.rounding, is_exact=True)

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.format

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """The mode of products and sums."""
        return (self.rounding,)

    @property
    def _formats(self) -> tuple[Format, ...]:
        return (self.format,) if self.products is None else (self.format, self.products)

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return bounds on a sum of `terms` products with the given bounds."""
        _, sums = terms_and_sums(products, terms, self.format, self.rounding, self.products)
        return sums.within_format(self.format)

    def engine_for_all(self, a: Format, b: Format) -> Engine | None:
        """Return the loop of the hardware's own steps if the sum needs these, for operands that its dtype can
        represent."""
        native = self._hardware_loop
        if native is None or native.carrier is np.float64 or (a.fits_float32 and b.fits_float32):
            return native
        return None

    def engine(self, problem: Problem) -> Engine:
        """Return the fastest loop that is exact for these operands."""
        native = self._hardware_loop
        if native is not None:
            if native.carrier is np.float64 or (problem.a.in_float32 and problem.b.in_float32):
                return native
        kind = hardware_kind(problem, self.rounding, *self._formats)
        if kind is not None:
            return hardware_engine(self._loop(kind, np.float32), kind, self.format)
        # Loops on lanes need few properties of the operands, and are the fastest loops that round by instructions. Only
        # for FP16 to nearest even can a conversion by the hardware be faster. Then both loops are found, and a
        # conversion is preferred.
        lanes = lane_loop(problem, self.format, self.rounding, self.products)
        may_convert = self.format == FP16 and self.rounding == nearest_even
        if lanes is not None and not may_convert:
            return lanes
        engine = _quickest_engine(self, problem.a.bounds, problem.b.bounds, problem.depth, problem.initial)
        if lanes is not None and engine.kind == "converted" and self.products is None:
            return Around(engine, partial(sum_by_conversions_or_on_lanes, lanes))
        if lanes is not None and engine.kind != "converted":
            return lanes
        if self.products is None or self.products.has_nan:
            return engine
        # A format without NaN may have no number for a product. Loops would store some number, so the operands are
        # checked before the loop runs.
        takes_negatives = self.products.signed or self.products.is_fixed  # unsigned fixed point saturates at 0
        if takes_negatives and problem.a.bounds.finite and problem.b.bounds.finite:
            return engine
        return around_operands(engine, partial(_check_products, self.products, self.rounding))

    @cached_property
    def _hardware_loop(self) -> StepLoop | None:
        """The loop of the hardware's own fused multiply-adds, or None if these are not the steps of this sum."""
        if self.rounding != nearest_even or self.format not in (FP32, FP64):
            return None
        if self.products not in (None, self.format):
            return None
        return self._loop("native", np.float64 if self.format == FP64 else np.float32)

    def _loop(self, kind: str, carrier: FloatType) -> StepLoop:
        return step_loop(self._order, self._formats, self.rounding, kind, carrier)

    @property
    def _order(self) -> str:
        return "fused" if self.products is None else "unfused"


@lru_cache(maxsize=4096)
def _quickest_engine(accumulator: SequentialSum, a: Bounds, b: Bounds, depth: int, initial: Bounds | None) -> StepLoop:
    """Return the fastest loop that is exact for these sums. Cached: the proofs take longer than a small sum."""
    formats, rounding = accumulator._formats, accumulator.rounding
    terms, sums = terms_and_sums(
        a.product_bounds(b), depth, accumulator.format, rounding, accumulator.products, initial
    )
    step = quickest_step(formats, rounding, a, b, terms, sums, initial, accumulator.products)
    if step is None:
        return accumulator._loop("wide", np.float64)
    return step_loop(accumulator._order, formats, rounding, *step, step.grid_type)


#: From LEAST_COLUMNS to below MOST_COLUMNS columns, sums in FP16 are faster on lanes than by conversions.
LEAST_COLUMNS, MOST_COLUMNS = 8, 64

#: Nanoseconds per product, by the kind of step; other kinds take 0.2.
COSTS = {
    **{"halves": 0.02, "native": 0.013, "converted": 0.08, "converted_odd": 0.1, "directed": 0.5, "sticky": 0.5},
    **{"likely": 0.4, "drawn_odd": 0.4, "drawn_sums": 0.4, "random": 0.4, "wide": 40.0},
}


class StepLoop(NamedTuple):
    """The loop of an order for a kind of steps, with the values that it reads."""

    order: str
    kind: str
    carrier: FloatType
    grid: NDArray
    products: NDArray
    sign: np.floating
    cost: float
    takes_stacks: bool
    pair: bool | None  # None for deterministic steps: their loops read neither this nor a position

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        loop = region.machine.loops.stepwise.stepwise_loops[self.order][self.kind]
        if self.pair is None:
            loop(a, b, out, self.grid, self.products, self.sign)
        else:
            loop(a, b, out, self.grid, self.products, self.sign, self.pair, *kernel_region(region))

    def with_scaled_grids(self, factor: np.float32) -> StepLoop:
        """Return the loop with its grids multiplied by a power of two, `factor`."""
        grid, products = (kernels.rounding.grid.scale_limits(numbers, factor) for numbers in (self.grid, self.products))
        return self._replace(grid=grid, products=products)


@lru_cache(maxsize=4096)
def step_loop(
    order: str,
    formats: tuple[Format, ...],
    rounding: Rounding,
    kind: str,
    carrier: FloatType,
    top: int | None = None,
    grid_type: FloatType | None = None,
) -> StepLoop:
    """Return the loop for sums in the first of `formats`, and for products in the last one.

    `top` bounds the exponents of its sums, except for the hardware's steps and for any grid. Packed grids have the
    dtype `grid_type`, or the dtype of the loop.
    """
    packed = [packed_grid(format, rounding, top, grid_type or carrier) for format in formats]
    may_draw = rounding.is_stochastic or kind == "wide"
    pair = not all(odd_suffices(format, rounding) for format in formats) if may_draw else None
    cost, takes_stacks, sign = COSTS.get(kind, 0.2), not rounding.is_stochastic, carrier(rounding.zero_sum)
    return StepLoop(order, kind, carrier, packed[0], packed[-1], sign, cost, takes_stacks, pair)


def packed_grid(format: Format, rounding: Rounding, top: int | None, dtype: FloatType) -> NDArray[np.floating]:
    """Return a packed grid in this dtype; `top` bounds the exponents of its sums, if it is known."""
    grid = kernels.rounding.grid
    if top is None:
        return grid.pack_grid_in_type(format, rounding, dtype)
    return grid.pack_grid_below(format, rounding, top, dtype)


def sum_by_conversions_or_on_lanes(
    on_lanes: Engine, converted: Engine, a: NDArray, b: NDArray, out: NDArray, region: Region
) -> None:
    """Sum in FP16 with fused multiply-adds by conversions from float32, or on lanes for a few columns.

    Measured on an AMD Zen 3, conversions are 1.1 to 1.2 times as fast as lanes at 128 x 256 x 128, 64 x 784 x 256 and
    256 x 256 x 256, 1.4 to 3 times in one row of up to 256 sums, and 1.1 times at 4 x 4 x 4. With few columns, each
    conversion waits for the one before: conversions are 0.9 times as fast as lanes at 16 x 16 x 16, 0.6 at 8 x 1024 x
    8, and 0.4 at 32 x 64 x 16 and 16 x 256 x 16.
    """
    rows, columns = out.shape
    engine = on_lanes if rows > 1 and LEAST_COLUMNS <= columns < MOST_COLUMNS else converted
    engine.run(a, b, out, region)


def _check_products(
    products: Format, rounding: Rounding, a: NDArray, b: NDArray, out: NDArray, region: Region
) -> tuple[NDArray, NDArray, NDArray]:
    """Raise ValueError if a product is NaN or negative and the format of products cannot represent it."""
    if out.size and _makes_nan(a, b):
        raise ValueError(f"{products}, the format of products, has no NaN, but a product is NaN.")
    if out.size and not (products.signed or products.is_fixed) and _makes_negative(a, b, products, rounding):
        raise ValueError(f"{products}, the format of products, has no NaN, but a product is negative.")
    return a, b, out


def _makes_nan(a: NDArray, b: NDArray) -> bool:
    """True if a product of a (m, k) and b (k, n) is NaN: a factor is NaN, or one is infinite and the other is zero."""
    # Every row of a is multiplied by every column of b. So for each k it is enough that the column of a and the row of
    # b have such values: no product needs to be computed.
    infinite = np.isinf(a).any(0) & (b == 0).any(1) | (a == 0).any(0) & np.isinf(b).any(1)
    return bool(infinite.any() or np.isnan(a).any() or np.isnan(b).any())


def _makes_negative(a: NDArray, b: NDArray, format: Format, rounding: Rounding) -> bool:
    """True if a product of a (m, k) and b (k, n), rounded, is below zero; for stochastic rounding, if it may be."""
    # A draw may round a tiny negative product to zero or not. Rounding to odd keeps it below zero, so it always raises.
    mode = to_odd if rounding.is_stochastic else rounding
    signed = Target(replace(format, signed=True), mode, np.float64)
    # One k at a time: all products at once would take k times the memory of the result.
    return any((compute("multiply", [a[:, k : k + 1], b[k]], signed) < 0).any() for k in range(len(b)))
