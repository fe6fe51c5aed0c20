"""Targets and observers: the description of a rounding's results, and the receivers of rounding events.

A target is the format, mode and array type of a rounding. This file also checks that float64 is precise enough to round
to it once. An observer receives the events of roundings. The causes of NaN results are counted only if there is a NaN.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream, check_stream
from simfloat.arithmetic.machines import CPU, on_cpu
from simfloat.arithmetic.operands import FloatType, are_float32
from simfloat.environment import in_callers_environment, in_usual_environment
from simfloat.formats import FP32, FP64, Format, Rounding, as_format
from simfloat.formats.catalog import FormatLike
from simfloat.formats.exact_numbers import EXACT
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
from simfloat.uninterrupted import uninterrupted


class Observer(ABC):
    """A receiver of rounding events: pass it as `observer=`. Any object with its method `observe` is accepted.

    An observer with `state_dict` and `load_state_dict`, or `state` and `load_state`, is part of the checkpoints of a
    training.

    Events are passed as a vector of counts, in the order that `simfloat.kernels.rounding.events` lists. If `more` is
    true, the counts of saturated and of inexact results follow at the end.
    """

    #: True if saturated and inexact results are to be counted as well.
    more: bool = False

    def wants(self, path: str, phase: str) -> bool:
        """Return True if events of this path and phase are needed; other roundings then run at full speed."""
        return True

    @abstractmethod
    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Receive the events of one call: `operation` on the tensor at `path` during `phase`.

        `events` belongs to the observer afterwards.
        """

    def follow_policy(self, policy: Any) -> None:
        """Receive the policy under which a simulation computes the following results."""
        return

    def follow_storage(self, widest: Any) -> None:
        """Receive the widest format that the tensors of a PyTorch model can represent."""
        return

    def step(self, /, **values: float) -> None:
        """Receive the values of a finished training step, by name; `simfloat.train.fit` calls it."""
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
    """Return True if there is an observer that needs events of this path and phase."""
    if observer is None:
        return False
    return bool(getattr(observer, "wants", _always)(path, phase))


def _always(path: str, phase: str) -> bool:
    return True


def notify(observer: Observer, events: NDArray[np.int64], operation: str, *where: str) -> None:
    """Pass events to an observer; for a user's class, in the floating-point environment of the user's call."""
    if type(observer) is WithPath:  # as its method does, in two calls fewer
        where, observer = (observer.layer, observer.stage), observer.observer
    if _is_ours(type(observer)):
        observer.observe(events, operation, *where)
    else:
        in_callers_environment(observer.observe, events, operation, *where)


@cache
def _is_ours(kind: type) -> bool:
    """Return True if a class of observers belongs to this package."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


#: The largest number of functions that wait at an observer. Each may keep 40 KB, and each block of a simulation adds
#: one for each parameter.
MOST_WAITING = 1000

#: The path, the operation and the phase of events.
EventKey = tuple[str, str, str]


class AddingObserver(Observer):
    """An observer that only adds up events, by path, operation and phase, in vectors of this size.

    `wants_all` is True if it counts all paths and phases.
    """

    def __init__(self, size: int, wants_all: bool) -> None:
        self._size, self._wants_all = size, wants_all
        self._events: dict[EventKey, NDArray[np.int64]] = {}
        self._lock = Lock()
        self._waiting: list[Callable[[], None]] = []
        #: The counts of calls outside of a simulation, by operation.
        self.bound: dict[str, BoundCounts | None] = {}

    def add_later(self, add: Callable[[], None]) -> None:
        """Store a function that adds events; it is called before counts are read. The caller holds the lock."""
        if len(self._waiting) >= MOST_WAITING:
            self._add_waiting()
        self._waiting.append(add)

    def _add_waiting(self) -> None:
        """Call the stored functions; the caller holds the lock."""
        with uninterrupted():  # Ctrl-C would drop the functions that follow
            waiting, self._waiting = self._waiting, []
            for add in waiting:
                add()


class BoundCounts:
    """The counts of one path, operation and phase in an observer that only adds up events.

    The vector is looked up once, and again after the observer was reset or has loaded a state. Hold `lock` while you
    use the vector.
    """

    __slots__ = ("_all", "_vector", "key", "lock", "observer")

    def __init__(self, observer: AddingObserver, key: EventKey) -> None:
        self.observer, self.key, self.lock = observer, key, observer._lock
        self._all: dict[EventKey, NDArray[np.int64]] | None = None
        self._vector = np.zeros(0, np.int64)

    def move(self, events: NDArray[np.int64], repeats: int) -> None:
        """Add the events of a call with finite results, `repeats` times, and set them to zero."""
        with self.lock:
            totals = self.vector()
            if events.size != totals.size:
                # The loop does not check bounds. Sizes differ if the program changes `more` of a recorder.
                size = min(events.size, totals.size)
                events[size:] = 0
                events, totals = events[:size], totals[:size]
            CPU.loops.counting.move_events(events, totals, repeats)

    def vector(self) -> NDArray[np.int64]:
        """Return the vector to which events are added; a new key follows the others of the observer."""
        observer = self.observer
        every = observer._events
        if self._all is not every:
            vector = every.get(self.key)
            if vector is None:
                vector = every[self.key] = np.zeros(observer._size, np.int64)
            self._all, self._vector = every, vector
        return self._vector


def adds_up(observer: Observer | None) -> bool:
    """Return True if an observer only adds the events of calls, so it may receive the sum of several calls at once."""
    return isinstance(observer, AddingObserver) and _is_ours(type(observer))


@dataclass(frozen=True)
class WithPath(Observer):
    """Passes events on with the path of one layer and one phase."""

    observer: Observer
    layer: str
    stage: str
    more: bool = False
    #: The counts of the observer for this path and phase, by operation.
    bound: dict[str, BoundCounts | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Pass the events on with the path of the layer and the phase."""
        notify(self, events, operation)


def bound_counts(observer: Observer, operation: str) -> BoundCounts | None:
    """Return the counts to which an observer adds the events of an operation; None if it needs each call."""
    if type(observer) is SumObserver:
        observer = observer.inner
    path, phase, receiver = "", "forward", observer
    if type(observer) is WithPath:
        path, phase, receiver = observer.layer, observer.stage, observer.observer
    elif not isinstance(observer, AddingObserver):
        return None
    try:
        return observer.bound[operation]
    except KeyError:
        return observer.bound.setdefault(operation, _bind_counts(receiver, operation, path, phase))
    except AttributeError:  # a subclass of the program without the constructor of its base
        return None


def _bind_counts(observer: Observer, operation: str, path: str, phase: str) -> BoundCounts | None:
    if not (isinstance(observer, AddingObserver) and adds_up(observer) and observer.wants(path, phase)):
        return None
    return BoundCounts(observer, (path, operation, phase))


class ObserverGroup(Observer):
    """An observer that passes events on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers
        self.more = any(map(wants_optional_counts, observers))

    def wants(self, path: str, phase: str) -> bool:
        """Return True if one of the observers needs events of this path and phase."""
        return any(wants(observer, path, phase) for observer in self.observers)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Pass each observer its own copy of the events, with the counts that it wants."""
        for observer in self.observers:
            notify(
                observer,
                events.copy() if wants_optional_counts(observer) else events[:SIZE].copy(),
                operation,
                path,
                phase,
            )


#: Functions that return the observer of the running simulation. Simulations add one, since they build on this package.
_finders: list[Callable[[], Observer | None]] = []


def set_observer_finder(find: Callable[[], Observer | None]) -> None:
    """Set the function that returns the observer for operations that follow no policy."""
    _finders.append(find)


def observer_in_force() -> Observer | None:
    """Return the observer of the running simulation; None outside of a simulation."""
    return _finders[0]() if _finders else None


#: Operations with an undefined result for only one kind of operands.
UNDEFINED = {"add": INF_MINUS_INF, "subtract": INF_MINUS_INF, "multiply": ZERO_TIMES_INF}


def causes_of_rounding(exact: NDArray, out: NDArray) -> NDArray[np.int64]:
    """Return the causes of NaN among rounded values: they were NaN, or beyond a format without infinities."""
    nan, was_nan = np.isnan(on_cpu(out)), np.isnan(on_cpu(exact))
    return _counts({NAN_OPERAND: nan & was_nan, BEYOND: nan & ~was_nan})


def causes_of_operation(kernel: str, operands: Sequence[NDArray], exact: NDArray, out: NDArray) -> NDArray[np.int64]:
    """Return the causes of NaN among the results of an operation, from its operands and its exact results."""
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
    """Return True if the format has the range of FP32 or a wider one, like BF16."""
    return format.emax >= FP32.emax and format.emin <= FP32.emin


def is_precise(format: Format) -> bool:
    """Return True if the format has at least the precision of FP32."""
    return format.mantissa_bits >= FP32.mantissa_bits


class SumObserver(Observer):
    """Passes on the events of sums of products, with the cause of sums that are not finite.

    The cause follows from the operands of the products, and from the range of the accumulator's format (None for any).
    """

    def __init__(self, observer: Observer, operands: Sequence[NDArray], format: Format | None) -> None:
        self.inner, self._operands, self._format = observer, operands, format
        self.more = wants_optional_counts(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Pass the events on, with the cause of sums that were NaN or infinite before they were rounded."""
        infinite = events[INFINITE] - events[OVERFLOW]
        if infinite > 0 or events[FIRST_CAUSE + NAN_OPERAND]:
            cause, nan = self._cause(), int(events[FIRST_CAUSE + NAN_OPERAND])
            events[FIRST_CAUSE + NAN_OPERAND] = 0
            events[FIRST_CAUSE + cause] += nan + (infinite if cause in (SUM_OVERFLOW, SUM_BEYOND) else 0)
        notify(self.inner, events, operation, path, phase)

    def _cause(self) -> int:
        """Return the cause for which sums of these operands can be NaN or infinite."""
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


#: With round-to-odd in its 53 bits, float64 guarantees a single rounding to at most this precision.
MOST_PRECISION = 50

#: Below this magnitude float64 has too few bits to mark an inexact result by its last bit.
LEAST = 2.0**-1070


class Target(NamedTuple):
    """The format, rounding mode and array type of results, with the stream and the observer of their roundings.

    Nothing is checked; `as_target` checks what users pass.
    """

    format: Format
    rounding: Rounding
    dtype: FloatType  # of the array of results
    stream: Stream | None = None
    observer: Observer | None = None
    operation: str = ""  # the name for the observer

    def with_call_options(self, format: Any, stream: Stream | None, observer: Observer | None) -> Target:
        """Return a cached target with the stream and the observer of one call, which are checked.

        It has the format object of the call, which is equal but may have another name in messages.
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
    """Return the target for options of a user; ValueError for an invalid format, rounding mode, stream or observer."""
    format = as_format(format)
    rounding = as_rounding(rounding)
    check_stream(stream)
    check_observer(observer)
    return Target(format, rounding, result_dtype(operands, format), stream, observer, operation)


def carrier_of(format: Format) -> FloatType:
    """Return the dtype of arrays of numbers of a format: float32 if they fit, otherwise float64."""
    return np.float32 if format.fits_float32 else np.float64


def result_dtype(operands: list[NDArray], format: Format) -> FloatType:
    """Return float32 if all operands are float32 and the format fits, otherwise float64."""
    return carrier_of(format) if are_float32(operands) else np.float64


def check_precision(format: Format, rounding: Rounding, is_exact: bool = False, operation: str = "") -> None:
    """Raise ValueError, naming the operation, if float64 cannot guarantee a single rounding to the format.

    `is_exact` is True for sums, and for operations with exact results, which have FP64 in every deterministic mode.
    """
    if rounding.overflows:
        rounding.check_overflow(format)
    if format.mantissa_bits < MOST_PRECISION or (format == FP64 and rounding.steps == "nearest"):
        return
    if format == FP64 and is_exact and not rounding.is_stochastic:
        return
    square = " (for a square, write x * x)" if operation == "power" else ""
    others = f"; {operation}{square} does not" if operation and not is_exact else ""
    limit = (
        f"Operations round to formats with at most {MOST_PRECISION} bits of precision, or to FP64 with nearest_even; "
    )
    if operation and is_exact:
        limit = f"{operation} rounds to formats with at most {MOST_PRECISION} bits of precision, or to FP64 in every "
        limit += "deterministic mode; "
    limit += f"{format} has precision {format.precision}, and the mode is {rounding}."
    advice = (
        f"Use at most {MOST_PRECISION - 1} mantissa bits, or simfloat.FP64 with simfloat.nearest_even. "
        f"simfloat.Format(11, {MOST_PRECISION - 1}) is the widest format with the range of FP64 that has every mode. "
        f"Sums and {', '.join(sorted(EXACT))} have FP64 in every deterministic mode{others}."
    )
    if format.is_fixed:
        sign = format.bits - format.precision  # 1, or 0 if the lowest number of two's complement uses this bit
        advice = f"Such a fixed-point format may have at most {MOST_PRECISION + sign} bits."
    raise ValueError(f"{limit} {advice}")


@in_usual_environment
def check_inexact(format: Format, operation: str, remedy: str = "Count without more=True") -> None:
    """Raise ValueError if exact results, rounded to odd in float64, could be mistaken for numbers of a wide format."""
    if format.mantissa_bits >= MOST_PRECISION or format.smallest_subnormal < LEAST:
        raise ValueError(
            f"Inexact results of {operation} cannot be detected in {format}, only in formats of at most "
            f"{MOST_PRECISION} bits of precision without numbers below 2^-1070. {remedy}."
        )


def odd_suffices(format: Format, rounding: Rounding, carrier: FloatType = np.float64) -> bool:
    """Return True if round-to-odd in the carrier keeps all bits that a rounding reads, at every magnitude of the
    format."""
    digits, least, top = (24, -149, 127) if carrier is np.float32 else (53, -1074, 1023)
    # A draw reads `bits` bits below the last place, and two more bits represent the rest.
    bits = rounding.bits + 2
    # Without a draw, all values above the range of the carrier are beyond the largest number of the format. Rounding to
    # odd turns them into the largest number of the carrier. If the format has the same range, modes that truncate round
    # this number to the largest number of the format, and an overflowing mode would miss the infinity.
    above = format.emax < top or (format.emax == top and not (rounding.is_stochastic or rounding.overflows))
    return above and format.last_exponent - format.mantissa_bits - bits >= least and format.precision + bits <= digits
