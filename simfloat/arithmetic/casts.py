"""Casts, which round operands to a format before they are used."""

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
from simfloat.arithmetic.scaling import AmaxHistory, Scaling, WholeScaling, check_saturates
from simfloat.arithmetic.target import Observer, Target, carrier_of, result_dtype
from simfloat.common import hashed_once
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding

PlannedTarget = tuple[Target, Plan]


def cast(format: FormatLike, rounding: RoundingLike = nearest_even, *, scale: Scaling | None = None) -> Cast:
    """Make a cast, which rounds operands to `format` before they are used.

    If a function or a policy accepts a format for operands, a bare Format means ``cast(format)``: rounding to nearest
    even, not saturating. A cast is immutable, and prints as the call that makes it.

    With a `scale`, a value x becomes q = round(x * s): the exact product is rounded once, and saturates in every mode.
    A contraction then sums products of such q, and divides the sums exactly by the scales of both operands: before the
    one rounding to the output format, or block by block.

    Parameters:
        format: the format that operands are rounded to, or its name.
        rounding: the rounding mode, or its text; by default to nearest even.
        scale: :func:`per_tensor`, :func:`delayed` or :func:`block`; by default operands are not scaled.

    Returns:
        An immutable value for the options `inputs` of :func:`matmul` and for the roles of a policy.

    Raises:
        ValueError: if `format`, `rounding` or `scale` is invalid.
        ValueError: if `scale` is given and float32 cannot represent the numbers of the format.
        ValueError: if `scale` is given and `rounding` is overflowing, because scaled values are clamped.

    Examples:
        >>> stochastic = sf.cast(sf.E5M2, sf.stochastic())
        >>> clamped = sf.cast(sf.E4M3, sf.nearest_even.saturating())
        >>> sf.dot([1000.0, 1.0], [1.0, 1.0], inputs=clamped, accumulate=sf.FP32)
        array(449.)
    """
    return Cast(as_format(format), as_rounding(rounding), scale=scale)


def scaled(format: FormatLike, scale: Scaling) -> Cast:
    """Make a cast that scales operands and rounds them to nearest even: ``cast(format, scale=scale)``.

    The cast saturates: if the product of an element and its scale is infinite or beyond the largest number of the
    format, the result is this number with the sign of the product. With :func:`per_tensor`, only infinities saturate.
    With :func:`delayed`, elements can saturate if they are larger than all elements that determined the scale. With
    :func:`block`, the largest elements of a block saturate under the rules ``"floor"`` and ``"even"``, and under scales
    in E4M3, because these scales are rounded.

    Parameters:
        format: the format that operands are rounded to, or its name.
        scale: :func:`per_tensor`, :func:`delayed` or :func:`block`.

    Returns:
        The cast, as :func:`cast` returns it.

    Raises:
        ValueError: if `format` or `scale` is invalid, or float32 cannot represent the numbers of the format.

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
            check_saturates(self.rounding)

    @property
    def is_plain(self) -> bool:
        """True if a bare Format means this cast: to nearest even, not saturating, not scaled."""
        return self.rounding == nearest_even and self.scale is None

    @cached_property
    def without_scale(self) -> Cast:
        """The cast without its scale."""
        return self if self.scale is None else replace(self, scale=None)

    def is_identity_on(self, dtype: np.dtype) -> bool:
        """True if it changes no value that an array of this dtype, float32 or float64, can contain."""
        return self.scale is None and self._is_identity[dtype == FLOAT32]

    def leaves_unchanged(self, format: Format) -> bool:
        """True if it is certain to change no number of the format."""
        return self.format == format and self.scale is None and not self.rounding.saturates

    @cached_property
    def _is_identity(self) -> tuple[bool, bool]:
        """Two booleans: True if the cast is the identity on float64 arrays, and on float32 arrays."""
        all_float64 = self.format == FP64 and not self.rounding.saturates
        return all_float64, all_float64 or (self.format == FP32 and not self.rounding.saturates)

    def targets_on(self, device: Device) -> tuple[PlannedTarget, PlannedTarget]:
        """Return the targets, each with its plan, for float64 and for float32 operands without an observer."""
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
        """Round an array, and return it with the scale that it was multiplied by (None if the cast has no scale).

        The result is float32 if `x` is float32 and the format fits into float32, otherwise float64. A stochastic cast
        takes its random bits from `draw`, and a delayed one its scale from `history`. The observer receives the events
        as events of `operation`.
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
        """Round matrices `x` (..., rows, columns); return them with the scales of blocks along `axis`, -1 or -2."""
        assert isinstance(self.scale, Block)
        return self.scale.quantize(x, self._target(x, observer, operation), axis, draw)

    def _target(self, x: NDArray, observer: Observer | None, operation: str) -> Target:
        """Return the target of scaled values, which saturate."""
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
    """Return the cast that `x` means: itself, or the cast to a format or to the format of a name."""
    return x if isinstance(x, Cast) else Cast(as_format(x))
