"""Ctrl-C and termination: one line, exit code 130, at any moment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

#: What a shell reports for a program ended by Ctrl-C; simfloat.terminal has it too, but is slow to import.
INTERRUPTED = 130

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], Any]


def end_at_once() -> None:
    """From now on a signal ends the process there and then: for the seconds of imports, with nothing to clean up."""
    _handle(_end)


@contextmanager
def raised() -> Iterator[None]:
    """Within the block the first signal raises KeyboardInterrupt, so that it can be cleaned up; the second ends."""
    before = _handle(_raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handle(handler: Handler) -> dict[int, Any]:
    """Set the handler of all signals but those that the process was started to ignore; returns those before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heard}


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    _handle(_end)
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # Not through Python's files: the signal may have come in the middle of one of their writes. Workers see the end
    # of their input, and whatever was being written has not got its name yet.
    os.write(2, b"Interrupted.\n")
    os._exit(INTERRUPTED)
