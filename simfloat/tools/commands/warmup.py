"""Implement `simfloat warmup`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

import simfloat as sf
from simfloat import terminal
from simfloat.terminal import argument_type

HELP = "compile all kernels now, with one process for each thread, and store them on disk"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the directory and the level of processors."""
    parser.add_argument(
        "--into", metavar="DIR", type=argument_type(Path), help="store them there, to include them in a wheel"
    )
    parser.add_argument(
        "--level",
        metavar="LEVEL",
        type=argument_type(environments_of),
        default=[{}],
        help="compile for a lower level of processors, such as x86-64-v3, or for all of them: all",
    )
    parser.add_argument(
        "--first-session", action="store_true", help="compile only the kernels of a first session, in a minute"
    )


def environments_of(level: str) -> list[dict[str, str]]:
    """Return the environment variables with which Numba compiles, in a new process, for a level of processors.

    There is one set of variables for each level that `level` names. Raises ValueError for a level that is unknown, or
    higher than the level of this processor: kernels are tested on the machine that compiles them.
    """
    from simfloat.kernels.compile.processor import reachable_levels

    levels = {each.name: each for each in reachable_levels()}
    if level != "all" and level not in levels:
        raise ValueError(f"level must be {', '.join(levels)} or all on this machine, got {level!r}.")
    chosen = levels.values() if level == "all" else [levels[level]]
    return [{"NUMBA_CPU_NAME": each.processor, "NUMBA_CPU_FEATURES": each.features} for each in chosen]


def run(options: argparse.Namespace) -> int:
    """Compile the kernels that are not yet on disk, and print their number.

    Return 1 if the directory cannot be written, which is checked first, or if a process was killed.
    """
    from simfloat.kernels.compile import cache
    from simfloat.tools.commands.workload import FIRST_SESSION, TASKS

    places = [options.into.absolute() / "simfloat"] if options.into else cache.kernel_directories()
    if not any(map(is_writable, places)):
        where = " or ".join(map(str, places))
        print(f"Kernels cannot be kept in {where}; name a directory that can be written by --into.", file=sys.stderr)
        return 1
    if options.into:
        os.environ["NUMBA_CACHE_DIR"] = str(options.into.absolute())
    start, total, names = time.perf_counter(), 0, list(FIRST_SESSION if options.first_session else TASKS)
    count = len(names) * len(options.level)
    show_progress(0, count)
    try:
        for done, compiled in enumerate(compile_for(options.level, names), start=1):
            total += compiled
            show_progress(done, count)
    except (EOFError, ConnectionError):
        print("\nA process was ended from outside; if memory ran out, try again with fewer processes.", file=sys.stderr)
        return 1
    outcome = f"Compiled {total} kernels" if total else "Nothing to be done, all kernels were compiled already"
    print(f"\n{outcome}: {time.perf_counter() - start:.0f} s.")
    return 0


def compile_for(environments: Sequence[dict[str, str]], names: Sequence[str]) -> Iterator[int]:
    """Carry out tasks in each of these environments, and give the number of kernels that each task compiled."""
    for environment in environments:
        os.environ.update(environment)  # of the processes that start from here on
        yield from in_processes(names)


def is_writable(place: Path) -> bool:
    """True if kernels can be written to a directory; the directory is created if it is missing."""
    from simfloat.kernels.compile import cache

    path = place / f"probe-{os.getpid()}"
    is_written = cache.write_kernel(path, b"")
    if is_written:
        path.unlink()
    return is_written


def show_progress(done: int, total: int) -> None:
    """Print a bar over the previous one; if the output is not a terminal, print a line for each task."""
    bar = f"[{'#' * (40 * done // total):40}] {done} of {total}"
    if sys.stdout.isatty():
        print(f"\r{bar}", end="", flush=True)
    else:
        print(bar, end="" if done == total else "\n", flush=True)


def in_processes(names: Sequence[str]) -> Iterator[int]:
    """Run tasks in other processes, and yield the number of kernels that each compiled, in the order of completion.

    Raises EOFError or ConnectionError if a process is killed. All processes end with the iteration.
    """
    waiting = list(reversed(names))
    workers = start_workers(min(len(names), sf.get_threads()))
    try:
        for connection in workers:
            connection.send(waiting.pop())
        for _ in names:
            connection = cast(Connection, wait(list(workers))[0])
            compiled = connection.recv()
            if waiting:
                connection.send(waiting.pop())
            yield compiled
    finally:
        for process in workers.values():
            process.kill()


def start_workers(count: int) -> dict[Connection, BaseProcess]:
    """Start processes that wait for names of tasks, and return them by their connections. They ignore Ctrl-C."""
    context, workers = get_context("spawn"), dict[Connection, BaseProcess]()
    with ignore_interrupts():
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(there,), daemon=True)
            process.start()
            there.close()
            workers[here] = process
    return workers


@contextlib.contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C within the block. A process that starts in the block inherits this for good."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def serve(connection: Connection) -> None:
    """Run the tasks whose names arrive, and reply with the number of kernels that each compiled."""
    from simfloat.tools.commands.workload import FIRST_SESSION, TASKS, count_compiled

    tasks = {**TASKS, **FIRST_SESSION}

    terminal.silence()
    sf.set_threads(1)  # the other cores belong to the other processes
    with contextlib.suppress(EOFError):  # the parent has ended
        while True:
            task = tasks[connection.recv()]
            before = count_compiled()
            task()
            connection.send(count_compiled() - before)
