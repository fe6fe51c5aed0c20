"""One line on standard error while kernels are being compiled, so that a first call explains what takes so long."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

LINE = "simfloat: compiling kernels, once for this version; `simfloat warmup` compiles all of them beforehand ..."

#: Seconds of compiling, all in all, after which the line is due.
PATIENCE = 1.0


class Notice:
    """Says the line once, in the middle of the compilation that exhausts the patience."""

    def __init__(self) -> None:
        self.due = True
        self._spent = self._begun = 0.0
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """A compilation begins."""
        if not self.due:
            return
        self.end()
        self._begun = time.perf_counter()
        self._timer = threading.Timer(PATIENCE - self._spent, self.say)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """The compilation is finished."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += time.perf_counter() - self._begun

    def say(self) -> None:
        """Write the line, unless that was done or must not be."""
        if not self.due:
            return
        self.due = False
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # nobody listens
                # In one piece: a process that ends meanwhile would leave the line without its end.
                sys.stderr.write(f"{LINE}\n")
                sys.stderr.flush()


#: Of this process. Compilations come one at a time: Numba holds a lock.
NOTICE = Notice()


def silence() -> None:
    """Say nothing in this process: its parent speaks for it."""
    NOTICE.due = False
