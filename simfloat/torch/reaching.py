"""Whose gradient a part of a composite's backward pass computes, where shapes alone do not tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_number: ContextVar[int | None] = ContextVar("simfloat.torch reaching", default=None)


def reached_number() -> int | None:
    """The number of the forward operation's operand that is reached; None where nobody said."""
    return _number.get()


@contextmanager
def reaching(number: int) -> Iterator[None]:
    """A block whose operations compute the gradient of the forward operation's operand of this number."""
    token = _number.set(number)
    try:
        yield
    finally:
        _number.reset(token)
