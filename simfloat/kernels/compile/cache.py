"""Compiled kernels on disk: one file for each compiled version, and no index that processes could race for.

The name of a file contains a digest of everything that its content depends on, so a file is never stale. Checkouts and
processors of one level (`processor.py`) can share a directory. Writing is atomic: the file is written under another
name and renamed. A checksum detects damaged and misnamed files; their kernels are compiled again. Problems with files
are never errors: without a directory for them, every process compiles its own kernels.

A wheel may contain compiled kernels (`hatch_build.py`). The ones that fit are used, wherever new ones are stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import config
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.misc import appdirs

from simfloat.kernels.compile.processor import CODEGEN
from simfloat.terminal import NOTICE

SUFFIX = ".kernel"
CHECKSUM = hashlib.sha256().digest_size

#: Directory next to the sources. It keeps only files of the current sources.
BESIDE_SOURCES = Path(__file__).parents[1] / "__pycache__"

#: Directory of the kernels in a wheel. Nothing is written there.
BUNDLED = Path(__file__).parents[2] / "compiled"


class LevelTarget:
    """Numba's target of this process, with the code generator of the level."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def codegen(self) -> Any:
        """Return the code generator of the level."""
        return CODEGEN

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class KernelCache(NullCache):
    """Files of compiled versions of a function; the interface that Numba's dispatcher uses."""

    def __init__(self, function: Callable) -> None:
        self.function = function

    @property
    def cache_path(self) -> str | None:
        """The first directory that is searched."""
        return next((str(place) for place in kernel_directories()), None)

    def load_overload(self, signature: Any, target: Any) -> CompileResult | None:
        """Return the version for these types at the level of this processor, or None if no directory has it.

        Loaded code needs Numba's memory management for arrays, but not the modules of the compiler, which take longer
        to import than Numba.
        """
        rtsys.initialize(target)
        name = self.file_name(signature)
        for place in (*bundled_directory(), *kernel_directories()):
            content = read_kernel(place / name)
            if content is not None:
                return CompileResult._rebuild(LevelTarget(target), *pickle.loads(content))
        NOTICE.begin(self.short_name.replace("_", " "))
        target.refresh()
        return None

    def has_overload(self, signature: Any) -> bool:
        """True if one of the directories has a file for these types."""
        name = self.file_name(signature)
        return any((place / name).is_file() for place in (*bundled_directory(), *kernel_directories()))

    @property
    def short_name(self) -> str:
        """The name of the function, without what it closes over."""
        return self.function.__name__.partition("(")[0]

    def save_overload(self, signature: Any, result: Any) -> None:
        """Store a new version in the first directory that accepts it."""
        NOTICE.end()
        if result.library.has_dynamic_globals or not kernel_directories():
            return
        name, content = self.file_name(signature), dumps(result._reduce())
        any(write_kernel(place / name, content) for place in kernel_directories())

    def file_name(self, signature: Any) -> str:
        """Return the file name of a version: function, digest of all kernel sources, digest of everything else."""
        function = f"{self.function.__module__}.{self.function.__qualname__}"
        parts = (
            *compiler_versions(),
            function,
            signature,
            *CODEGEN.magic_tuple(),
            numba_setting("OPT"),
            numba_setting("BOUNDSCHECK"),
        )
        version = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
        return f"{self.short_name}-{SOURCE_DIGEST}-{version[:32]}{SUFFIX}"


def numba_setting(name: str) -> Any:
    """Return a setting of Numba, which an environment variable NUMBA_... can set."""
    return getattr(config, name)


def compiler_versions() -> tuple[str, ...]:
    """Return the versions on which compiled code depends: Python's binary interface, Numba, llvmlite, and NumPy."""
    # Of NumPy only the minor version counts: compiled code reads its arrays, whose layout is stable within a minor
    # version. Numba and llvmlite count in full, because they generate the code.
    numpy = ".".join(np.__version__.split(".")[:2])
    return *EXTENSION_SUFFIXES[:1], numba.__version__, llvmlite.__version__, numpy


def source_digest(package: Traversable) -> str:
    """Return a digest of the sources of a package, also inside a zip file; empty if they cannot be read."""
    digest, count = hashlib.sha256(), 0
    for path, content in _python_files(package, ""):
        digest.update(f"{path} {len(content)}\n".encode() + content)
        count += 1
    return digest.hexdigest()[:16] if count else ""


def _python_files(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "gpu":  # kernels of GPUs are stored elsewhere
            yield from _python_files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield prefix + entry.name, entry.read_bytes()


#: The code of a kernel depends on all scalar functions that it inlines, so every file counts for every kernel. The
#: files are read when kernels are imported: later edits do not affect the running code.
SOURCE_DIGEST = source_digest(resources.files("simfloat.kernels"))


def kernel_directories() -> list[Path]:
    """Return the directories for compiled kernels in search order; they need not exist or be writable.

    If the environment variable NUMBA_CACHE_DIR is set, only its directory is used; otherwise one next to the sources,
    then one in the user's home. If the sources cannot be read, the list is empty, because changes are not detected.
    """
    if not SOURCE_DIGEST:
        return []
    if numba_setting("CACHE_DIR"):
        return [Path(numba_setting("CACHE_DIR")) / "simfloat"]
    home = Path(appdirs.user_cache_dir("simfloat", appauthor=False))
    return [BESIDE_SOURCES, home] if home.is_absolute() else [BESIDE_SOURCES]


def bundled_directory() -> list[Path]:
    """Return the directory of the kernels that were installed with the package, in a list; empty if there are none."""
    return [BUNDLED] if SOURCE_DIGEST and BUNDLED.is_dir() else []


def count_kernels(place: Path) -> int:
    """Count the compiled kernels of the current sources in a directory."""
    return len(list(place.glob(f"*-{SOURCE_DIGEST}-*{SUFFIX}")))


def read_kernel(path: Path) -> bytes | None:
    """Return the content of a file; None if it is missing or damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content = data[CHECKSUM:]
    return content if data[:CHECKSUM] == checksum(path.name, content) else None


def checksum(name: str, content: bytes) -> bytes:
    """Return the first bytes of a file: a digest of its name and its content."""
    return hashlib.sha256(name.encode() + b"\n" + content).digest()


def write_kernel(path: Path, content: bytes) -> bool:
    """Write a file atomically; return False if that fails."""
    # A rename inside one directory is atomic on every system, so processes that compile at the same time cannot mix
    # their files.
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(checksum(path.name, content) + content)
        os.replace(draft, path)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()  # left over if writing failed
    if path.parent == BESIDE_SOURCES:
        remove_outdated()
    return True


@cache
def remove_outdated() -> None:
    """Remove the files of older sources next to the sources, once in a process."""
    for path in BESIDE_SOURCES.glob(f"*{SUFFIX}*"):
        if f"-{SOURCE_DIGEST}-" not in path.name:
            with contextlib.suppress(OSError):
                path.unlink()
