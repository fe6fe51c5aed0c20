"""Jobs on the workers of a Dask scheduler: the executor of a machine room.

The workers need what this machine has: simfloat and the package of the function, on their path or at the same place of
a shared disk, and the same versions of packages. A worker with another state of any refuses, so that a result does not
depend on where it was computed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from simfloat.studies.executors import Executor, Job, JobError, Result, result_of
from simfloat.studies.workspace import code_digest, import_folder

if TYPE_CHECKING:
    from distributed import Client, Future

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

    if place not in sys.path:
        sys.path.insert(0, place)  # where workers see the same disk as the client, they find the function there
    from simfloat.studies import executors, workspace

    if workspace.code_digest(module) != digest:
        fault = "a worker has other sources or versions of packages; install the same there, and start it anew."
        return json.dumps({"error": fault})
    return json.dumps(executors.answer(module, name, json.loads(line)))


def error_line(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
