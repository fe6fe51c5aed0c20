"""What is known of the operands of sums before any product is made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.carrier import CARRIERS
from simfloat.accumulate.facts import ONES, Facts, facts_of
from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.machines import CPU, Machine, machine_of
from simfloat.arithmetic.operands import FLOAT32
from simfloat.arithmetic.target import Target
from simfloat.formats import FP32, FP64, Format, Rounding, nearest_even

#: Numbers from which on it is worth a look at them to spare a loop the care for infinities and NaN.
MANY = 256


class Known:
    """What is known of an operand's numbers: their facts, the format that they were rounded to, their array's type, and
    whether the array was made here, by a rounding.

    Facts are found in the array when they are first asked for, and only once; `find` finds those of sums of runs, which
    are known before there is an array.
    """

    __slots__ = ("_facts", "_find", "array", "format", "is_float32", "is_made")

    def __init__(
        self,
        facts: Facts | None,
        format: Format | None,
        is_float32: bool,
        array: NDArray | None = None,
        find: Callable[[], Facts] | None = None,
        is_made: bool = False,
    ) -> None:
        self._facts, self._find, self.array = facts, find, array
        self.format, self.is_float32, self.is_made = format, is_float32, is_made

    @property
    def facts(self) -> Facts:
        """Bounds on the numbers."""
        # Not a cached property: before Python 3.12 its lock takes longer than a small array's facts.
        if self._facts is None:
            if self._find is not None:
                self._facts = self._find()
            else:
                assert self.array is not None
                self._facts = facts_of(self.array)
        return self._facts

    @property
    def are_quiet(self) -> bool:
        """Whether there is no signalling NaN among them, as far as is known by now: roundings make quiet ones."""
        return self.is_made or (self._facts is not None and self._facts.finite)

    def look_finite(self) -> bool:
        """Whether there are no infinities and no NaN among them: of a few numbers only if that is known by now."""
        if self._facts is None and self.array is not None and self.array.size < MANY:
            return False
        return self.facts.finite

    @property
    def in_float32(self) -> bool:
        """Whether all numbers are float32 numbers."""
        return self.is_float32 or CARRIERS[0].holds(self.facts)

    @property
    def own_format(self) -> Format:
        """The format that they were rounded to, or else that of their array."""
        return self.format or (FP32 if self.is_float32 else FP64)


def known_of(array: NDArray, format: Format | None = None, facts: Facts | None = None, is_made: bool = False) -> Known:
    """What is known of an array of numbers of the format."""
    dtype = array.dtype
    return Known(facts, format, dtype is FLOAT32 or dtype == FLOAT32, array, None, is_made)


#: The factors of sums without factors.
UNITY = Known(ONES, None, True)


class Problem:
    """What an accumulator is asked to sum: `depth` products of numbers of `a` and `b`, and how sums are rounded in the
    end.

    `scales` are the facts of the scales of the operands' blocks, for accumulators that take them; `start` those of
    what the sums start from; `divisor` divides the totals before they are rounded; `machine` is where operands will be
    of which there are no arrays yet.
    """

    __slots__ = ("_machine", "_products", "a", "b", "depth", "divisor", "output", "rounding", "scales", "start")

    def __init__(
        self,
        a: Known,
        b: Known,
        depth: int,
        output: Format,
        rounding: Rounding = nearest_even,
        scales: tuple[Facts, Facts] | None = None,
        start: Facts | None = None,
        divisor: float = 1.0,
        machine: Machine | None = None,
    ) -> None:
        self.a, self.b, self.depth, self.output, self.rounding = a, b, depth, output, rounding
        self.scales, self.start, self.divisor = scales, start, divisor
        self._products: Facts | None = None
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
    def products(self) -> Facts:
        """What is known of the products, with their scales."""
        if self._products is None:
            products = self.a.facts.times(self.b.facts)
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
