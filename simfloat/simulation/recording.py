"""Whether operations are recorded for backward."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar

from simfloat.simulation.context import close_block, open_block, under_way

Function = TypeVar("Function", bound=Callable[..., Any])


class no_grad(ContextDecorator):
    """A ``with`` block, or a decorator ``@no_grad()``, under which operations are not recorded for backward.

    Examples:
        >>> with sf.simulate("fp32"), sf.no_grad():
        ...     y = sf.Parameter([1.0]) + 1.0
        >>> y.requires_grad
        False
    """

    def __enter__(self) -> None:
        open_block(self, "recording", False)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        close_block(self, kind)

    def __call__(self, function: Function) -> Function:
        """The function, run inside such a block; ValueError for one whose body runs after the call."""
        if isgeneratorfunction(function) or iscoroutinefunction(function) or isasyncgenfunction(function):
            name = getattr(function, "__name__", "it")
            raise ValueError(f"What {name} does runs later; put `with simfloat.no_grad():` inside of it.")
        return super().__call__(function)

    def __repr__(self) -> str:
        return "no_grad()"


def is_recording() -> bool:
    """Whether operations are recorded for backward."""
    return under_way().recording
