"""Options of optimizers and parameter groups, read from the arguments of an optimizer.

A reader checks and converts a value; an `Option` is the attribute that reads it from the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import isfinite
from numbers import Real
from typing import Any, Protocol, TypeVar, overload

import numpy as np

from simfloat.autodiff import Parameter, Tensor
from simfloat.common import did_you_mean, is_integer, message_text, type_name
from simfloat.options import Declaration, Reader

Value = TypeVar("Value")


class Grouped(Protocol):
    """An object with parameter groups."""

    defaults: dict[str, Any]
    param_groups: list[dict[str, Any]]


class Option(Declaration[Value]):
    """An option of an optimizer as its attribute, with one value for all groups; assigning sets it in all of them.

    Reading raises ValueError if the groups have different values.
    """

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
    """Return a finite real number that float64 represents exactly; options are exact operands of the update."""
    if type(value) is float and isfinite(value):
        return value
    if isinstance(value, bool | np.bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a real number, got {value!r}.")
    try:
        exact = isfinite(value) and float(value) == value
    except OverflowError:  # an integer beyond the range of float64
        exact = False
    if not exact:
        raise ValueError(f"{name} must be a finite number that fits float64 exactly, got {message_text(value)}.")
    return float(value)


def number_that(holds: Callable[[float], bool], must: str) -> Reader[float]:
    """Return a reader for finite numbers that fulfil a condition; `must` describes the condition in the message."""

    def read(name: str, value: Any) -> float:
        if not holds(number(name, value)):
            raise ValueError(f"{name} must {must}, got {value!r}.")
        return float(value)

    return read


def both(first: Reader[Any], second: Reader[Value]) -> Reader[Value]:
    """Return a reader for values that two readers accept; the first one is asked first."""

    def read(name: str, value: Any) -> Value:
        first(name, value)
        return second(name, value)

    return read


number_from_zero = number_that(lambda x: x >= 0, "not be negative")
number_up_to_zero = number_that(lambda x: x <= 0, "not be positive")
number_from_one = number_that(lambda x: x >= 1, "be at least 1")
number_above_zero = number_that(lambda x: x > 0, "be above 0")
share = number_that(lambda x: 0 <= x <= 1, "be from 0 to 1")

#: The decay factor of an average, or the factor by which a plateau lowers the lr.
decay = number_that(lambda x: 0 <= x < 1, "be from 0 below 1")


def integer(least: int, most: int) -> Reader[int]:
    """Return a reader for integers in this range."""

    def read(name: str, value: Any) -> int:
        if not is_integer(value, least, most):
            raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}.")
        return int(value)

    return read


#: A number of steps, epochs or calls.
count_from_zero, count_from_one = integer(0, 2**53), integer(1, 2**53)


def word(*words: str) -> Reader[Any]:
    """Return a reader for one of these words, or None."""

    def read(name: str, value: Any) -> str | None:
        if value is not None and not (isinstance(value, str) and value in words):
            raise ValueError(f"{name} must be None or one of {', '.join(map(repr, words))}; got {value!r}.")
        return value

    return read


def optional(read: Reader[Value]) -> Reader[Value | None]:
    """Return a reader that also accepts None."""
    return lambda name, value: None if value is None else read(name, value)


def several(*readers: Reader[Any]) -> Reader[Any]:
    """Return a reader for a tuple that has one value for each of these readers."""

    def read_all(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list) or len(value) != len(readers):
            raise ValueError(f"{name} must be a tuple of {len(readers)} values, got {value!r}.")
        return tuple(read(f"{name}[{i}]", part) for i, (read, part) in enumerate(zip(readers, value, strict=True)))

    return read_all


#: Additional keys of a group: the parameter names of PyTorch, a label of the user, and values stored by schedules.
LABELS = ("param_names", "name", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum")


def groups_in(params: Any) -> list[Mapping[str, Any]]:
    """Return the groups in the first argument of an optimizer; plain parameters or pairs are one group."""
    entries = list_parameters(params)
    if not entries:
        raise ValueError("An optimizer needs parameters; got none.")
    groups: list[Mapping[str, Any]] = [entry for entry in entries if isinstance(entry, Mapping)]
    if not groups:
        return [{"params": entries}]
    if len(groups) < len(entries):
        raise ValueError("An optimizer takes parameters, or dictionaries of parameter groups; got both.")
    return groups


def read_group(group: Any, defaults: Mapping[str, Any], existing: Collection[Parameter]) -> dict[str, Any]:
    """Return a group's parameters and options, with defaults for the options that it does not name.

    Raises ValueError for an unknown option, an object that is not a parameter, and a parameter that occurs twice or in
    `existing`.
    """
    if not isinstance(group, Mapping) or "params" not in group:
        raise ValueError(f"A parameter group is a dictionary with 'params' and options, got {group!r}.")
    check_names(group, defaults)
    members = group["params"]
    params, names = _split_names([members] if isinstance(members, Parameter) else list_parameters(members))
    check_distinct(params, existing)
    labels = {"param_names": names} if names else {}
    return {"params": params, **labels, **defaults, **{name: group[name] for name in group if name != "params"}}


def check_names(group: Mapping[Any, Any], options: Collection[str]) -> None:
    """Raise ValueError, with the nearest valid name, if a key of a group is neither an option nor a label."""
    allowed_names = [*options, *LABELS]
    for name in group:
        if name not in allowed_names and name != "params":
            hint = did_you_mean(name, allowed_names)
            raise ValueError(f"A parameter group has no option {name!r}. Options: {', '.join(allowed_names)}.{hint}")


def check_distinct(params: list[Any], existing: Collection[Parameter] = (), taker: str = "An optimizer") -> None:
    """Raise ValueError if an object is not a parameter, or if a parameter occurs twice or in `existing`."""
    seen = {id(parameter) for parameter in existing}
    for number, parameter in enumerate(params, len(seen)):
        if not isinstance(parameter, Parameter):
            raise ValueError(f"{taker} takes model.parameters(), got a {type_name(parameter)} among them.")
        if id(parameter) in seen:
            raise ValueError(f"{name_of(number, parameter)} was given twice; each parameter is given once.")
        seen.add(id(parameter))


def name_of(number: int, parameter: Parameter) -> str:
    """Return the name of a parameter in messages: its path, or its number."""
    return parameter.path or f"parameter {number}"


def list_parameters(params: Any, taker: str = "An optimizer") -> list[Any]:
    """Return the parameters in order; raise ValueError for an argument without an order or without parameters."""
    if isinstance(params, Tensor | set | frozenset | Mapping | str) or not isinstance(params, Iterable):
        kind = type(params).__name__
        raise ValueError(f"{taker} takes model.parameters() or a list of parameters in their order, got a {kind}.")
    return list(params)


def _split_names(entries: list[Any]) -> tuple[list[Any], list[str]]:
    """Return the parameters of (name, parameter) pairs and their names; no names for plain parameters."""
    pairs = [entry for entry in entries if isinstance(entry, tuple)]
    if not pairs:
        return entries, []
    if len(pairs) < len(entries) or not all(len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise ValueError("Parameters are given as pairs (name, parameter), all of them or none; got others among them.")
    return [parameter for _, parameter in pairs], [name for name, _ in pairs]
