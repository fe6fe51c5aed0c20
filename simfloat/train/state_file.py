"""A file of states, written whole or not at all, with a checksum.

It holds a line that says what it is, a line of JSON, the arrays in NumPy's own format one after another, and the
SHA-256 digest of all this. Nothing in it is ever executed.
"""

from __future__ import annotations

import io
import json
import os
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib.format import read_array, write_array
from numpy.typing import NDArray

from simfloat.checks import check_parent
from simfloat.train.state_trees import decode, encode

MAGIC = b"simfloat states 1\n"
DIGEST_SIZE = sha256().digest_size

#: How the name of a file ends while it is being written; it begins with a dot then.
UNFINISHED = ".unfinished"


class DamagedFile(ValueError):
    """A file is not what was written: cut off, changed, or no file of states at all."""


def write(path: Path, states: Mapping[str, Any]) -> None:
    """Write states by name; what was at `path` before stays whole until all of it has reached the disk.

    Raises ValueError for what a file cannot hold, and OSError naming the path where it cannot be written.
    """
    check_parent(path)
    arrays: list[NDArray] = []
    header = {name: encode(state, arrays, name) for name, state in states.items()}
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        try:
            with open(unfinished, "xb") as file:
                _write_checked(file, header, arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def read(path: Path) -> dict[str, Any]:
    """The states in a file by name; DamagedFile, naming it, unless it is what was written."""
    content = memoryview(path.read_bytes())  # of which slices are no copies
    if content[: len(MAGIC)] != MAGIC:
        raise DamagedFile(f"{path} is no file that simfloat.save wrote, or its beginning is damaged.")
    if sha256(content[:-DIGEST_SIZE]).digest() != content[-DIGEST_SIZE:]:
        raise DamagedFile(f"{path} is damaged: its checksum is not that of its content.")
    source = io.BytesIO(content[len(MAGIC) : -DIGEST_SIZE])
    try:
        header = json.loads(source.readline())
        arrays = [read_array(source, allow_pickle=False) for _ in range(header["arrays"])]
        return {name: decode(tree, arrays) for name, tree in header["states"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{path} is whole, but holds no states that simfloat.save wrote: {error}") from error


def read_state(path: Path, name: str) -> Any:
    """The state of this name, which holds no arrays, without a look at the rest; None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            if file.readline() != MAGIC:
                return None
            return decode(json.loads(file.readline())["states"][name], [])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


class _DigestingFile:
    """A file whose content is digested while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self.file.write(data)


def _write_checked(file: BinaryIO, states: Mapping[str, Any], arrays: list[NDArray]) -> None:
    """The content of a file, and its digest."""
    hashing = _DigestingFile(file)
    hashing.write(MAGIC)
    hashing.write(json.dumps({"arrays": len(arrays), "states": states}).encode() + b"\n")
    for array in arrays:
        write_array(hashing, np.asanyarray(array), allow_pickle=False)
    file.write(hashing.digest.digest())


def _sync_folder(folder: Path) -> None:
    """Let the new name reach the disk, where the system can open folders."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
