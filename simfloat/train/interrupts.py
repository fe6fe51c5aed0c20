"""Ctrl-C during a training that writes checkpoints: it waits until a step is complete, so that nothing is lost."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """A ``with`` block in which the first Ctrl-C is held back, but for where it is let in; the second one is not.

    holds_back: whether that is so. It holds in the main thread, and where the program has no handler of its own.
    """

    def __init__(self, holds_back: bool) -> None:
        self._holds_back = holds_back and current_thread() is main_thread()
        self._is_allowed = self._is_waiting = False

    def __enter__(self) -> Self:
        self._holds_back = self._holds_back and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._holds_back:
            signal.signal(signal.SIGINT, self._note_interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._holds_back:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None and self._is_waiting:
            raise KeyboardInterrupt

    @contextmanager
    def allow_interrupts(self) -> Iterator[None]:
        """A ``with`` block in which Ctrl-C interrupts, at its beginning if it was held back before."""
        self._is_allowed = True
        try:
            if self._is_waiting:
                self._is_waiting = False
                raise KeyboardInterrupt
            yield
        finally:
            self._is_allowed = False

    def _note_interrupt(self, number: int, frame: FrameType | None) -> Any:
        if self._is_allowed or self._is_waiting:
            self._is_waiting = False
            raise KeyboardInterrupt
        self._is_waiting = True
        print("\nEnding after this step, with a checkpoint; Ctrl-C again ends at once.", file=sys.stderr, flush=True)
