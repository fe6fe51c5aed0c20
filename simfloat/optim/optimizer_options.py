"""Options of optimizers: functions that check and convert a value, and attributes that read it from the groups."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np

from simfloat.checks import check_flags, is_integer, message_text

Value = TypeVar("Value")

#: The value of the option of this name, as updates take it; ValueError, naming the option, for what it cannot be.
Reader = Callable[[str, Any], Value]


class Grouped(Protocol):
    """What has parameter groups."""

    defaults: dict[str, Any]
    param_groups: list[dict[str, Any]]


class Option(Generic[Value]):
    """An option of an optimizer, as its attribute: the value that all parameter groups have; assigned, it is in all.

    Raises ValueError where the groups differ.
    """

    def __init__(self, read: Reader[Value]) -> None:
        self.read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, optimizer: None, owner: type) -> Option[Value]: ...
    @overload
    def __get__(self, optimizer: Grouped, owner: type) -> Value: ...
    def __get__(self, optimizer: Grouped | None, owner: type) -> Option[Value] | Value:
        if optimizer is None:
            return self
        values = [group[self.name] for group in optimizer.param_groups]
        if any(value != values[0] for value in values):
            raise ValueError(
                f"{self.name} differs between the parameter groups: {', '.join(map(repr, values))}. Read "
                f"optimizer.param_groups[number]['{self.name}']."
            )
        return values[0]

    def __set__(self, optimizer: Grouped, value: Value) -> None:
        for options in (optimizer.defaults, *optimizer.param_groups):
            options[self.name] = value


def number(name: str, value: Any) -> float:
    """A finite real number that float64 holds exactly: options are exact operands of the update."""
    if type(value) is float and isfinite(value):
        return value
    if isinstance(value, bool | np.bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a real number, got {value!r}.")
    try:
        exact = isfinite(value) and float(value) == value
    except OverflowError:  # an integer beyond float64's range
        exact = False
    if not exact:
        raise ValueError(f"{name} must be a finite number that float64 holds exactly, got {message_text(value)}.")
    return float(value)


def number_that(holds: Callable[[float], bool], must: str) -> Reader[float]:
    """Make a reader of finite numbers for which a condition holds; `must` says it in the message."""

    def read(name: str, value: Any) -> float:
        if not holds(number(name, value)):
            raise ValueError(f"{name} must {must}, got {value!r}.")
        return float(value)

    return read


number_from_zero = number_that(lambda x: x >= 0, "not be negative")
number_up_to_zero = number_that(lambda x: x <= 0, "not be positive")
number_from_one = number_that(lambda x: x >= 1, "be at least 1")
number_above_zero = number_that(lambda x: x > 0, "be above 0")
share = number_that(lambda x: 0 <= x <= 1, "be from 0 to 1")

#: The factor by which an average forgets, or a plateau lowers the lr.
decay = number_that(lambda x: 0 <= x < 1, "be from 0 below 1")


def integer(least: int, most: int) -> Reader[int]:
    """An integer in this range."""

    def read(name: str, value: Any) -> int:
        if not is_integer(value, least, most):
            raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}.")
        return int(value)

    return read


#: A number of steps, epochs or calls.
count_from_zero, count_from_one = integer(0, 2**53), integer(1, 2**53)


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if value is True or value is False:
        return value
    check_flags(**{name: value})
    return bool(value)


def word(*words: str) -> Reader[str | None]:
    """One of these words, or None."""

    def read(name: str, value: Any) -> str | None:
        if value is not None and not (isinstance(value, str) and value in words):
            raise ValueError(f"{name} must be None or one of {', '.join(map(repr, words))}; got {value!r}.")
        return value

    return read


def optional(read: Reader[Value]) -> Reader[Value | None]:
    """Make a reader that also accepts None."""
    return lambda name, value: None if value is None else read(name, value)


def several(*readers: Reader[Any]) -> Reader[Any]:
    """A tuple of as many values, each as its reader says."""

    def read_all(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list) or len(value) != len(readers):
            raise ValueError(f"{name} must be a tuple of {len(readers)} values, got {value!r}.")
        return tuple(read(f"{name}[{i}]", part) for i, (read, part) in enumerate(zip(readers, value, strict=True)))

    return read_all
