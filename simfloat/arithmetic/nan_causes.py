"""Why results are NaN, counted by cause: computed only where one is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_cpu
from simfloat.arithmetic.observer import Observer, notify
from simfloat.formats import FP32, Format
from simfloat.kernels.events import (
    BEYOND,
    CAUSES,
    DOMAIN,
    FIRST_CAUSE,
    INF_BY_INF,
    INF_IN_SUM,
    INF_MINUS_INF,
    INFINITE,
    NAN_OPERAND,
    OVERFLOW,
    SUM_BEYOND,
    SUM_OVERFLOW,
    ZERO_BY_ZERO,
    ZERO_TIMES_INF,
    wants_optional_counts,
)

#: Operations whose result is undefined for one pair of operands alone.
UNDEFINED = {"add": INF_MINUS_INF, "subtract": INF_MINUS_INF, "multiply": ZERO_TIMES_INF}


def causes_of_rounding(exact: NDArray, out: NDArray) -> NDArray[np.int64]:
    """The causes of results that are rounded numbers: these were NaN, or beyond a format without infinities."""
    nan, was_nan = np.isnan(on_cpu(out)), np.isnan(on_cpu(exact))
    return _counts({NAN_OPERAND: nan & was_nan, BEYOND: nan & ~was_nan})


def causes_of_operation(kernel: str, operands: Sequence[NDArray], exact: NDArray, out: NDArray) -> NDArray[np.int64]:
    """The causes of results of an operation on these operands, whose exact results are known."""
    a, b, c = map(on_cpu, operands)
    nan, none = np.isnan(on_cpu(out)), np.isnan(on_cpu(exact))
    undefined = nan & none & ~(np.isnan(a) | np.isnan(b) | np.isnan(c))
    zero = (a == 0) | (b == 0)
    if kernel == "divide":
        parts = {ZERO_BY_ZERO: undefined & zero, INF_BY_INF: undefined & ~zero}
    elif kernel == "fma":
        parts = {ZERO_TIMES_INF: undefined & zero, INF_MINUS_INF: undefined & ~zero}
    else:
        parts = {UNDEFINED.get(kernel, DOMAIN): undefined}
    return _counts({NAN_OPERAND: nan & none & ~undefined, BEYOND: nan & ~none, **parts})


def is_wide(format: Format) -> bool:
    """Whether the format has FP32's range, as BF16 has, or a wider one."""
    return format.emax >= FP32.emax and format.emin <= FP32.emin


def is_precise(format: Format) -> bool:
    """Whether the format has FP32's precision, or more."""
    return format.mantissa_bits >= FP32.mantissa_bits


class SumObserver(Observer):
    """Passes on the events of sums of products, with the cause of those that are not finite.

    That follows from the operands of the products, and from the range of the accumulator's format, None for any.
    """

    def __init__(self, observer: Observer, operands: Sequence[NDArray], format: Format | None) -> None:
        self._observer, self._operands, self._format = observer, operands, format
        self.more = wants_optional_counts(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Pass the events on, with causes of their own for sums that were NaN or infinite before they were rounded."""
        infinite = events[INFINITE] - events[OVERFLOW]
        if infinite > 0 or events[FIRST_CAUSE + NAN_OPERAND]:
            cause, nan = self._cause(), int(events[FIRST_CAUSE + NAN_OPERAND])
            events[FIRST_CAUSE + NAN_OPERAND] = 0
            events[FIRST_CAUSE + cause] += nan + (infinite if cause in (SUM_OVERFLOW, SUM_BEYOND) else 0)
        notify(self._observer, events, operation, path, phase)

    def _cause(self) -> int:
        """Why sums of these operands can be NaN, or infinite."""
        if any(bool(np.isnan(x).any()) for x in self._operands):
            return NAN_OPERAND
        if any(bool(np.isinf(x).any()) for x in self._operands):
            return INF_IN_SUM
        return SUM_BEYOND if self._format is None or is_wide(self._format) else SUM_OVERFLOW


def _counts(masks: dict[int, NDArray[np.bool_]]) -> NDArray[np.int64]:
    counts = np.zeros(len(CAUSES), np.int64)
    for cause, where in masks.items():
        counts[cause] = int(np.count_nonzero(where))
    return counts
