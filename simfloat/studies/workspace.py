"""The workspace of a run: its folder, and the executor that computes its jobs on several computers.

The folder receives complete results, and stores finished jobs until all are finished.

`on_scheduler` runs jobs on the workers of a Dask scheduler. The workers need the same software as this computer:
simfloat and the package of the function, installed or on a shared disk, and the same versions of packages. A worker
with other versions refuses a job, so that a result does not depend on the computer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import simfloat as sf
from simfloat.environment import parse_json
from simfloat.studies.executors import Executor, Job, JobError, Result, result_of
from simfloat.train import checkpoints

if TYPE_CHECKING:
    from distributed import Client, Future


#: The folder inside the results' folder that only simfloat uses.
HIDDEN_FOLDER = ".simfloat-run"
MARKER, LOCK = "made-by-simfloat.txt", checkpoints.LOCK_FILE
NOTE = "Finished jobs, which the same command does not compute again. Without a running command this can be removed.\n"

#: Names of our files: a job, named by the digest of everything that its result depends on, and unfinished files.
OWN_FILES = re.compile(r"[0-9a-f]{64}\.json|part\..+")


class Study(NamedTuple):
    """The study that owns a folder: its function, and the name of the summary file with the function's name."""

    summary: str
    function: str


class Workspace:
    """The folder of a run's results, locked for one run, as a ``with`` block.

    Entering the block creates the folder and checks that it can be used.

    Parameters:
        folder: the folder for the results.
        module: the module of the function; stored results are valid for one state of its package's sources.
        targets: the names of the result files that will be written.
        hidden: the name of the folder inside for finished jobs.
        study: the study that owns the folder; None if any study may overwrite it.

    Raises:
        ValueError: if the folder is not writable; if another run is using it; if a target is a folder, or with a
            `study` a file of another study.
    """

    def __init__(
        self,
        folder: Path,
        module: str,
        targets: tuple[str, ...] = (),
        hidden: str = HIDDEN_FOLDER,
        study: Study | None = None,
    ) -> None:
        self.folder, self.module, self.hidden = folder, module, folder / hidden
        self._targets, self._study, self._finished = targets, study, False
        self.accepts: Callable[[Result], bool] = lambda result: True  # True if a stored result belongs to these jobs
        self._exit_stack = ExitStack()

    def __enter__(self) -> Workspace:
        code_digest.cache_clear()  # sources may have changed since an earlier run of this process
        with ExitStack() as stack:
            try:
                self.hidden.mkdir(parents=True, exist_ok=True)
                stack.enter_context(checkpoints.lock_folder(self.hidden))
            except OSError as error:
                raise ValueError(f"Cannot write to the folder {self.folder}: {error}") from None
            except checkpoints.FolderInUse:
                raise ValueError(
                    f"Another run is writing to {self.folder}. Wait until it has ended, or choose another folder."
                ) from None
            self._check_folder()
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._exit_stack:
            if self._finished or not self.count_finished_jobs():
                self._clear()

    def count_finished_jobs(self) -> int:
        """Return the number of finished jobs in the folder."""
        return len(list(self.hidden.glob("*.json")))

    def _check_folder(self) -> None:
        marker = self.hidden / MARKER
        strangers = [name for name in os.listdir(self.hidden) if name != LOCK]
        if strangers and not marker.exists():
            raise ValueError(
                f"{self.hidden} was not created by simfloat, {strangers[0]!r} is in it. Choose another folder."
            )
        for target in self._targets:
            if (self.folder / target).is_dir():
                raise ValueError(f"{self.folder / target} is a folder; a file of that name is to be written there.")
        if self._study is not None:
            self._check_study(self._study, is_known=marker.exists())
        try:
            marker.write_text(NOTE, encoding="utf-8")
            self.write(MARKER + ".test", lambda path: path.write_text(NOTE, encoding="utf-8"))
            (self.folder / (MARKER + ".test")).unlink()
        except OSError as error:
            raise ValueError(f"Cannot write to the folder {self.folder}: {error}") from None

    def _check_study(self, study: Study, is_known: bool) -> None:
        """Raise ValueError if a target would overwrite a file that this study has not written."""
        summary = self.folder / study.summary
        there = [self.folder / name for name in self._targets if (self.folder / name).exists()]
        advice = "Choose another folder, or remove it."
        if not summary.exists():
            if there and not is_known:
                raise ValueError(f"{there[0]} exists already, and was not written by a study of simfloat. {advice}")
            return
        try:
            content = parse_json(summary.read_text(encoding="utf-8"))
            name = content["experiment"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(f"{summary} is not a summary of a study, and would be overwritten. {advice}") from None
        if name != study.function:
            raise ValueError(f"{summary} belongs to the function {name!r}, not to {study.function!r}. {advice}")

    def job_path(self, job: Job) -> Path:
        """Return the path of a job's result, which depends on the job, the code and the versions of packages."""
        key = json.dumps([job, code_digest(self.module)], sort_keys=True)
        return self.hidden / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def find(self, job: Job) -> Result | None:
        """Return the stored result of a job; None if there is none, or if its file is damaged."""
        try:
            content = parse_json(self.job_path(job).read_text(encoding="utf-8"))
            is_of_job = (
                content["job"] == job and isinstance(content["result"], dict) and self.accepts(content["result"])
            )
            return content["result"] if is_of_job else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def keep(self, job: Job, result: Result) -> None:
        """Store the result of a job until the run is complete."""
        text = json.dumps({"job": job, "result": result})
        write_file(self.job_path(job), lambda path: path.write_text(text, encoding="utf-8"), self.hidden)

    def write(self, name: str, write: Callable[[Path], Any]) -> Path:
        """Call `write` to write a result file `name` atomically; return its path."""
        write_file(self.folder / name, write, self.hidden)
        return self.folder / name

    def finish(self) -> None:
        """Record that all results are written; the finished jobs are removed at the end of the block."""
        self._finished = True

    def _clear(self) -> None:
        """Remove our files, the lock while it is held, and the hidden folder if it is then empty."""
        for name in os.listdir(self.hidden):
            if OWN_FILES.fullmatch(name) and (self.hidden / name).is_file():
                (self.hidden / name).unlink()
        (self.hidden / MARKER).unlink(missing_ok=True)
        (self.hidden / LOCK).unlink(missing_ok=True)
        try:
            self.hidden.rmdir()
        except OSError:
            return  # it contains other files, which we do not remove


def write_file(path: Path, write: Callable[[Path], Any], temporary_folder: Path) -> None:
    """Call `write` to write a file in a temporary folder on the same disk, then move it to `path`."""
    temporary = temporary_folder / f"part.{path.name}"  # keeps the suffix, which selects the file format
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def run_jobs(
    function: Callable[[Job], Result],
    jobs: list[Job],
    workspace: Workspace,
    executor: Executor,
    progress: Callable[[int, int], None],
) -> list[Result]:
    """Return the results of jobs in order; jobs that an earlier run has finished are not computed again.

    Parameters:
        function: a function of a job that returns its result.
        jobs: the jobs, dictionaries of JSON types.
        workspace: the open workspace, which stores every finished job.
        executor: the executor of the missing jobs.
        progress: a function that is called with the number of finished jobs and the number of all jobs.

    Returns:
        The results.
    """
    results = [workspace.find(job) for job in jobs]
    missing = [place for place, result in enumerate(results) if result is None]
    done = len(jobs) - len(missing)
    progress(done, len(jobs))
    with closing(executor(function, [jobs[place] for place in missing])) as finished:
        for number, result in finished:
            results[missing[number]] = result
            workspace.keep(jobs[missing[number]], result)
            done += 1
            progress(done, len(jobs))
    return [result for result in results if result is not None]


def versions() -> dict[str, str]:
    """Return the versions of the software that a result might depend on.

    Returns:
        A dictionary of versions by the names of packages, with the kind of processor under ``"machine"``.
    """
    version_by_name = {"simfloat": sf.__version__, "python": platform.python_version(), "machine": platform.machine()}
    for package in ("numpy", "numba", "scikit-learn"):
        try:
            version_by_name[package] = version(package)
        except PackageNotFoundError:
            continue
    return version_by_name


@cache
def code_digest(module: str) -> str:
    """Return a digest of the sources of simfloat, the sources of the package of `module`, and all versions."""
    digest = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode())
    for package in (_package_folder("simfloat"), _package_folder(module)):
        for path in sorted(package.rglob("*.py")) or [package]:
            source = path.read_bytes()
            digest.update(f"{path.relative_to(package.parent)} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def import_folder(module: str) -> Path:
    """Return the folder from which the package of a module is imported."""
    return _package_folder(module).parent


def _package_folder(module: str) -> Path:
    """Return the folder of the outermost package with the module, or the file of a module without a package."""
    file = Path(str(import_module(module).__file__))
    path = file.parent if file.name == "__init__.py" else file
    return path.parents[module.count(".") - 1] if "." in module else path


#: Seconds to wait for an answer of the scheduler, and for a worker.
PATIENCE = 10.0

#: The protocols of addresses.
PROTOCOLS = ("tcp", "tls")


class SchedulerError(OSError):
    """A scheduler cannot be reached or has no workers."""


def on_scheduler(address: str, patience: float = PATIENCE) -> Executor:
    """Return an executor that runs jobs on the workers of a Dask scheduler.

    The executor raises SchedulerError if no scheduler answers, or no worker is available, in time. Dask restarts the
    jobs of a worker that dies on another worker.

    Parameters:
        address: the address of the scheduler, such as tcp://node:8786.
        patience: the number of seconds to wait for the scheduler and for a worker.

    Returns:
        The executor, a function of a function and jobs.

    Raises:
        ValueError: if the address is invalid; if Dask is not installed.
    """
    if not is_address(address):
        raise ValueError(f"The scheduler's address must be like tcp://HOST:8786, got {address!r}.")
    if find_spec("distributed") is None:
        raise ValueError("A scheduler needs Dask, which is not installed: pip install 'simfloat[sweep]'.")

    def carry_out(function: Callable[[Job], Result], jobs: Sequence[Job]) -> Generator[tuple[int, Result]]:
        if not jobs:
            return
        client = connect(address, patience)
        try:
            yield from gather_results(client, function, jobs)
        finally:
            with suppress(Exception):  # the scheduler may have ended
                client.close(timeout=2)

    return carry_out


def is_address(text: str) -> bool:
    """True if the text has a protocol, a host and a port."""
    try:
        parts = urlsplit(text)
        return parts.scheme in PROTOCOLS and bool(parts.hostname) and bool(parts.port)
    except ValueError:  # an invalid port
        return False


def connect(address: str, patience: float) -> Client:
    """Return a client of the scheduler after it has at least one worker."""
    from distributed import Client

    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)  # exceptions report all that matters
    try:
        client = Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SchedulerError(
            f"no scheduler answers at {address} ({error_line(error)}). Is `dask scheduler` running?"
        ) from None
    try:
        client.wait_for_workers(1, timeout=patience)
    except (OSError, TimeoutError):
        client.close(timeout=2)
        where = f"the scheduler at {address} had no worker for {patience:g} s"
        raise SchedulerError(f"{where}. Start some: `dask worker {address}`.") from None
    return client


def gather_results(
    client: Client, function: Callable[[Job], Result], jobs: Sequence[Job]
) -> Generator[tuple[int, Result]]:
    """Yield the results as they are computed; if the generator is closed, unfinished jobs are cancelled."""
    from distributed import as_completed

    # A function of __main__ is sent as code. Any other is sent by name, and the scheduler would have to import it.
    sent = FunctionType(answer.__code__, {"__name__": "__main__"}, "answer")
    what = (str(import_folder(function.__module__)), function.__module__, function.__name__)
    digest = code_digest(function.__module__)
    futures = [client.submit(sent, *what, json.dumps(job), digest, pure=False) for job in jobs]
    places = {future.key: place for place, future in enumerate(futures)}
    try:
        coming = as_completed(futures, loop=client.loop)
        for future in coming:
            if future.status == "lost":  # its worker died, and the scheduler restarts the job
                coming.add(future)
                continue
            place = places[future.key]
            yield place, result_of(jobs[place], worker_answer(future, jobs[place]))
    finally:
        with suppress(Exception):
            client.cancel(futures)


def worker_answer(future: Future, job: Job) -> dict[str, Any]:
    """Return the answer of a worker; raise JobError if there is none."""
    if future.status == "finished":
        return parse_json(future.result())
    error = future.exception() if future.status == "error" else None
    raise JobError(job, error_line(error) if error else f"the scheduler lost the job, or ended ({future.status}).")


def answer(place: str, module: str, name: str, line: str, digest: str) -> str:
    """Return a worker's answer to a job; job and answer are JSON texts, as for local processes.

    This function is sent as code, so the scheduler needs only Dask: the function imports everything that it uses.
    """
    import json
    import sys
    from importlib import import_module

    if place not in sys.path:
        sys.path.insert(0, place)  # workers that share a disk with the client find the function there
    executors, workspace = (import_module(f"simfloat.studies.{name}") for name in ("executors", "workspace"))
    if workspace.code_digest(module) != digest:
        fault = "a worker has other sources or versions of packages; install the same ones there, and restart it."
        return json.dumps({"error": fault})
    return json.dumps(executors.answer(module, name, workspace.parse_json(line)))


def error_line(error: BaseException) -> str:
    """Return an exception as one line of text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
