"""Immutable values that are dictionary keys on every call."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def hashed_once(cls: type[T]) -> type[T]:
    """Let a frozen dataclass compute its hash once. It pickles as its fields: hashes of text differ by process."""
    compute: Any = cls.__hash__
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]

    def __hash__(self: Any) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", compute(self))
            return self._hash

    def __getstate__(self: Any) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    cls.__hash__ = __hash__  # type: ignore[method-assign]
    cls.__getstate__ = __getstate__  # type: ignore[method-assign]
    return cls
