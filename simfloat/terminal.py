"""Handle the terminal: command lines, the progress line of a long call, and the notice of compilation.

A command line must work if its output is ASCII only, closed, full, or a pipe whose reader ends. There is one progress
line at a time, and it is erased at the end of the call. The notice is one line on standard error while kernels are
compiled. It explains why a first call takes long.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, NoReturn

from simfloat.common import check_flags

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


#: Negative numbers look like options. argparse recognizes -1 and -1.5, but not -1e-5, -inf or -1/3.
NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)

#: The exit code of a program that Ctrl-C ended.
INTERRUPTED = 130

#: Interrupts are kept here. They refer to the frames that they ended, so half-built objects of LLVM are not destroyed.
_HALF_BUILT: list[KeyboardInterrupt] = []


def run_command(command: Callable[[], int]) -> int:
    """Run a command that prints, and return its exit code: 130 after an interrupt, 1 if its output cannot be written.

    Characters that the encoding of the terminal lacks are printed as question marks. If a reader closes the pipe, as
    `head` does, the command ends silently. Any other error of the output or of a file is one line on standard error.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        with repeat_interrupts():
            code = command()
        if sys.stdout is not None:  # None if it was closed before the program began
            sys.stdout.flush()
        return code
    except KeyboardInterrupt as interrupt:
        _HALF_BUILT.append(interrupt)
        print("Interrupted.", file=sys.stderr)
        # After an interrupt within an exec (of Numba or a dataclass), CPython would end by a signal in spite of the
        # exit code. Another exec clears that state.
        exec("")
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # only errors of files have a file name, not errors of standard output
            print(f"Cannot use {error.filename}: {error.strerror}.", file=sys.stderr)
            return 1
        discard_output()
        if error.errno != errno.EPIPE:
            print(f"Cannot write to standard output: {error.strerror}.", file=sys.stderr)
        return 1


@contextmanager
def repeat_interrupts() -> Iterator[None]:
    """Repeat within the block a Ctrl-C that Python had to ignore.

    This happens in a Python function that C called, as LLVM does while kernels are compiled.
    """
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
    """Send Ctrl-C once more, if possible as a signal to the main thread, which also ends a wait there."""
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def end_program(code: int) -> NoReturn:
    """End the program; after an interrupt at once, because destroying half-built objects of LLVM can crash."""
    if code == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, AttributeError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def discard_output() -> None:
    """Redirect standard output to the null device, so that Python does not write its buffer again at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line and exits with 2."""

    def error(self, message: str) -> NoReturn:
        """Exit with the message."""
        self.exit(2, f"{self.prog}: {message}\n")


def shield_negative_numbers(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a space before negative numbers, so that they are not read as options."""
    return [f" {argument}" if NEGATIVE.match(argument) else argument for argument in arguments]


def argument_type(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type of arguments for argparse that reports the ValueError of `read`."""

    def read_argument(text: str) -> Any:
        try:
            return read(text.strip())
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_argument


#: Moves to the beginning of the line and erases it.
ERASE_LINE = "\r\033[K"

#: Locked by the call, or the training, that shows the line. Calls within it show none.
_line = Lock()

_is_wanted = True


def progress(shown: bool) -> None:
    """Turn the progress line of long calls on or off. Results do not depend on it.

    After two seconds, a product, a convolution or a sum shows a bar on standard error, with the elapsed and the
    remaining time. :func:`simfloat.reveal` shows its attempts, and ``sf.train.fit`` a bar of its steps unless its
    `progress` argument turns it off. Nothing is shown if standard error is not a terminal, in child processes, and
    within a call that shows a line itself.

    Parameters:
        shown: True, which is the state at the start, or False.

    Raises:
        ValueError: if `shown` is not a boolean.

    Examples:
        >>> sf.progress(False)
    """
    global _is_wanted
    check_flags(shown=shown)
    _is_wanted = bool(shown)


def is_line_visible() -> bool:
    """True if progress lines are on, standard error is a terminal, and this is not a child process."""
    if not _is_wanted or sys.stderr is None or not sys.stderr.isatty():
        return False
    from multiprocessing import parent_process  # imported only for long calls

    return parent_process() is None


@contextmanager
def reserve_line() -> Iterator[bool]:
    """Reserve the line within the block; yield False if another call has reserved it."""
    is_own = _line.acquire(blocking=False)
    try:
        yield is_own
    finally:
        if is_own:
            _line.release()


@contextmanager
def status(text: Callable[[], str], patience: float = 2.0, every: float = 2.0) -> Iterator[None]:
    """Show a text in a line on standard error within the block, and erase it at the end.

    The text appears after `patience` seconds and is updated every `every` seconds. Nothing is shown if the line is not
    visible, or reserved by another call.
    """
    ended = Event()

    def show() -> None:
        erased, wait = "", patience
        with suppress(OSError, ValueError):  # standard error was closed
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


LINE = "simfloat: compiling kernels, once for this version; `simfloat warmup` compiles all of them beforehand ..."

#: The line appears after this many seconds of compilation in total.
PATIENCE = 1.0


class Notice:
    """Writes the line once, during the compilation that exceeds `PATIENCE`."""

    def __init__(self) -> None:
        self.due = True
        self._is_silent = self._is_shown = False
        self._count = 0
        self._spent = 0.0
        self._begun: float | None = None
        self._timer: threading.Timer | None = None

    def begin(self, name: str = "") -> None:
        """Note that the compilation of the kernel of this name begins."""
        if self._is_silent:
            return
        self.end()
        self._begun, self._count = time.perf_counter(), self._count + 1
        if self.due:
            self._timer = threading.Timer(PATIENCE - self._spent, self.say)
            self._timer.daemon = True
            self._timer.start()
        elif not _line.locked() and is_line_visible():
            text = f"compiling kernel {self._count} of this process, {name} ({self._spent:.0f} s so far)"
            self._is_shown = self._write(f"{ERASE_LINE}simfloat: {text}")

    def end(self) -> None:
        """Note that the compilation has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._begun is not None:
            self._spent += time.perf_counter() - self._begun
            self._begun = None
        if self._is_shown:
            self._is_shown = False
            self._write(ERASE_LINE)

    def silence(self) -> None:
        """Write nothing from now on."""
        self.due, self._is_silent = False, True

    def say(self) -> None:
        """Write the line unless it was written already or is silenced."""
        if not self.due:
            return
        self.due = False
        self._write(f"{LINE}\n")

    def _write(self, text: str) -> bool:
        """Write a text to standard error; return True if it could be written."""
        if sys.stderr is not None:
            with suppress(OSError, ValueError):  # standard error is closed
                # One write: if the process ended between two, the line would have no end.
                sys.stderr.write(text)
                sys.stderr.flush()
                return True
        return False


#: The notice of this process. Numba's lock permits only one compilation at a time.
NOTICE = Notice()


def silence() -> None:
    """Silence the notice in this process, as its parent process shows one."""
    NOTICE.silence()
