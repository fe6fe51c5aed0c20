"""Delay Ctrl-C until a short piece of work is complete, so that it is never left half done."""

from __future__ import annotations

# Use _signal, not signal: the functions of signal are Python code, and Ctrl-C could interrupt them before they return.
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]
from typing import Any


class uninterrupted:
    """A ``with`` block that delays Ctrl-C to its end, for short work that sets up or ends something shared.

    Python delivers signals only to the main thread; in other threads the block has no effect.
    """

    __slots__ = ("_handler", "_waiting")

    def __enter__(self) -> None:
        handler = getsignal(SIGINT)
        self._handler: Any = None
        self._waiting: tuple[Any, ...] | None = None
        if callable(handler):
            try:
                signal(SIGINT, self._note_signal)
                self._handler = handler
            except ValueError:
                return  # in another thread

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            signal(SIGINT, self._handler)
            if self._waiting is not None:
                self._handler(*self._waiting)

    def _note_signal(self, *signaled: Any) -> None:
        """Store a signal for the end of the block."""
        self._waiting = signaled
