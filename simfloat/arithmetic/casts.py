"""Casts, which take operands to a format before they are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.blocks import Block, BlockScales
from simfloat.arithmetic.machines import Device, device_of
from simfloat.arithmetic.operands import FLOAT32, flat
from simfloat.arithmetic.operations import compute_with_draw, round_vector
from simfloat.arithmetic.plan import Plan, plan_for
from simfloat.arithmetic.scaling import AmaxHistory, Scaling, WholeScaling
from simfloat.arithmetic.target import Observer, Target, carrier_of, result_dtype
from simfloat.common import hashed_once
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding

PlannedTarget = tuple[Target, Plan]


def cast(format: FormatLike, rounding: RoundingLike = nearest_even, *, scale: Scaling | None = None) -> Cast:
    """How operands are rounded before they are used: to `format`, in the mode `rounding`.

    Where a function or a policy asks for the format of operands, a bare Format means ``cast(format)``: to nearest
    even, not saturating. Immutable; prints as the call that makes it.

    With a `scale`, :func:`per_tensor`, :func:`delayed` or :func:`block`, numbers x become q = round(x * s), the exact
    product rounded once, saturating whatever the mode says of that. A contraction then sums products of such q, and
    divides its sums by the scales of both operands, exactly: before the one rounding to the output format, or block by
    block.

    Raises ValueError for what is no format, no rounding mode or no scaling, and for a scale of a format that float32
    does not hold.

    Examples:
        >>> stochastic = sf.cast(sf.E5M2, sf.stochastic())
        >>> clamped = sf.cast(sf.E4M3, sf.nearest_even.saturating())
        >>> sf.dot([1000.0, 1.0], [1.0, 1.0], inputs=clamped, accumulate=sf.FP32)
        array(449.)
    """
    return Cast(as_format(format), as_rounding(rounding), scale=scale)


def scaled(format: FormatLike, scale: Scaling) -> Cast:
    """The cast to `format`, to nearest even, of numbers that are scaled first: ``cast(format, scale=scale)``.

    Examples:
        >>> sf.scaled(sf.E4M3, sf.per_tensor()) == sf.cast(sf.E4M3, scale=sf.per_tensor())
        True
    """
    if scale is None:
        raise ValueError("scaled takes a scaling such as simfloat.per_tensor(), got None.")
    return cast(format, scale=scale)


@hashed_once
@dataclass(frozen=True)
class Cast:
    """See :func:`cast`."""

    format: Format
    rounding: Rounding = nearest_even
    scale: Scaling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.scale is not None:
            if not isinstance(self.scale, Scaling):
                raise ValueError(f"scale must be a scaling such as simfloat.per_tensor(), got {self.scale!r}.")
            self.scale.check(self.format)

    @property
    def is_plain(self) -> bool:
        """Whether it is what a bare Format means: to nearest even, not saturating, not scaled."""
        return self.rounding == nearest_even and self.scale is None

    @cached_property
    def without_scale(self) -> Cast:
        """The cast without its scale."""
        return self if self.scale is None else replace(self, scale=None)

    def is_identity_on(self, dtype: np.dtype) -> bool:
        """Whether it leaves every number as it is that an array of this type, float32 or float64, can hold."""
        return self.scale is None and self._is_identity[dtype == FLOAT32]

    def leaves_unchanged(self, format: Format) -> bool:
        """Whether it leaves every number of the format as it is, for certain."""
        return self.format == format and self.scale is None and not self.rounding.saturates

    @cached_property
    def _is_identity(self) -> tuple[bool, bool]:
        """Of float64 and of float32 arrays."""
        all_float64 = self.format == FP64 and not self.rounding.saturates
        return all_float64, all_float64 or (self.format == FP32 and not self.rounding.saturates)

    def targets_on(self, device: Device) -> tuple[PlannedTarget, PlannedTarget]:
        """Targets of float64 and of float32 operands without an observer, each with its plan."""
        targets = self._targets.get(device)
        if targets is None:
            format, rounding = self.format, self.rounding
            wide = Target(format, rounding, np.float64), plan_for(format, rounding, np.float64, device)
            single = Target(format, rounding, carrier_of(format)), plan_for(format, rounding, np.float32, device)
            targets = self._targets[device] = wide, single
        return targets

    @cached_property
    def _targets(self) -> dict[Device, tuple[PlannedTarget, PlannedTarget]]:
        return {}

    def apply(
        self,
        x: NDArray,
        draw: Draw | None = None,
        observer: Observer | None = None,
        operation: str = "cast_input",
        history: AmaxHistory | None = None,
    ) -> tuple[NDArray[np.floating], float | None]:
        """The rounded numbers, and by which they are too large, None without a scale: float32 if `x` is and the format
        fits, else float64.

        A stochastic cast takes its bits from `draw`, a delayed one its scale from `history`; the observer receives
        its events as those of `operation`.
        """
        if self.scale is not None and isinstance(self.scale, WholeScaling):
            factor, target = self.scale.scale(x, self.format, history), self._target(x, observer, operation)
            return compute_with_draw("multiply", [x, np.array(factor, np.float32)], target, draw), factor
        target, plan = self.targets_on(device_of(x))[x.dtype == FLOAT32]
        if observer is not None:
            target = target._replace(observer=observer, operation=operation)
        return round_vector(flat(x), plan, x.shape, target, draw), None

    def apply_in_blocks(
        self, x: NDArray, axis: int, draw: Draw | None = None, observer: Observer | None = None, operation: str = ""
    ) -> tuple[NDArray[np.floating], BlockScales]:
        """The rounded numbers of matrices `x` (..., rows, columns) with the scales of blocks along `axis`, -1 or -2."""
        assert isinstance(self.scale, Block)
        return self.scale.quantize(x, self._target(x, observer, operation), axis, draw)

    def _target(self, x: NDArray, observer: Observer | None, operation: str) -> Target:
        """Where scaled numbers go: they saturate."""
        dtype = result_dtype([x], self.format)
        return Target(self.format, self.rounding.saturating(), dtype, observer=observer, operation=operation)

    def __repr__(self) -> str:
        return self._call(repr)

    def __str__(self) -> str:
        return str(self.format) if self.is_plain else self._call(str)

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)

    def _call(self, write: Callable[[Any], str]) -> str:
        options = [] if self.rounding == nearest_even else [write(self.rounding)]
        options += [] if self.scale is None else [f"scale={write(self.scale)}"]
        return f"cast({', '.join([write(self.format), *options])})"


def as_cast(x: Cast | FormatLike) -> Cast:
    """The cast that `x` stands for: itself, or that of a format or of a format's name."""
    return x if isinstance(x, Cast) else Cast(as_format(x))
