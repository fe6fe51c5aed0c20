"""Bounds on operands, by which an engine is chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.bounds import ONES, Bounds, bounds_of
from simfloat.accumulate.carrier import CARRIERS
from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.machines import CPU, Machine, machine_of
from simfloat.arithmetic.operands import FLOAT32
from simfloat.arithmetic.target import Target
from simfloat.formats import FP32, FP64, Format, Rounding, nearest_even

#: Numbers from which on it is worth a look at them to spare a loop the care for infinities and NaN.
MANY = 256


class OperandBounds:
    """Bounds on an operand's numbers, the format that they were rounded to, their array's type, and whether the array
    was made here, by a rounding.

    Bounds are found in the array when they are first asked for, and only once; `find` finds those of sums of runs,
    which are known before there is an array.
    """

    __slots__ = ("_bounds", "_find", "array", "format", "is_float32", "is_made")

    def __init__(
        self,
        bounds: Bounds | None,
        format: Format | None,
        is_float32: bool,
        array: NDArray | None = None,
        find: Callable[[], Bounds] | None = None,
        is_made: bool = False,
    ) -> None:
        self._bounds, self._find, self.array = bounds, find, array
        self.format, self.is_float32, self.is_made = format, is_float32, is_made

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
    def are_quiet(self) -> bool:
        """Whether there is no signalling NaN among them, as far as is known by now: roundings make quiet ones."""
        return self.is_made or (self._bounds is not None and self._bounds.finite)

    def look_finite(self) -> bool:
        """Whether there are no infinities and no NaN among them: of a few numbers only if that is known by now."""
        if self._bounds is None and self.array is not None and self.array.size < MANY:
            return False
        return self.bounds.finite

    @property
    def in_float32(self) -> bool:
        """Whether all numbers are float32 numbers."""
        return self.is_float32 or CARRIERS[0].holds(self.bounds)

    @property
    def own_format(self) -> Format:
        """The format that they were rounded to, or else that of their array."""
        return self.format or (FP32 if self.is_float32 else FP64)


def operand_bounds(
    array: NDArray, format: Format | None = None, bounds: Bounds | None = None, is_made: bool = False
) -> OperandBounds:
    """The bounds of an operand whose numbers are those of an array, in this format if one is given."""
    dtype = array.dtype
    return OperandBounds(bounds, format, dtype is FLOAT32 or dtype == FLOAT32, array, None, is_made)


#: The factors of sums without factors.
UNITY = OperandBounds(ONES, None, True)


class Problem:
    """What an accumulator is asked to sum: `depth` products of numbers of `a` and `b`, and how sums are rounded in the
    end.

    `scales` are the bounds of the scales of the operands' blocks, for accumulators that take them; `start` those of
    what the sums start from; `divisor` divides the totals before they are rounded; `machine` is where operands will be
    of which there are no arrays yet.
    """

    __slots__ = ("_machine", "_products", "a", "b", "depth", "divisor", "output", "rounding", "scales", "start")

    def __init__(
        self,
        a: OperandBounds,
        b: OperandBounds,
        depth: int,
        output: Format,
        rounding: Rounding = nearest_even,
        scales: tuple[Bounds, Bounds] | None = None,
        start: Bounds | None = None,
        divisor: float = 1.0,
        machine: Machine | None = None,
    ) -> None:
        self.a, self.b, self.depth, self.output, self.rounding = a, b, depth, output, rounding
        self.scales, self.start, self.divisor = scales, start, divisor
        self._products: Bounds | None = None
        self._machine = machine

    @property
    def are_float32(self) -> bool:
        """Whether both operands are float32: then every number of theirs is one."""
        return self.a.is_float32 and self.b.is_float32

    @property
    def machine(self) -> Machine:
        """Where the operands are: as they say, if there are arrays of them yet."""
        if self._machine is not None:
            return self._machine
        return CPU if self.a.array is None else machine_of(self.a.array)

    @property
    def products(self) -> Bounds:
        """What is known of the products, with their scales."""
        if self._products is None:
            products = self.a.bounds.times(self.b.bounds)
            for scales in self.scales or ():
                products = products.times(scales)
            self._products = products
        return self._products


def first_stranger(array: NDArray, format: Format) -> tuple[int, ...] | None:
    """The index of the first element that is no number of the format; None if there is none. -0 passes for 0."""
    strange = np.isnan(array) & (not format.has_nan)
    if not strange.any():
        rounded = round_array(array, Target(format, nearest_even, array.dtype.type))
        strange = (rounded != array) & ~(np.isnan(array) & np.isnan(rounded))
    return tuple(int(i) for i in np.argwhere(strange)[0]) if strange.any() else None
