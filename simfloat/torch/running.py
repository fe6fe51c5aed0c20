"""The run whose block is open in this thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simfloat.torch.engine import Engine

_thread = local()


def opened() -> Engine | None:
    """What the run knows whose block is open in this thread, paused or not; None outside of any."""
    return getattr(_thread, "engine", None)


def running() -> Engine | None:
    """The same, but None while the run is paused."""
    return None if getattr(_thread, "is_paused", False) else opened()


def run_in_thread(engine: Engine | None) -> None:
    """Open the block of a run in this thread, or none any more."""
    _thread.engine = engine


@contextmanager
def pause() -> Iterator[None]:
    """A block in which the run of this thread is paused."""
    _thread.is_paused = True
    try:
        yield
    finally:
        _thread.is_paused = False
