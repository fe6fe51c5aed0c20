"""Command lines: arguments, and output that may be ASCII, closed, full, or cut off by its reader."""

from __future__ import annotations

import argparse
import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

#: What begins like an option and is a number: argparse knows -1 and -1.5, but neither -1e-5 nor -inf nor -1/3.
NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)

#: What a shell reports for a program ended by Ctrl-C.
INTERRUPTED = 130

#: Interrupts, which hold the frames that they ended, and with these what was half built: nothing of it is taken apart.
_HALF_BUILT: list[KeyboardInterrupt] = []


def run_command(command: Callable[[], int]) -> int:
    """Run a command that prints; its exit code, or 130 if it was interrupted, or 1 if its output was not taken.

    Characters that the terminal's encoding lacks are printed as question marks. Where a reader closed the pipe, as
    `head` does, nothing more is said; any other fault of the output, or of a file, is one line on standard error.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        with repeat_interrupts():
            code = command()
        if sys.stdout is not None:  # None: it was closed before the program began
            sys.stdout.flush()
        return code
    except KeyboardInterrupt as interrupt:
        _HALF_BUILT.append(interrupt)
        print("Interrupted.", file=sys.stderr)
        # An interrupt that passed through an exec, of Numba or a dataclass, stays noted in CPython, which would then
        # end by a signal in spite of the exit code; the next exec takes the note back.
        exec("")
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # faults of files name them, those of standard output name nothing
            print(f"Cannot use {error.filename}: {error.strerror}.", file=sys.stderr)
            return 1
        discard_output()
        if error.errno != errno.EPIPE:
            print(f"Cannot write to standard output: {error.strerror}.", file=sys.stderr)
        return 1


@contextmanager
def repeat_interrupts() -> Iterator[None]:
    """Within the block, Ctrl-C that reaches Python inside a function that C called, which can only report and ignore
    it, comes once more a little later: LLVM calls such functions while kernels are compiled."""
    before = sys.unraisablehook

    def hook(ignored: UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            return before(ignored)
        later = threading.Timer(0.01, interrupt_again)
        later.daemon = True
        later.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def interrupt_again() -> None:
    """Ctrl-C once more: sent to the main thread where threads can be sent signals, so that it ends a wait, too."""
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def end_program(code: int) -> NoReturn:
    """End the program; after an interrupt at once, without taking apart what LLVM has half built, which can crash."""
    if code == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, AttributeError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def discard_output() -> None:
    """Let standard output lead nowhere, so that what it holds is not written once more when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        """Leave with the message."""
        self.exit(2, f"{self.prog}: {message}\n")


def shield_negative_numbers(arguments: Sequence[str]) -> list[str]:
    """The arguments, with a space before negative numbers, so that they are not taken for options."""
    return [f" {argument}" if NEGATIVE.match(argument) else argument for argument in arguments]


def argument_type(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type of arguments whose ValueError is the message."""

    def read_argument(text: str) -> Any:
        try:
            return read(text.strip())
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_argument
