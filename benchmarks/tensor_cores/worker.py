"""Run work in another process, which is replaced when it fails: after an error on a GPU a process is unusable."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

#: Seconds until a process that should end is killed.
PATIENCE = 10.0


class Failure(Exception):
    """The work failed; the text is the reason."""


class Worker:
    """Another process that calls functions, one at a time. It ends with the ``with`` block."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Any = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """Return the result of a function. Raises Failure if it raises, if it takes longer, or if its process ends."""
        if self._process is None:
            self._start()
        try:
            self._pipe.send((function, arguments))
            if not self._pipe.poll(seconds):
                failure, result = f"it took longer than {seconds:.0f} s", None
            else:
                failure, result = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(PATIENCE)
            failure, result = f"its process ended with {self._process.exitcode}", None
        if failure is not None:
            self._end()
            raise Failure(failure)
        return result

    def _start(self) -> None:
        # A forked process could not use a GPU that this process has used.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def _end(self) -> None:
        if self._process is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join(PATIENCE)
            self._process = None


def _serve(pipe: Connection) -> None:
    """Answer calls until the connection is closed."""
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((None, function(*arguments)))
        except Exception as error:  # an error of any library is recorded
            pipe.send((f"{type(error).__name__}: {error}", None))
