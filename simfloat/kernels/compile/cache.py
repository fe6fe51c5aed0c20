"""Compiled kernels on disk: one file for each compiled version, and no index that processes could race for.

A file's name holds a digest of everything that its content follows from, so a file is right or absent, never stale,
and checkouts and processors of one level (`processor.py`) that share a directory share what they have in common. It is
written under another name and renamed, so it is there as a whole or not at all; should it be damaged all the same, or
stand under another's name, its checksum tells, and the kernel is compiled. Nothing that goes wrong with files is an
error: without a place for them every process compiles for itself.

A wheel may bring compiled kernels along (`hatch_build.py`). Those that fit are used, wherever new ones are kept.
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

#: Files beside the kernels' sources: only those of the sources as they are now belong there.
BESIDE_SOURCES = Path(__file__).parents[1] / "__pycache__"

#: Where a wheel has kernels that it brings along. Nothing is ever written there.
BUNDLED = Path(__file__).parents[2] / "compiled"


class LevelTarget:
    """Numba's target of this process, except that its code is that of the level."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def codegen(self) -> Any:
        """The level's code generator."""
        return CODEGEN

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class KernelCache(NullCache):
    """What Numba's dispatcher asks for a compiled version of a function, and tells of a new one."""

    def __init__(self, function: Callable) -> None:
        self.function = function

    @property
    def cache_path(self) -> str | None:
        """The directory looked into first."""
        return next((str(place) for place in kernel_directories()), None)

    def load_overload(self, signature: Any, target: Any) -> CompileResult | None:
        """The version for these types at this machine's level, if one of the places has it.

        What is loaded needs Numba's memory for arrays, and not the modules that compile, which take longer to import
        than Numba itself.
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
        """Keep a new version in the first place that takes it."""
        NOTICE.end()
        if result.library.has_dynamic_globals or not kernel_directories():
            return
        name, content = self.file_name(signature), dumps(result._reduce())
        any(write_kernel(place / name, content) for place in kernel_directories())

    def file_name(self, signature: Any) -> str:
        """The name of a version's file: the function's, the digest of all kernel sources, and that of the rest."""
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
    """One of Numba's settings, each of which an environment variable NUMBA_... sets."""
    return getattr(config, name)


def compiler_versions() -> tuple[str, ...]:
    """What compiles, and what compiled code is called by: Python's binary interface and NumPy, which both promise that
    nothing changes for compiled code within a version of two numbers.
    """
    # Two numbers of NumPy's version count, and all of Numba's and llvmlite's: compiled code reads NumPy's arrays, whose
    # layout is promised within a version of two numbers, while the other two make the code.
    numpy = ".".join(np.__version__.split(".")[:2])
    return *EXTENSION_SUFFIXES[:1], numba.__version__, llvmlite.__version__, numpy


def source_digest(package: Traversable) -> str:
    """A digest of a package's sources, in a zip file too; empty if they are nowhere to be read."""
    digest, count = hashlib.sha256(), 0
    for path, content in _python_files(package, ""):
        digest.update(f"{path} {len(content)}\n".encode() + content)
        count += 1
    return digest.hexdigest()[:16] if count else ""


def _python_files(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "gpu":  # whose kernels are kept elsewhere
            yield from _python_files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield prefix + entry.name, entry.read_bytes()


#: A kernel's code follows from all scalar functions that it inlines, so every file counts for every kernel. Read when
#: the kernels are imported: what is edited later is not what runs.
SOURCE_DIGEST = source_digest(resources.files("simfloat.kernels"))


def kernel_directories() -> list[Path]:
    """Directories for compiled kernels, in the order in which they are tried; not all need be there, or writable.

    That of the environment variable NUMBA_CACHE_DIR, and no other, if it is set; else one beside the sources, and
    one in the user's home. None for kernels without sources, whose changes nothing would show.
    """
    if not SOURCE_DIGEST:
        return []
    if numba_setting("CACHE_DIR"):
        return [Path(numba_setting("CACHE_DIR")) / "simfloat"]
    home = Path(appdirs.user_cache_dir("simfloat", appauthor=False))
    return [BESIDE_SOURCES, home] if home.is_absolute() else [BESIDE_SOURCES]


def bundled_directory() -> list[Path]:
    """The directory of kernels that the installation brought along, if it did."""
    return [BUNDLED] if SOURCE_DIGEST and BUNDLED.is_dir() else []


def count_kernels(place: Path) -> int:
    """How many compiled kernels of the sources as they are a directory has."""
    return len(list(place.glob(f"*-{SOURCE_DIGEST}-*{SUFFIX}")))


def read_kernel(path: Path) -> bytes | None:
    """The content of a file; None if it is not there, or not whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content = data[CHECKSUM:]
    return content if data[:CHECKSUM] == checksum(path.name, content) else None


def checksum(name: str, content: bytes) -> bytes:
    """What a file begins with: a digest of its name and content, so that none passes for another."""
    return hashlib.sha256(name.encode() + b"\n" + content).digest()


def write_kernel(path: Path, content: bytes) -> bool:
    """Put a file in its place as a whole; False if that cannot be."""
    # Written beside its place under a name of its own, then renamed: on every system a rename inside one directory is
    # whole or not at all, so processes that compile at the same time cannot mix their files.
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(checksum(path.name, content) + content)
        os.replace(draft, path)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()  # of what was not written whole
    if path.parent == BESIDE_SOURCES:
        remove_outdated()
    return True


@cache
def remove_outdated() -> None:
    """Once in a process, remove what older sources left beside the sources."""
    for path in BESIDE_SOURCES.glob(f"*{SUFFIX}*"):
        if f"-{SOURCE_DIGEST}-" not in path.name:
            with contextlib.suppress(OSError):
                path.unlink()
