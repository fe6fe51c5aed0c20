"""Targets and observers: where the results of a rounding go, and who receives its events.

A target is the format, mode and array type of a rounding, and tells which of them float64 can prove. An observer
receives the events of roundings. The causes for which results are NaN are counted only where one is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream, check_stream
from simfloat.arithmetic.machines import on_cpu
from simfloat.arithmetic.operands import FloatType, are_float32
from simfloat.environment import in_callers_environment, in_usual_environment
from simfloat.formats import FP32, FP64, Format, Rounding, as_format
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.kernels.rounding.events import (
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
    SIZE,
    SUM_BEYOND,
    SUM_OVERFLOW,
    ZERO_BY_ZERO,
    ZERO_TIMES_INF,
    wants_optional_counts,
)


class Observer(ABC):
    """Receives the events of every rounding it is passed to; anything with its method `observe` serves.

    One that has `state_dict` and `load_state_dict`, or `state` and `load_state`, is part of a training's checkpoints.

    Events come as a vector of counts, in the order that `simfloat.kernels.rounding.events` lists. An observer whose
    `more` is true receives the counts of saturated and of inexact results behind them.
    """

    #: Whether saturated and inexact results are to be counted too.
    more: bool = False

    def wants(self, path: str, phase: str) -> bool:
        """Whether events of this path and phase are of use; the roundings of others then run at full speed."""
        return True

    @abstractmethod
    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Take the events of one call: `operation` on the tensor at `path` during `phase`.

        The array belongs to the observer from then on.
        """

    def follow_policy(self, policy: Any) -> None:
        """Take the policy under which a simulation makes the results that follow."""
        return

    def step(self, /, **values: float) -> None:
        """Take the end of a step of a training, and numbers of it by name; `simfloat.train.fit` calls it."""
        return


def check_observer(observer: Any) -> None:
    """Raise ValueError unless `observer` is None or has the method `observe`."""
    if observer is None:
        return
    if isinstance(observer, type) or not callable(getattr(observer, "observe", None)):
        raise ValueError(
            f"observer must be an object with a method observe, for example simfloat.Recorder(); got {observer!r}."
        )


def wants(observer: Observer | None, path: str, phase: str) -> bool:
    """Whether there is an observer that has use for events of this path and phase."""
    if observer is None:
        return False
    return bool(getattr(observer, "wants", _always)(path, phase))


def _always(path: str, phase: str) -> bool:
    return True


def notify(observer: Observer, events: NDArray[np.int64], operation: str, *where: str) -> None:
    """Give events to an observer; to a user's own one in the floating-point environment of the user's call."""
    if _is_ours(type(observer)):
        observer.observe(events, operation, *where)
    else:
        in_callers_environment(observer.observe, events, operation, *where)


@cache
def _is_ours(kind: type) -> bool:
    """Whether a class of observers is one of this package's."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


class ObserverGroup(Observer):
    """Passes events on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers
        self.more = any(map(wants_optional_counts, observers))

    def wants(self, path: str, phase: str) -> bool:
        """Whether one of them has use for events of this path and phase."""
        return any(wants(observer, path, phase) for observer in self.observers)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Give each observer events of its own, as many as it counts."""
        for observer in self.observers:
            notify(
                observer,
                events.copy() if wants_optional_counts(observer) else events[:SIZE].copy(),
                operation,
                path,
                phase,
            )


#: Finds the observer of the simulation in force. Simulations add it, since they are built on this package.
_finders: list[Callable[[], Observer | None]] = []


def set_observer_finder(find: Callable[[], Observer | None]) -> None:
    """Observe operations that follow no policy by the observer that `find` returns at that time."""
    _finders.append(find)


def observer_in_force() -> Observer | None:
    """The observer of the simulation in force; None outside of any."""
    return _finders[0]() if _finders else None


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


#: Round-to-odd in float64's 53 bits proves a single rounding to at most this many.
MOST_PRECISION = 50

#: Below this float64 has too few bits to tell an inexact result by the last one of them.
LEAST = 2.0**-1070


class Target(NamedTuple):
    """Format, rounding mode and array type of results, with the stream and the observer of their roundings.

    Nothing here is checked: `as_target` is for what users hand over.
    """

    format: Format
    rounding: Rounding
    dtype: FloatType  # of the array of results
    stream: Stream | None = None
    observer: Observer | None = None
    operation: str = ""  # its name for the observer

    def with_call_options(self, format: Any, stream: Stream | None, observer: Observer | None) -> Target:
        """A cached target as one call wants it: with its stream and observer, which are checked, and with its own
        format object, which is equal but may have another name in messages.
        """
        target = self
        if format is not self.format and isinstance(format, Format):
            target = self._replace(format=format)
        if stream is not None:
            check_stream(stream)
        if observer is not None:
            check_observer(observer)
        return target._replace(stream=stream, observer=observer)


def as_target(
    operands: list[NDArray],
    format: FormatLike,
    rounding: RoundingLike,
    stream: Stream | None,
    observer: Observer | None,
    operation: str,
) -> Target:
    """The target that users ask for; ValueError for what is no format, rounding mode, stream or observer."""
    format = as_format(format)
    rounding = as_rounding(rounding)
    check_stream(stream)
    check_observer(observer)
    return Target(format, rounding, result_dtype(operands, format), stream, observer, operation)


def carrier_of(format: Format) -> FloatType:
    """The array type that numbers of a format travel as: float32 if they fit."""
    return np.float32 if format.fits_float32 else np.float64


def result_dtype(operands: list[NDArray], format: Format) -> FloatType:
    """float32 if all operands are float32 and the format fits, else float64."""
    return carrier_of(format) if are_float32(operands) else np.float64


def check_precision(format: Format, rounding: Rounding) -> None:
    """Raise ValueError for formats whose single rounding float64's arithmetic cannot prove."""
    if format.mantissa_bits >= MOST_PRECISION and not (format == FP64 and rounding.steps == "nearest"):
        raise ValueError(
            f"An operation is rounded once to formats of at most {MOST_PRECISION} bits of precision, or to FP64 under "
            f"nearest_even; {format} has precision {format.precision}, and the mode is {rounding}. Use at most "
            f"{MOST_PRECISION - 1} mantissa bits, or simfloat.FP64 with simfloat.nearest_even."
        )


@in_usual_environment
def check_inexact(format: Format, operation: str) -> None:
    """Raise ValueError for a format so wide that exact results, rounded to odd in float64, may be taken for its own."""
    if format.mantissa_bits >= MOST_PRECISION or format.smallest_subnormal < LEAST:
        raise ValueError(
            f"Which results of {operation} are inexact cannot be told in {format}; it can in formats of at most "
            f"{MOST_PRECISION} bits of precision and no numbers below 2^-1070. Count without more=True, "
            "compute without flags=True."
        )


def odd_suffices(format: Format, rounding: Rounding, carrier: FloatType = np.float64) -> bool:
    """Whether round-to-odd in the carrier holds all that a rounding reads, at every magnitude of the format."""
    digits, least, top = (24, -149, 127) if carrier is np.float32 else (53, -1074, 1023)
    # A draw reads `bits` bits below the last place, and two more stand for what lies below.
    bits = rounding.bits + 2
    # Without a draw, what lies above is beyond the largest.
    above = format.emax < top or (format.emax == top and not rounding.is_stochastic)
    return above and format.last_exponent - format.mantissa_bits - bits >= least and format.precision + bits <= digits
