"""Executors: functions that take a function and jobs, and yield the results in the order of completion.

Any function with this signature is an executor; `workspace.py` has one for a Dask scheduler. A worker process reads one
job per line from its standard input, and answers each with a line: {"result": ...}, or {"error": ...}, with "refused"
true for a ValueError. It ends with its input, even in the middle of a job (`serve`).
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import subprocess
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import simfloat as sf
from simfloat import terminal
from simfloat.environment import parse_json

#: A job and its result are dictionaries of JSON types, which are sent between processes and stored on disk.
Job = dict[str, Any]
Result = dict[str, Any]

#: (function, jobs) -> pairs of a job's index and its result, in any order; raises JobError if a job fails.
Executor = Callable[[Callable[[Job], Result], Sequence[Job]], Generator[tuple[int, Result]]]


#: The program of a worker process.
SERVE = "import sys; from simfloat.studies.executors import serve; serve(*sys.argv[1:])"


class JobError(Exception):
    """A job failed; `refused` is True if it raised ValueError, which means that its arguments are impossible."""

    def __init__(self, job: Job, reason: str, refused: bool = False) -> None:
        what = ", ".join(str(job[key]) for key in ("problem", "label") if key in job) or job.get("kind", "a job")
        seed = f", seed {job['seed']}," if "seed" in job else ""
        super().__init__(f"The job of {what}{seed} failed: {reason}")
        self.refused = refused


def one_by_one(function: Callable[[Job], Result], jobs: Sequence[Job]) -> Generator[tuple[int, Result]]:
    """Run the jobs in this process, in order.

    Parameters:
        function: a function of a job that returns its result.
        jobs: the jobs.

    Returns:
        A generator of pairs of a job's index and its result.

    Raises:
        JobError: if the function fails.
    """
    for place, job in enumerate(jobs):
        try:
            result = function(job)
        except ValueError as error:
            raise JobError(job, str(error), refused=True) from error
        except Exception as error:  # an error in the function; the cause has the traceback
            raise JobError(job, f"{type(error).__name__}: {error}") from error
        yield place, result


def in_processes(
    function: Callable[[Job], Result], jobs: Sequence[Job], *, workers: int | None = None, attempts: int = 1
) -> Generator[tuple[int, Result]]:
    """Run the jobs in several processes, each with one thread.

    Every other process takes jobs from the end of the list, because neighbouring jobs need the same kernels, and the
    other processes find on disk what one process has compiled. A job is restarted in another process if its process
    dies. The processes end with this one, whatever ends it, and immediately when the generator is closed.

    Parameters:
        function: a function of a job that returns its result.
        jobs: the jobs.
        workers: the number of processes; by default `simfloat.get_threads()`.
        attempts: the number of processes in which a job is tried if its process dies.

    Returns:
        A generator of pairs of a job's index and its result, in the order of completion.

    Raises:
        JobError: if the function fails, or a job's process has died `attempts` times.
    """
    waiting = deque[tuple[int, Job]](enumerate(jobs))
    ends = waiting.popleft, waiting.pop
    answers = queue.SimpleQueue[tuple[int, Any]]()
    deaths: Counter[int] = Counter()
    done, processes = 0, []
    try:
        for number in range(min(len(jobs), workers or sf.get_threads())):
            processes.append(Worker(function, ends[number % 2], answers))
        while done < len(jobs):
            place, answer = answers.get()
            deaths[place] += answer.get("died", False)
            if answer.get("died") and deaths[place] < attempts:
                waiting.append((place, jobs[place]))
                processes.append(Worker(function, waiting.pop, answers))
                continue
            yield place, result_of(jobs[place], answer)
            done += 1
    finally:
        for process in processes:
            process.end()


def result_of(job: Job, answer: dict[str, Any]) -> Result:
    """Return the result in a worker's answer; raise JobError if there is none."""
    if "result" not in answer:
        raise JobError(job, answer["error"], answer.get("refused", False))
    return answer["result"]


class Worker:
    """A process that answers jobs, given as lines of JSON, and the thread that communicates with it.

    The process has a session of its own, so Ctrl-C in a terminal reaches only the parent.
    """

    def __init__(
        self,
        function: Callable[[Job], Result],
        next_job: Callable[[], tuple[int, Job]],
        answers: queue.SimpleQueue[tuple[int, Any]],
    ) -> None:
        self._next_job, self._answers = next_job, answers
        # The process searches the same folders for modules as this one.
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, function.__module__, function.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Send jobs to the process and forward its answers; stop at the first job without an answer."""
        while True:
            try:
                place, job = self._next_job()
            except IndexError:  # no jobs are left
                return
            line = self.answer_to_line(json.dumps(job).encode())
            if not line.endswith(b"\n"):
                self._answers.put((place, {"error": self.exit_reason(), "died": True}))
                return
            self._answers.put((place, parse_json(line)))

    def answer_to_line(self, line: bytes) -> bytes:
        """Return the answer to a line; it is empty or incomplete if the process has ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()
            return self.process.stdout.readline()
        except OSError:
            return b""

    def exit_reason(self) -> str:
        """Describe how the process ended."""
        code = self.process.wait()
        if code < 0:
            return f"its process was ended by signal {-code}; if that is 9, memory may have run out."
        return f"its process ended with exit code {code}."

    def end(self) -> None:
        """End the process now, and wait for its thread."""
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdout.close()
        with suppress(OSError):  # the process ended before it read the last line
            self.process.stdin.close()


def serve(module: str, name: str) -> None:
    """Answer jobs with the function of that name until standard input ends."""
    # Redirect the output of jobs to standard error, so that it does not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs = queue.SimpleQueue[bytes]()
    threading.Thread(target=_forward_lines, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        answers.write(json.dumps(answer(module, name, parse_json(jobs.get()))).encode() + b"\n")
        answers.flush()


def _forward_lines(lines: BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    """Forward the lines to the queue; end the process after the last one."""
    for line in lines:
        jobs.put(line)
    os._exit(0)


def answer(module: str, name: str, job: Job) -> dict[str, Any]:
    """Return the answer to a job: the result of the function of that name in one thread, or an error."""
    terminal.silence()
    sf.set_threads(1)  # the other cores have other jobs
    try:
        return {"result": getattr(importlib.import_module(module), name)(job)}
    except ValueError as error:
        return {"error": str(error), "refused": True}
    except Exception as error:  # an error in the function, which the parent reports with file and line
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return {"error": f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"}
