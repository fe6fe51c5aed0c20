"""Rules of users for operations that there is no rule for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from simfloat.arithmetic.catalog import Kind, Operation, kind_of, register

Function = TypeVar("Function", bound=Callable[..., Any])


def name_operation(name: str, kind: Kind) -> None:
    """Let policies name an operation of PyTorch's, or of a user's rule, unless they can already."""
    if kind_of(name) is None:
        register(Operation(name, ("x",), kind, "An operation of PyTorch models."), __name__)


#: By the operation's name with its library's, such as ``mylib::op``.
USERS: dict[str, Callable[..., Any]] = {}
