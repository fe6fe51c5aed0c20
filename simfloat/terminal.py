"""Command lines whose output may be ASCII, closed, full, or cut off by a reader that has seen enough."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

#: What a shell reports for a program ended by Ctrl-C.
INTERRUPTED = 130


def guarded(command: Callable[[], int]) -> int:
    """Run a command that prints; its exit code, or 130 if it was interrupted, or 1 if its output was not taken.

    Characters that the terminal's encoding lacks are printed as question marks. Where a reader closed the pipe, as
    `head` does, nothing more is said; any other fault of the output is one line on standard error.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = command()
        if sys.stdout is not None:  # None: it was closed before the program began
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        # An interrupt that passed through an exec, of Numba or a dataclass, stays noted in CPython, which would then
        # end by a signal in spite of the exit code; the next exec takes the note back.
        exec("")
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # faults of files name them, those of standard output name nothing
            raise
        discard_output()
        if error.errno != errno.EPIPE:
            print(f"Cannot write to standard output: {error.strerror}.", file=sys.stderr)
        return 1


def discard_output() -> None:
    """Let standard output lead nowhere, so that what it holds is not written once more when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
