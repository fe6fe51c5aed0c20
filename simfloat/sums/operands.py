"""Operands of sums: how they are rounded, and bounds on them, by which an engine is chosen."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.blocks import Block, BlockScales
from simfloat.arithmetic.casts import Cast, PlannedTarget
from simfloat.arithmetic.machines import CPU, Device, device_of
from simfloat.arithmetic.operands import FLOAT32, flat
from simfloat.arithmetic.operations import round_array, round_vector
from simfloat.arithmetic.scaling import AmaxHistory
from simfloat.arithmetic.target import Observer, Target
from simfloat.formats import FP32, FP64, Format, Rounding, nearest_even
from simfloat.sums.bounds import CARRIERS, ONES, Bounds, RawBounds, bounds_of, raw_bounds_of

#: Numbers from which on it is worth a look whether they are those of a format.
LEAST_FOR_CLOSER_BOUNDS = 1 << 12


class OperandBounds:
    """Bounds on an operand's numbers, the format that they were rounded to, their array's type, and whether the array
    was made here, by a rounding.

    Bounds are found in the array when they are first asked for, and only once; `find` finds those of sums of runs,
    which are known before there is an array.
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
        """Bounds on the numbers."""
        # Not a cached property: before Python 3.12 its lock takes longer than a small array's bounds.
        if self._bounds is None:
            if self._find is not None:
                self._bounds = self._find()
            else:
                assert self.array is not None
                self._bounds = bounds_of(self.array)
        return self._bounds

    @property
    def has_no_signalling_nan(self) -> bool:
        """Whether there is no signalling NaN among them, as far as is known by now: roundings make quiet ones."""
        return self.is_newly_rounded or (self._bounds is not None and self._bounds.finite)

    @property
    def in_float32(self) -> bool:
        """Whether all numbers are float32 numbers."""
        in_format = self.format is not None and self.format.fits_float32
        return self.is_float32 or in_format or CARRIERS[0].contains(self.bounds)

    @property
    def known_or_array_format(self) -> Format:
        """The format that they were rounded to, or else that of their array."""
        return self.format or (FP32 if self.is_float32 else FP64)


def operand_bounds(
    array: NDArray, format: Format | None = None, bounds: Bounds | None = None, is_newly_rounded: bool = False
) -> OperandBounds:
    """The bounds of an operand whose numbers are those of an array, in this format if one is given."""
    dtype = array.dtype
    return OperandBounds(bounds, format, dtype is FLOAT32 or dtype == FLOAT32, array, None, is_newly_rounded)


class OperandPlan(NamedTuple):
    """How an operand is rounded by a cast; pairs are for float64 and for float32 arrays."""

    cast: Cast
    targets: tuple[PlannedTarget, PlannedTarget]  # where rounded numbers go, without an observer, and by which loop
    is_identity: tuple[bool, bool]  # whether the cast leaves all numbers of such an array as they are
    needs_bounds: (
        bool  # whether an engine is chosen by the numbers, so that their bounds are found before they are rounded
    )

    @property
    def format(self) -> Format:
        """The format of the rounded numbers."""
        return self.cast.format

    def round(self, x: NDArray, already_in_format: bool) -> NDArray:
        """The operand rounded, without a scale, a draw or an observer: itself, if the cast leaves its numbers."""
        dtype = x.dtype
        single = dtype is FLOAT32 or dtype == FLOAT32
        if already_in_format or self.is_identity[single]:
            return x
        target, plan = self.targets[single]
        return round_vector(flat(x), plan, x.shape, target, None)

    def round_with_bounds(
        self,
        x: NDArray,
        already_in_format: bool,
        draw: Draw | None = None,
        observer: Observer | None = None,
        operation: str | None = None,
    ) -> OperandBounds:
        """The operand rounded, without a scale; the observer receives the events of the operation.

        `already_in_format` if the cast is known to leave the numbers as they are.
        """
        single, cast = x.dtype == FLOAT32, self.cast
        if observer is None and (already_in_format or self.is_identity[single]):
            return OperandBounds(None, cast.format, single, x)
        bounds = None
        if self.needs_bounds:
            # Operands are often in the format already, and then need not be rounded again.
            measured = bounds_of(x)
            unchanged, bounds = bounds_after_cast(measured, cast)
            if unchanged and observer is None:
                return OperandBounds(measured, cast.format, single, x)
        # An observer counts all casts, also those that change nothing.
        target, plan = self.targets[single]
        if observer is not None:
            target = target._replace(observer=observer, operation=operation or "")
        rounded = round_vector(flat(x), plan, x.shape, target, draw)
        return OperandBounds(bounds, cast.format, target.dtype is np.float32, rounded, None, True)

    def scale_and_round(
        self,
        x: NDArray,
        axis: int,
        draw: Draw | None,
        observer: Observer | None,
        operation: str | None,
        history: AmaxHistory | None,
    ) -> ScaledOperand:
        """The operand scaled as a whole or in blocks along an axis, and then rounded."""
        cast, format = self.cast, self.cast.format
        if isinstance(cast.scale, Block):
            elements, blocks = cast.apply_in_blocks(x, axis, draw, observer, operation or "")
            return ScaledOperand(operand_bounds(elements, format, is_newly_rounded=True), blocks.whole, blocks)
        rounded, scale = cast.apply(x, draw, observer, operation or "", history)
        return ScaledOperand(operand_bounds(rounded, format, is_newly_rounded=True), scale or 1.0)


class ScaledOperand(NamedTuple):
    """An operand that was scaled and rounded."""

    operand: OperandBounds
    divisor: float = 1.0  # by which its numbers are too large: the scale of all
    blocks: BlockScales | None = None


@lru_cache(maxsize=4096)
def bounds_after_cast(bounds: Bounds, cast: Cast) -> tuple[bool, Bounds]:
    """Whether a cast changes nothing for certain, and the bounds of what it gives."""
    return bounds.need_no_rounding(cast.format), bounds.after_rounding(cast.format, cast.rounding)


#: The factors of sums without factors.
BOUNDS_OF_ONES = OperandBounds(ONES, None, True)


class Problem:
    """What an accumulator is asked to sum: `depth` products of numbers of `a` and `b`, and how sums are rounded in the
    end.

    `scales` are the bounds of the scales of the operands' blocks, for accumulators that take them; `initial` those of
    what the sums start from; `divisor` divides the totals before they are rounded; `machine` is where operands will be
    of which there are no arrays yet.
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
        """Where the operands are: as they say, if there are arrays of them yet."""
        if self._machine is not None:
            return self._machine
        return CPU if self.a.array is None else device_of(self.a.array)

    @property
    def products(self) -> Bounds:
        """What is known of the products, with their scales."""
        if self._products is None:
            products = self.a.bounds.product_bounds(self.b.bounds)
            for scales in self.scales or ():
                products = products.product_bounds(scales)
            self._products = products
        return self._products


def raw_bounds_in_format(format: Format | None, x: NDArray) -> RawBounds:
    """The fields of an array's bounds, which are closer if its numbers are those of the format.

    Bounds do not show that where some are subnormal: they are those of a number as small as one of these and with as
    many bits as the longest.
    """
    raw = raw_bounds_of(x)
    if format is None or x.size < LEAST_FOR_CLOSER_BOUNDS:
        return raw
    # Example: 1 + 2^-10 beside FP16's subnormal 2^-24. Their bounds, eleven bits that end at 2^-34, are not FP16's,
    # though both numbers are. So all numbers are compared with their roundings, where that would change the answer.
    bounds, smallest = Bounds._make(raw), format.emin - format.mantissa_bits
    closer = bounds._replace(low=smallest)
    if not bounds.low < smallest <= bounds.least or not closer.are_in_format(format):
        return raw
    return closer if first_outside_format(x, format) is None else raw


def first_outside_format(array: NDArray, format: Format) -> tuple[int, ...] | None:
    """The index of the first element that is no number of the format; None if there is none. -0 passes for 0."""
    if (array.dtype, format) in ((np.float32, FP32), (np.float64, FP64)):
        return None
    strange = np.False_ if format.has_nan else np.isnan(array)
    if not strange.any():
        # Numbers of the format are those that a rounding leaves as they are. NaN differs from
        # itself and is put right below; -0 equals 0, which is what is wanted.
        rounded = round_array(array, Target(format, nearest_even, array.dtype.type))
        strange = rounded != array
        if strange.any():
            strange &= ~(np.isnan(array) & np.isnan(rounded))
    return tuple(int(i) for i in np.argwhere(strange)[0]) if strange.any() else None
