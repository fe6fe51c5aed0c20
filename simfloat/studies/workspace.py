"""The workspace of a run: its folder, and the executor that computes its jobs on many machines.

The folder of a run: where results appear when they are complete, and finished jobs wait until all are.

Jobs on the workers of a Dask scheduler: the executor of a machine room.

The workers need what this machine has: simfloat and the package of the function, on their path or at the same place of
a shared disk, and the same versions of packages. A worker with another state of any refuses, so that a result does not
depend on where it was computed.
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
from simfloat.studies.executors import Executor, Job, JobError, Result, result_of
from simfloat.train import checkpoints

if TYPE_CHECKING:
    from distributed import Client, Future


#: The folder, inside that of the results, in which only we write.
HIDDEN_FOLDER = ".simfloat-run"
MARKER, LOCK = "made-by-simfloat.txt", checkpoints.LOCK_FILE
NOTE = "Finished jobs, which the same command does not compute again. Without a running command this can be removed.\n"

#: The names of our files: a job by the digest of all that its result depends on, and files that are being written.
OWN_FILES = re.compile(r"[0-9a-f]{64}\.json|part\..+")


class Study(NamedTuple):
    """The study that owns a folder: its function, and the file of the summary that names the function."""

    summary: str
    function: str


class Workspace:
    """A results' folder that one run has to itself, as a ``with`` block.

    module: that of the function whose results are kept; these belong to one state of its package's sources. Entering
    makes the folder. Raises ValueError, before any work, if it cannot be written, if another run writes there, or if
    something else stands where one of the `targets` will be written: a folder, or with a `study` files that are not its
    own. Its folder `hidden` keeps finished jobs.
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
        self.accepts: Callable[[Result], bool] = lambda result: True  # whether a kept result is one of these jobs
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
                f"{self.hidden} was not made by simfloat, {strangers[0]!r} is in it. Choose another folder."
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
        """Raise ValueError where a target would be written over that this study has not made."""
        summary = self.folder / study.summary
        there = [self.folder / name for name in self._targets if (self.folder / name).exists()]
        advice = "Choose another folder, or remove it."
        if not summary.exists():
            if there and not is_known:
                raise ValueError(f"{there[0]} is there already, and no study of simfloat has made it. {advice}")
            return
        try:
            content = json.loads(summary.read_text(encoding="utf-8"))
            name = content["experiment"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(f"{summary} is of another kind, and would be written over. {advice}") from None
        if name != study.function:
            raise ValueError(f"{summary} is of {name!r}, another function than {study.function!r}. {advice}")

    def job_path(self, job: Job) -> Path:
        """Return the path of a job's result, which depends on the job, the code and the versions of packages."""
        key = json.dumps([job, code_digest(self.module)], sort_keys=True)
        return self.hidden / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def find(self, job: Job) -> Result | None:
        """The result that an interrupted run has left; None if there is none, or its file is damaged."""
        try:
            content = json.loads(self.job_path(job).read_text(encoding="utf-8"))
            is_of_job = (
                content["job"] == job and isinstance(content["result"], dict) and self.accepts(content["result"])
            )
            return content["result"] if is_of_job else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def keep(self, job: Job, result: Result) -> None:
        """Keep a job's result until the run is complete."""
        text = json.dumps({"job": job, "result": result})
        write_file(self.job_path(job), lambda path: path.write_text(text, encoding="utf-8"), self.hidden)

    def write(self, name: str, write: Callable[[Path], Any]) -> Path:
        """Let `write` make a file of results: it is there completely or not at all."""
        write_file(self.folder / name, write, self.hidden)
        return self.folder / name

    def finish(self) -> None:
        """Note that all results are written: the finished jobs are removed when the block ends."""
        self._finished = True

    def _clear(self) -> None:
        """Remove our files, the lock while it is held, and the hidden folder if nothing else is in it."""
        for name in os.listdir(self.hidden):
            if OWN_FILES.fullmatch(name) and (self.hidden / name).is_file():
                (self.hidden / name).unlink()
        (self.hidden / MARKER).unlink(missing_ok=True)
        (self.hidden / LOCK).unlink(missing_ok=True)
        try:
            self.hidden.rmdir()
        except OSError:
            return  # not empty: the rest is not ours to remove


def write_file(path: Path, write: Callable[[Path], Any], temporary_folder: Path) -> None:
    """Let `write` make a file in a folder of the same disk, then put it in its place."""
    temporary = temporary_folder / f"part.{path.name}"  # the suffix says what is written
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
    """The results of the jobs, in their order; those that an earlier run has left are not computed again."""
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
    """The versions of all that a result might depend on."""
    version_by_name = {"simfloat": sf.__version__, "python": platform.python_version(), "machine": platform.machine()}
    for package in ("numpy", "numba", "scikit-learn"):
        try:
            version_by_name[package] = version(package)
        except PackageNotFoundError:
            continue
    return version_by_name


@cache
def code_digest(module: str) -> str:
    """A digest of the sources of simfloat and of the module's package, and of the versions: another state differs."""
    digest = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode())
    for package in (_package_folder("simfloat"), _package_folder(module)):
        for path in sorted(package.rglob("*.py")) or [package]:
            source = path.read_bytes()
            digest.update(f"{path.relative_to(package.parent)} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def import_folder(module: str) -> Path:
    """The folder from which a module's package is imported."""
    return _package_folder(module).parent


def _package_folder(module: str) -> Path:
    """The folder of the outermost package that the module is in, or its own file where it is in none."""
    file = Path(str(import_module(module).__file__))
    path = file.parent if file.name == "__init__.py" else file
    return path.parents[module.count(".") - 1] if "." in module else path


#: Seconds that a scheduler has to answer, and to have a worker.
PATIENCE = 10.0

#: What an address begins with.
PROTOCOLS = ("tcp", "tls")


class SchedulerError(OSError):
    """A scheduler that cannot be reached or has no workers."""


def on_scheduler(address: str, patience: float = PATIENCE) -> Executor:
    """An executor that carries out jobs where the scheduler at an address such as tcp://node:8786 says.

    The executor raises SchedulerError if no scheduler answers or no worker is there in time. Jobs of a worker that dies
    are begun anew by Dask, on another one. Raises ValueError for what is no address, and if Dask is not installed.
    """
    if not is_address(address):
        raise ValueError(f"The scheduler's address must be like tcp://HOST:8786, got {address!r}.")
    if find_spec("distributed") is None:
        raise ValueError("A scheduler is spoken to by Dask, which is not installed: pip install 'simfloat[sweep]'.")

    def carry_out(function: Callable[[Job], Result], jobs: Sequence[Job]) -> Generator[tuple[int, Result]]:
        if not jobs:
            return
        client = connect(address, patience)
        try:
            yield from gather_results(client, function, jobs)
        finally:
            with suppress(Exception):  # a scheduler that has gone has nothing to be told
                client.close(timeout=2)

    return carry_out


def is_address(text: str) -> bool:
    """Whether it has a protocol, a host and a port."""
    try:
        parts = urlsplit(text)
        return parts.scheme in PROTOCOLS and bool(parts.hostname) and bool(parts.port)
    except ValueError:  # a port that is none
        return False


def connect(address: str, patience: float) -> Client:
    """A client of the scheduler, which has at least one worker."""
    from distributed import Client

    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is said by exceptions
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
    """The results as they come; what is still under way when the iteration is given up is cancelled."""
    from distributed import as_completed

    # By its code: a function of __main__ is sent as it stands, any other by its name, which a scheduler would look up.
    sent = FunctionType(answer.__code__, {"__name__": "__main__"}, "answer")
    what = (str(import_folder(function.__module__)), function.__module__, function.__name__)
    digest = code_digest(function.__module__)
    futures = [client.submit(sent, *what, json.dumps(job), digest, pure=False) for job in jobs]
    places = {future.key: place for place, future in enumerate(futures)}
    try:
        coming = as_completed(futures, loop=client.loop)
        for future in coming:
            if future.status == "lost":  # with its worker, which died: the scheduler begins it anew
                coming.add(future)
                continue
            place = places[future.key]
            yield place, result_of(jobs[place], worker_answer(future, jobs[place]))
    finally:
        with suppress(Exception):
            client.cancel(futures)


def worker_answer(future: Future, job: Job) -> dict[str, Any]:
    """The answer that a worker gave; JobError if no worker did."""
    if future.status == "finished":
        return json.loads(future.result())
    error = future.exception() if future.status == "error" else None
    raise JobError(job, error_line(error) if error else f"the scheduler has lost it, or has ended ({future.status}).")


def answer(place: str, module: str, name: str, line: str, digest: str) -> str:
    """On a worker: the answer to a job, both as JSON, which is what travels to local processes too.

    It is sent as its code, so that a scheduler needs nothing but Dask: whatever it uses, it imports itself.
    """
    import json
    import sys
    from importlib import import_module

    if place not in sys.path:
        sys.path.insert(0, place)  # where workers see the same disk as the client, they find the function there
    executors, workspace = (import_module(f"simfloat.studies.{name}") for name in ("executors", "workspace"))
    if workspace.code_digest(module) != digest:
        fault = "a worker has other sources or versions of packages; install the same there, and start it anew."
        return json.dumps({"error": fault})
    return json.dumps(executors.answer(module, name, json.loads(line)))


def error_line(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
