"""Numbers that write down how they are made, so that the same is made of others.

What a function does with numbers is traced by giving it a `TracedNumber` for each, and repeated by
`NumberTrace.again`. What it asks of numbers, such as whether one is zero, is noted with the answer; where another
number has another answer, the trace does not hold. A traced number refuses with TypeError what would leave no trace, as
math.sqrt of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

#: How a number is made: its place among all, a function of two numbers, and their places.
TraceStep = tuple[int, Callable[[Any, Any], Any], int, int]


class NumberTrace:
    """What is done with numbers of which so many are given."""

    def __init__(self, inputs: Sequence[float]) -> None:
        self._numbers: list[Any] = list(inputs)
        self._count = len(inputs)
        self._steps: list[TraceStep] = []
        self._answers: list[tuple[int, Any]] = []

    @property
    def traced_inputs(self) -> list[TracedNumber]:
        """The numbers that were given."""
        return [TracedNumber(self, place) for place in range(self._count)]

    def place_of(self, x: Any) -> int:
        """The place of a traced number, or of one that is the same always."""
        if isinstance(x, TracedNumber):
            return x.place
        self._numbers.append(x)
        return len(self._numbers) - 1

    def apply(self, function: Callable[[Any, Any], Any], a: Any, b: Any) -> TracedNumber:
        """A function of two numbers."""
        first, second = self.place_of(a), self.place_of(b)
        place = self.place_of(function(self._numbers[first], self._numbers[second]))
        self._steps.append((place, function, first, second))
        return TracedNumber(self, place)

    def decide(self, function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        """What a function says of two numbers, on which the trace hangs from now on."""
        place = self.apply(function, a, b).place
        self._answers.append((place, self._numbers[place]))
        return self._numbers[place]

    def repeat_with(self, inputs: Sequence[float]) -> list[Any] | None:
        """All numbers by their places, of these that are given; None if one has another answer."""
        numbers = self._numbers.copy()
        numbers[: self._count] = inputs
        for place, function, a, b in self._steps:
            numbers[place] = function(numbers[a], numbers[b])
        return numbers if all(numbers[place] == answer for place, answer in self._answers) else None


class TracedNumber:
    """A number of a trace."""

    __slots__ = ("place", "trace")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: NumberTrace, place: int) -> None:
        self.trace, self.place = trace, place

    def __neg__(self) -> TracedNumber:
        return self.trace.apply(_negative, self, None)

    def __abs__(self) -> TracedNumber:
        return self.trace.apply(_magnitude, self, None)

    def __bool__(self) -> bool:
        return bool(self.trace.decide(operator.ne, self, 0))


def _negative(x: Any, _: Any) -> Any:
    return -x


def _magnitude(x: Any, _: Any) -> Any:
    return abs(x)


def _operator_method(function: Callable[[Any, Any], Any]) -> Callable[[TracedNumber, Any], TracedNumber]:
    return lambda self, other: self.trace.apply(function, self, other)


def _right_operator_method(function: Callable[[Any, Any], Any]) -> Callable[[TracedNumber, Any], TracedNumber]:
    return lambda self, other: self.trace.apply(function, other, self)


def _comparison_method(function: Callable[[Any, Any], Any]) -> Callable[[TracedNumber, Any], Any]:
    return lambda self, other: self.trace.decide(function, self, other)


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(TracedNumber, f"__{_name}__", _operator_method(getattr(operator, _name)))
    setattr(TracedNumber, f"__r{_name}__", _right_operator_method(getattr(operator, _name)))
for _name in ("lt", "le", "eq", "ne", "ge", "gt"):
    setattr(TracedNumber, f"__{_name}__", _comparison_method(getattr(operator, _name)))
