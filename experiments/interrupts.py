"""Ctrl-C and termination: one line, exit code 130, at any moment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

#: The exit code that a shell reports after Ctrl-C; simfloat.terminal also has it, but is slow to import.
INTERRUPTED = 130

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], Any]


def end_at_once() -> None:
    """Let a signal end the process at once: during the seconds of imports, there is nothing to clean up."""
    _handle(_end)


@contextmanager
def raised() -> Iterator[None]:
    """Let the first signal within the block raise KeyboardInterrupt, for cleaning up; the second one ends."""
    before = _handle(_raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handle(handler: Handler) -> dict[int, Any]:
    """Set the handler of all signals that the process does not ignore from its start; return the former handlers."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heard}


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    _handle(_end)
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # Python's files cannot be used: the signal may have interrupted one of their writes. Workers see the end of
    # their input, and a file that was being written does not have its name yet.
    os.write(2, b"Interrupted.\n")
    os._exit(INTERRUPTED)
