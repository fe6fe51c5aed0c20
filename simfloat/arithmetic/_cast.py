"""Casts: how operands are taken to a format before they are used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import Machine, machine_of
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import FLOAT32, flat
from simfloat.arithmetic.plan import Plan, plan_for, round_planned
from simfloat.arithmetic.sources import Elements
from simfloat.arithmetic.stream import Draw
from simfloat.arithmetic.target import Target, carrier_of, check_rounding
from simfloat.formats import FP32, FP64, Format, FormatLike, Rounding, as_format, nearest_even
from simfloat.formats.value import hashed_once

Way = tuple[Target, Plan]


def cast(format: FormatLike, rounding: Rounding = nearest_even) -> Cast:
    """How operands are rounded before they are used: to `format`, in the mode `rounding`.

    Where a function or a policy asks for the format of operands, a bare Format means ``cast(format)``: to nearest
    even, not saturating. Immutable; prints as the call that makes it.

    Raises ValueError for what is no format or no rounding mode.
    """
    return Cast(as_format(format), rounding)


@hashed_once
@dataclass(frozen=True)
class Cast:
    """See :func:`cast`."""

    format: Format
    rounding: Rounding = nearest_even

    def __post_init__(self) -> None:
        check_rounding(self.rounding)

    @property
    def is_plain(self) -> bool:
        """Whether it is what a bare Format means: to nearest even, not saturating."""
        return self.rounding == nearest_even

    def takes_all(self, dtype: np.dtype) -> bool:
        """Whether it leaves every number as it is that an array of this type, float32 or float64, can hold."""
        return self._takes_all[dtype == FLOAT32]

    @cached_property
    def _takes_all(self) -> tuple[bool, bool]:
        """Of float64 and of float32 arrays."""
        all_float64 = self.format == FP64 and not self.rounding.saturates
        return all_float64, all_float64 or (self.format == FP32 and not self.rounding.saturates)

    def _ways_on(self, machine: Machine) -> tuple[Way, Way]:
        """Where float64 and where float32 operands go, if nobody watches, and how they are rounded."""
        ways = self._ways.get(machine)
        if ways is None:
            format, rounding = self.format, self.rounding
            wide = Target(format, rounding, np.float64), plan_for(format, rounding, np.float64, machine)
            single = Target(format, rounding, carrier_of(format)), plan_for(format, rounding, np.float32, machine)
            ways = self._ways[machine] = wide, single
        return ways

    @cached_property
    def _ways(self) -> dict[Machine, tuple[Way, Way]]:
        return {}

    def apply(
        self,
        x: NDArray,
        draw: Draw | None = None,
        observer: Observer | None = None,
        operation: str = "cast_input",
    ) -> tuple[NDArray[np.floating], None]:
        """The rounded numbers, and their scale, which is None: float32 if `x` is and the format fits, else float64.

        A stochastic cast takes its bits from `draw`; the observer is told of `operation`.
        """
        target, plan = self._ways_on(machine_of(x))[x.dtype == FLOAT32]
        if observer is not None:
            target = target._replace(observer=observer, operation=operation)
        out = np.empty(x.shape, target.dtype)
        round_planned(Elements(flat(x)), plan, out, target, draw)
        return out, None

    def __repr__(self) -> str:
        return f"cast({self.format!r}{'' if self.is_plain else f', {self.rounding!r}'})"

    def __str__(self) -> str:
        return str(self.format) if self.is_plain else f"cast({self.format}, {self.rounding})"


def as_cast(x: Cast | FormatLike) -> Cast:
    """The cast that `x` stands for: itself, or that of a format or of a format's name."""
    return x if isinstance(x, Cast) else Cast(as_format(x))
