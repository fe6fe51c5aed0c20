"""Operands of sums: their rounding, and bounds on their values, which decide the choice of an engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.blocks import Block, BlockScales
from simfloat.arithmetic.casts import Cast, PlannedTarget
from simfloat.arithmetic.codes import are_surely_numbers
from simfloat.arithmetic.machines import CPU, Device, device_of
from simfloat.arithmetic.operands import FLOAT32, FLOAT64, flat
from simfloat.arithmetic.operations import count_without_rounding, round_array, round_observed, round_vector
from simfloat.arithmetic.plan import is_one_block
from simfloat.arithmetic.scaling import AmaxHistory
from simfloat.arithmetic.target import Observer, Target
from simfloat.formats import FP32, FP64, Format, Rounding, nearest_even
from simfloat.formats.exact_numbers import is_float64
from simfloat.sums.bounds import CARRIERS, ONES, Bounds, RawBounds, bounds_of, raw_bounds_of

#: The number of values above which it is worth checking if they are numbers of a format.
LEAST_FOR_CLOSER_BOUNDS = 1 << 12

#: The minimum size of a transposed matrix for a test, before it is rounded, if rounding would change any value.
LEAST_TESTED = 1 << 14


class OperandBounds:
    """Bounds on the values of an operand, its format if it was rounded, and its array.

    `is_float32` is the type of the array, and `is_newly_rounded` is True if a rounding created the array. The bounds
    are computed from the array at first use, and only once. `find` returns the bounds of sums of runs, which have no
    array yet.
    """

    __slots__ = ("_bounds", "_find", "array", "format", "is_float32", "is_newly_rounded")

    def __init__(
        self,
        bounds: Bounds | None,
        format: Format | None,
        is_float32: bool,
        array: NDArray | None = None,
        find: Callable[[], Bounds] | None = None,
        is_newly_rounded: bool = False,
    ) -> None:
        self._bounds, self._find, self.array = bounds, find, array
        self.format, self.is_float32, self.is_newly_rounded = format, is_float32, is_newly_rounded

    @property
    def bounds(self) -> Bounds:
        """Bounds on the values."""
        # Not a cached property: before Python 3.12 its lock takes longer than computing the bounds of a small array.
        if self._bounds is None:
            if self._find is not None:
                self._bounds = self._find()
            else:
                assert self.array is not None
                self._bounds = bounds_of(self.array)
        return self._bounds

    @property
    def has_no_signalling_nan(self) -> bool:
        """True if the values are known to contain no signalling NaN; rounding makes NaN quiet."""
        return self.is_newly_rounded or (self._bounds is not None and self._bounds.finite)

    @property
    def in_float32(self) -> bool:
        """True if float32 can represent all values."""
        in_format = self.format is not None and self.format.fits_float32
        return self.is_float32 or in_format or CARRIERS[0].contains(self.bounds)

    @property
    def known_or_array_format(self) -> Format:
        """The format that the values were rounded to, or else the format of their array."""
        return self.format or (FP32 if self.is_float32 else FP64)


def operand_bounds(
    array: NDArray, format: Format | None = None, bounds: Bounds | None = None, is_newly_rounded: bool = False
) -> OperandBounds:
    """Return the bounds of an operand in an array, with values in `format` if one is given."""
    dtype = array.dtype
    return OperandBounds(bounds, format, dtype is FLOAT32 or dtype == FLOAT32, array, None, is_newly_rounded)


class OperandPlan(NamedTuple):
    """The rounding of an operand by a cast; pairs are for float64 and for float32 arrays."""

    cast: Cast
    targets: tuple[PlannedTarget, PlannedTarget]  # the targets of the rounding without an observer, each with its loop
    is_identity: tuple[bool, bool]  # True if the cast changes no value of such an array
    needs_bounds: bool  # True if the choice of an engine needs bounds, which are then computed before the rounding

    @property
    def format(self) -> Format:
        """The format of the rounded values."""
        return self.cast.format

    def round(
        self,
        x: NDArray,
        already_in_format: bool,
        draw: Draw | None = None,
        observer: Observer | None = None,
        operation: str | None = None,
    ) -> NDArray:
        """Round the operand without a scale; return it unchanged if the cast changes nothing.

        `already_in_format` is True if the cast is known to change nothing. The observer receives the events as events
        of `operation`, unless that is None.
        """
        dtype = x.dtype
        single = dtype is FLOAT32 or dtype == FLOAT32
        target, plan = self.targets[single]
        is_unchanged = already_in_format or self.is_identity[single]
        receiver = None if observer is None or operation is None else (observer, operation)
        # An observer counts all casts, including those that change nothing.
        if is_unchanged and (receiver is None or count_without_rounding(x, plan, target, *receiver)):
            return x
        # Contiguity first, as in `flat`.
        is_vector = type(x) is np.ndarray and (flags := x.flags).c_contiguous and flags.carray
        if not is_vector and receiver is None and x.size >= LEAST_TESTED and self._surely_keeps(x, target):
            return x
        vector = x.reshape(-1) if is_vector else flat(x)
        if receiver is not None:
            if is_one_block(plan, vector.size, draw):
                return round_observed(vector, plan, x.shape, target.dtype, *receiver)
            target = target._replace(observer=receiver[0], operation=receiver[1])
        return round_vector(vector, plan, x.shape, target, draw)

    def _surely_keeps(self, x: NDArray, target: Target) -> bool:
        """Return True if the cast is certain to change no value of a transposed matrix."""
        # The weights of a layer usually are numbers of the format. To round them, a transposed matrix must be copied:
        # 200,000 weights took 200 us, and this test takes 30. If they are not, the first block shows it.
        if type(x) is not np.ndarray or x.dtype != target.dtype or not self.cast.leaves_unchanged(self.cast.format):
            return False
        return are_surely_numbers(x.T, self.cast.format)

    def round_with_bounds(
        self,
        x: NDArray,
        already_in_format: bool,
        draw: Draw | None = None,
        observer: Observer | None = None,
        operation: str | None = None,
    ) -> OperandBounds:
        """Round the operand as `round` does, and return it with its bounds if the choice of an engine needs them."""
        single, measured, bounds = x.dtype == FLOAT32, None, None
        if self.needs_bounds and not (already_in_format or self.is_identity[single]):
            # Operands are often in the format already, and need not be rounded again then.
            measured = bounds_of(x)
            already_in_format, bounds = bounds_after_cast(measured, self.cast)
        rounded = self.round(x, already_in_format, draw, observer, operation)
        if rounded is x:
            return OperandBounds(measured, self.cast.format, single, x)
        return OperandBounds(bounds, self.cast.format, self.targets[single][0].dtype is np.float32, rounded, None, True)

    def scale_and_round(
        self,
        x: NDArray,
        axis: int,
        draw: Draw | None,
        observer: Observer | None,
        operation: str | None,
        history: AmaxHistory | None,
    ) -> ScaledOperand:
        """Scale the operand as a whole or in blocks along an axis, and round it."""
        cast, format = self.cast, self.cast.format
        if isinstance(cast.scale, Block):
            elements, blocks = cast.apply_in_blocks(x, axis, draw, observer, operation or "")
            return ScaledOperand(operand_bounds(elements, format, is_newly_rounded=True), blocks.whole, blocks)
        rounded, scale = cast.apply(x, draw, observer, operation or "", history)
        return ScaledOperand(operand_bounds(rounded, format, is_newly_rounded=True), scale or 1.0)


class ScaledOperand(NamedTuple):
    """An operand that was scaled and rounded."""

    operand: OperandBounds
    divisor: float = 1.0  # the factor by which its values are too large: the scale of the whole operand
    blocks: BlockScales | None = None


@lru_cache(maxsize=4096)
def bounds_after_cast(bounds: Bounds, cast: Cast) -> tuple[bool, Bounds]:
    """Return whether a cast is certain to change nothing, and bounds on its results."""
    return bounds.need_no_rounding(cast.format), bounds.after_rounding(cast.format, cast.rounding)


#: The second factor of sums without factors.
BOUNDS_OF_ONES = OperandBounds(ONES, None, True)


class Problem:
    """The description of a sum for an accumulator: `depth` products of elements of `a` and `b`, and the final rounding.

    `scales` are the bounds of the block scales, for accumulators that read them. `initial` is the bounds of the start
    values. `divisor` divides the totals before they are rounded. `device` is the device of operands that have no arrays
    yet.
    """

    __slots__ = ("_machine", "_products", "a", "b", "depth", "divisor", "initial", "output", "rounding", "scales")

    def __init__(
        self,
        a: OperandBounds,
        b: OperandBounds,
        depth: int,
        output: Format,
        rounding: Rounding = nearest_even,
        scales: tuple[Bounds, Bounds] | None = None,
        initial: Bounds | None = None,
        divisor: float = 1.0,
        device: Device | None = None,
    ) -> None:
        self.a, self.b, self.depth, self.output, self.rounding = a, b, depth, output, rounding
        self.scales, self.initial, self.divisor = scales, initial, divisor
        self._products: Bounds | None = None
        self._machine = device

    @property
    def device(self) -> Device:
        """The device of the operands: of their arrays, if these exist."""
        if self._machine is not None:
            return self._machine
        return CPU if self.a.array is None else device_of(self.a.array)

    @property
    def products(self) -> Bounds:
        """Bounds on the products, including their scales."""
        if self._products is None:
            products = self.a.bounds.product_bounds(self.b.bounds)
            for scales in self.scales or ():
                products = products.product_bounds(scales)
            self._products = products
        return self._products


def raw_bounds_in_format(format: Format | None, x: NDArray) -> RawBounds:
    """Return the fields of the bounds of an array, which are closer if all values are numbers of the format.

    If some values are subnormal, plain bounds do not show that: they describe a value as small as the smallest one,
    with as many bits as the longest one.
    """
    raw = raw_bounds_of(x)
    if format is None or x.size < LEAST_FOR_CLOSER_BOUNDS:
        return raw
    # Example: 1 + 2^-10 and FP16's subnormal 2^-24. Their bounds, eleven bits that end at 2^-34, are outside FP16,
    # though both values are FP16 numbers. So all values are compared with their roundings, if that would change the
    # answer.
    bounds, smallest = Bounds._make(raw), format.emin - format.mantissa_bits
    closer = bounds._replace(low=smallest)
    if not bounds.low < smallest <= bounds.least or not closer.are_in_format(format):
        return raw
    return closer if first_outside_format(x, format) is None else raw


def first_outside_format(array: NDArray, format: Format) -> tuple[int, ...] | None:
    """Return the index of the first element that is not a number of the format, or None; -0 counts as 0.

    An array of objects contains exact numbers.
    """
    if array.dtype == object:
        for place, x in np.ndenumerate(array):
            if not is_float64(x) or first_outside_format(np.array([x], np.float64), format) is not None:
                return place
        return None
    if (array.dtype, format) in ((np.float32, FP32), (np.float64, FP64)):
        return None
    if type(array) is np.ndarray and array.dtype in (FLOAT32, FLOAT64) and are_surely_numbers(array, format):
        return None
    strange = np.False_ if format.has_nan else np.isnan(array)
    if not strange.any():
        # Rounding leaves numbers of the format unchanged. NaN differs from itself, which is corrected below; -0 equals
        # 0, as intended.
        rounded = round_array(array, Target(format, nearest_even, array.dtype.type))
        strange = rounded != array
        if strange.any():
            strange &= ~(np.isnan(array) & np.isnan(rounded))
    return tuple(int(i) for i in np.argwhere(strange)[0]) if strange.any() else None
