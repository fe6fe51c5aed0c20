"""The line on a terminal that tells how far a long call is: there is one at a time, and none in the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread

from simfloat.checks import check_flags

#: The column where a line begins, and nothing from there on.
ERASE_LINE = "\r\033[K"

#: Held by the call, or the bar of a training, whose line it is: what is called meanwhile shows none.
_line = Lock()

_is_wanted = True


def progress(shown: bool) -> None:
    """Let long calls show on a terminal how far they are, as they do by default, or not. No result depends on it.

    From two seconds on, a product, a convolution or a sum shows a bar on standard error, with the time that it took and
    will take; :func:`simfloat.reveal` shows what was tried, and ``sf.train.fit`` a bar of its steps unless its own
    `progress` says otherwise. Nothing is shown where standard error is no terminal, in processes that others
    started, and inside of a call that shows a line itself.

    Raises ValueError for what is neither True nor False.

    Examples:
        >>> sf.progress(False)
    """
    global _is_wanted
    check_flags(shown=shown)
    _is_wanted = bool(shown)


def is_line_visible() -> bool:
    """Whether somebody sees a line: standard error is a terminal, it is this process's own, and lines are wanted."""
    if not _is_wanted or sys.stderr is None or not sys.stderr.isatty():
        return False
    from multiprocessing import parent_process  # only where something takes long

    return parent_process() is None


@contextmanager
def reserve_line() -> Iterator[bool]:
    """Within the block the line is this caller's alone; gives whether it is, for another one may have it."""
    is_own = _line.acquire(blocking=False)
    try:
        yield is_own
    finally:
        if is_own:
            _line.release()


@contextmanager
def status(text: Callable[[], str], patience: float = 2.0, every: float = 2.0) -> Iterator[None]:
    """Show a text in a line on standard error after so many seconds and then every so many, and erase it in the end;
    nothing where nobody sees it, or where the line is another's."""
    ended = Event()

    def show() -> None:
        erased, wait = "", patience
        with suppress(OSError, ValueError):  # nobody looks any more
            while not ended.wait(wait):
                erased, wait = ERASE_LINE, every
                print(erased + text()[: shutil.get_terminal_size().columns - 1], end="", file=sys.stderr, flush=True)
            print(erased, end="", file=sys.stderr, flush=True)

    with reserve_line() as is_own:
        thread = Thread(target=show, daemon=True)
        try:
            if is_own and is_line_visible():
                thread.start()
            yield
        finally:
            ended.set()
            if thread.ident is not None:
                thread.join()
