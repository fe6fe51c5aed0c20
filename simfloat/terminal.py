"""The terminal: command lines, the progress line of a long call, and the notice of compilation.

Output of a command line may be ASCII, closed, full, or cut off by its reader. The progress line tells how far a call
is: there is one at a time, and none in the end. The notice is one line on standard error while kernels are being
compiled, so that a first call explains why it takes so long.
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


LINE = "simfloat: compiling kernels, once for this version; `simfloat warmup` compiles all of them beforehand ..."

#: Seconds of compiling, all in all, after which the line is due.
PATIENCE = 1.0


class Notice:
    """Says the line once, in the middle of the compilation that exhausts the patience."""

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
        """Write the line, unless that was done or must not be."""
        if not self.due:
            return
        self.due = False
        self._write(f"{LINE}\n")

    def _write(self, text: str) -> bool:
        """Write a text to standard error; return True if it could be written."""
        if sys.stderr is not None:
            with suppress(OSError, ValueError):  # standard error is closed
                # In one piece: a process that ends meanwhile would leave the line without its end.
                sys.stderr.write(text)
                sys.stderr.flush()
                return True
        return False


#: Of this process. Compilations come one at a time: Numba holds a lock.
NOTICE = Notice()


def silence() -> None:
    """Say nothing in this process: its parent speaks for it."""
    NOTICE.silence()
