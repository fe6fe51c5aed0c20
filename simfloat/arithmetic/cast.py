"""Casts: how operands are taken to a format before they are used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic._round import round_drawn
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.stream import Draw
from simfloat.arithmetic.target import Target, check_rounding, result_dtype
from simfloat.formats import Format, FormatLike, Rounding, as_format, nearest_even


def cast(format: FormatLike, rounding: Rounding = nearest_even) -> Cast:
    """How operands are rounded before they are used: to `format`, in the mode `rounding`.

    Where a function or a policy asks for the format of operands, a bare Format means ``cast(format)``: to nearest
    even, not saturating. Immutable; prints as the call that makes it.

    Raises ValueError for what is no format or no rounding mode.
    """
    return Cast(as_format(format), rounding)


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
        target = Target(self.format, self.rounding, result_dtype([x], self.format), None, observer, operation)
        return round_drawn(x, target, draw), None

    def __repr__(self) -> str:
        return f"cast({self.format!r}{'' if self.is_plain else f', {self.rounding!r}'})"

    def __str__(self) -> str:
        return str(self.format) if self.is_plain else f"cast({self.format}, {self.rounding})"


def as_cast(x: Cast | FormatLike) -> Cast:
    """The cast that `x` stands for: itself, or that of a format or of a format's name."""
    return x if isinstance(x, Cast) else Cast(as_format(x))
