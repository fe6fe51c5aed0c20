"""The run whose block is open in this thread."""

from __future__ import annotations

from threading import local
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simfloat.torch.engine import Engine

_thread = local()


def running() -> Engine | None:
    """What the run knows whose block is open in this thread; None outside of any."""
    return getattr(_thread, "engine", None)


def run_in_thread(engine: Engine | None) -> None:
    """Open the block of a run in this thread, or none any more."""
    _thread.engine = engine
