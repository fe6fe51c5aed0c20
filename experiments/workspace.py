"""The folder of a run: where results appear when they are complete, and finished jobs wait until all are."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from experiments.experiment import Job, Result
from experiments.provenance import code_digest

#: The folder, inside that of the results, in which only we write.
HIDDEN = ".simfloat-run"
MARKER, LOCK = "made-by-simfloat.txt", "lock"
NOTE = "Finished jobs, which the same command does not compute again. Without a running command this can be removed.\n"

#: The names of our files: a job by the digest of all that its result depends on, and files that are being written.
OURS = re.compile(r"[0-9a-f]{64}\.json|part\..+")


class Workspace:
    """A results' folder that one run has to itself, as a ``with`` block.

    Entering makes the folder. Raises ValueError, before any work, if it cannot be written, if another run writes there,
    or if something else stands where one of the `targets` will be written. Its folder `hidden` keeps finished jobs.
    """

    def __init__(self, folder: Path, targets: tuple[str, ...] = (), hidden: str = HIDDEN) -> None:
        self.folder, self.hidden = folder, folder / hidden
        self._targets, self._finished = targets, False
        self._lock = FileLock(self.hidden / LOCK, timeout=0)

    def __enter__(self) -> Workspace:
        try:
            self.hidden.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise ValueError(
                f"Another run is writing to {self.folder}. Wait until it has ended, or choose another folder by --out."
            ) from None
        except OSError as error:
            raise ValueError(f"Cannot write to the folder {self.folder}: {error}") from None
        try:
            self._check()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._finished or not self.kept():
            self._clear()
        self._lock.release()

    def kept(self) -> int:
        """How many finished jobs wait in the folder."""
        return len(list(self.hidden.glob("*.json")))

    def _check(self) -> None:
        marker = self.hidden / MARKER
        strangers = [name for name in os.listdir(self.hidden) if name != LOCK]
        if strangers and not marker.exists():
            raise ValueError(
                f"{self.hidden} was not made by simfloat, {strangers[0]!r} is in it. Choose another --out."
            )
        for target in self._targets:
            if (self.folder / target).is_dir():
                raise ValueError(f"{self.folder / target} is a folder; a file of that name is to be written there.")
        try:
            marker.write_text(NOTE, encoding="utf-8")
            self.write(MARKER + ".test", lambda path: path.write_text(NOTE, encoding="utf-8"))
            (self.folder / (MARKER + ".test")).unlink()
        except OSError as error:
            raise ValueError(f"Cannot write to the folder {self.folder}: {error}") from None

    def job_path(self, job: Job) -> Path:
        """Where a job's result is kept: the name depends on the job, the code and the versions of packages."""
        key = json.dumps([job, code_digest()], sort_keys=True)
        return self.hidden / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def find(self, job: Job) -> Result | None:
        """The result that an interrupted run has left; None if there is none, or its file is damaged."""
        try:
            kept = json.loads(self.job_path(job).read_text(encoding="utf-8"))
            return kept["result"] if kept["job"] == job and isinstance(kept["result"], dict) else None
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
        """All results are written: what was kept is removed when the block ends."""
        self._finished = True

    def _clear(self) -> None:
        """Remove our files, the lock while it is held, and the hidden folder if nothing else is in it."""
        for name in os.listdir(self.hidden):
            if OURS.fullmatch(name) and (self.hidden / name).is_file():
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
