"""Ctrl-C where it would leave half of what belongs together: it waits until all is done."""

from __future__ import annotations

# Those of the module signal are written in Python, where Ctrl-C may come between what they do and their end.
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]
from typing import Any


class uninterrupted:
    """A ``with`` block in which Ctrl-C waits for the end: for short work that sets up what others share, or ends it.

    Signals come to the main thread alone; in others nothing is held back.
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
        self._waiting = signaled
