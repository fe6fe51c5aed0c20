"""Rules of users for operations that there is no rule for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: By the operation's name with its library's, such as ``mylib::op``.
USERS: dict[str, Callable[..., Any]] = {}
