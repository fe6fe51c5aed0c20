"""Work in a process of its own, which is replaced when it fails: an error on a GPU spoils the process that meets it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

#: The seconds that a process is given to end.
PATIENCE = 10.0


class Failure(Exception):
    """What was to be done was not; its text says why."""


class Worker:
    """Calls functions in another process, one at a time. It ends with the ``with`` block."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Any = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """What a function returns. Raises Failure if it raises, if it takes longer, or if its process ends."""
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
        # A forked process could not use a GPU that this one has looked at.
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
    """Answer calls until nobody listens."""
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((None, function(*arguments)))
        except Exception as error:  # of whatever library: it is recorded
            pipe.send((f"{type(error).__name__}: {error}", None))
