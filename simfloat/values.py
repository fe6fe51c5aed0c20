"""Immutable values that are compared, and keys of dictionaries, on every call."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def store_as_pythons(value: Any) -> None:
    """Store NumPy's integers and truth values among the fields of a new value as Python's, which print as literals."""
    for name, field_value in vars(value).copy().items():
        object.__setattr__(
            value, name, field_value.item() if isinstance(field_value, np.integer | np.bool) else field_value
        )


def stored_hash(value: Any) -> int:
    """The hash of a frozen dataclass, of its class and the fields that are compared; computed once."""
    try:
        return value._hash
    except AttributeError:
        content = tuple(getattr(value, field.name) for field in fields(value) if field.compare)
        object.__setattr__(value, "_hash", hash((type(value), content)))
        return value._hash


def hashed_once(cls: type[T]) -> type[T]:
    """Let a frozen dataclass compute its hash once, and compare itself to itself at once.

    It pickles as its fields: hashes of text differ by process.
    """
    equals: Any = cls.__eq__
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]

    def __eq__(self: Any, other: object) -> bool:
        return self is other or equals(self, other)

    def __getstate__(self: Any) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    cls.__hash__ = stored_hash  # type: ignore[method-assign, assignment]
    cls.__eq__ = __eq__  # type: ignore[method-assign]
    cls.__getstate__ = __getstate__  # type: ignore[method-assign]
    return cls
