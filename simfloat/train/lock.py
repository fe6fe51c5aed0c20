"""A lock on a checkpoint folder: one training at a time writes to it. It ends with the process, however that ends."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simfloat.checks import warn
from simfloat.uninterrupted import uninterrupted

#: The file that is locked; it names the process, and goes when the training ends.
LOCK_FILE = ".lock"

#: Who has locked a folder, by (process, path): the system would let the same process in again.
_holders: dict[tuple[int, str], object] = {}


class FolderInUse(ValueError):
    """Another training, or another run, has the folder."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """A ``with`` block in which no other training writes to the folder, which is made if there is none.

    Raises Locked, naming the process, if another one does so now, and OSError where nothing can be written. A
    process that was killed holds nothing. Where the file system has no locks a UserWarning says so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = os.getpid(), os.path.realpath(folder)
    holder, descriptor = object(), None
    try:
        if _holders.setdefault(key, holder) is not holder:
            raise FolderInUse(_refusal(folder, f"{os.getpid()}, this one"))
        with uninterrupted():
            descriptor = _open_locked_file(folder)
        yield
    finally:
        with uninterrupted():
            if descriptor is not None:
                _release(folder / LOCK_FILE, descriptor)
            if _holders.get(key) is holder:
                del _holders[key]


def _open_locked_file(folder: Path) -> int:
    """The descriptor of the lock file, which this process has locked and written its number to."""
    path = folder / LOCK_FILE
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock_file(descriptor)
        except (BlockingIOError, PermissionError):
            owner = os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            raise FolderInUse(_refusal(folder, owner or "unknown")) from None
        except OSError as error:
            warn(f"{folder} cannot be locked ({error.strerror}): see to it that no other training writes there.")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
        os.close(descriptor)  # of a file that the training before has removed meanwhile


def _release(path: Path, descriptor: int) -> None:
    """Remove the file while it is locked, so that no other process takes it; on Windows, once it is closed."""
    if sys.platform != "win32":
        path.unlink(missing_ok=True)
    os.close(descriptor)
    if sys.platform == "win32":
        with suppress(OSError):  # another process has opened it
            path.unlink(missing_ok=True)


def _lock_file(descriptor: int) -> None:
    """Lock a file, or raise OSError at once."""
    if sys.platform != "win32":
        import fcntl

        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt

        os.lseek(descriptor, 2**30, os.SEEK_SET)  # what is locked cannot be read there, and the beginning is to be
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)


def _refusal(folder: Path, owner: str) -> str:
    return (
        f"Another training writes its checkpoints to {folder}: process {owner}. Wait until it has ended, or give this "
        "one a folder of its own; resume= may be a folder that another training writes to."
    )
