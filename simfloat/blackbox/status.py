"""A line on a terminal about what takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

#: The column where a line begins, and nothing from there on.
ERASED = "\r\033[K"


@contextmanager
def status(text: Callable[[], str], seconds: float = 2.0) -> Iterator[None]:
    """Show a text in a line on standard error every so many seconds, and erase it in the end; nothing where that is no
    terminal."""
    ended = Event()

    def show() -> None:
        erased = ""
        with suppress(OSError, ValueError):  # nobody looks any more
            while not ended.wait(seconds):
                erased = ERASED
                print(erased + text(), end="", file=sys.stderr, flush=True)
            print(erased, end="", file=sys.stderr, flush=True)

    thread = Thread(target=show, daemon=True)
    if sys.stderr is not None and sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()
