"""Compiled kernels on disk: one file for each compiled version, and no index that processes could race for.

The name of a file contains a digest of everything that its content depends on, so a file is never stale: the sources
of the module that defines the kernel, of all modules that it imports, and of the functions that the kernel closes over.
After an edit, only kernels that depend on the edited file are compiled again. Checkouts and processors of one level
(`processor.py`) can share a directory. Writing is atomic: the file is written under another name and renamed. A
checksum detects damaged and misnamed files; their kernels are compiled again. Problems with files are never errors:
without a directory for them, every process compiles its own kernels.

Functions that kernels call are stored as well, as LLVM code, which is linked into the kernels that call them. Kernels
that several processes compile have most functions in common: without these files, a process spent half of its time on
functions that another one had compiled.

A wheel may contain compiled kernels (`hatch_build.py`). The ones that fit are used, wherever new ones are stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from importlib import resources
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources.abc import Traversable
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import config, types
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.misc import appdirs

from simfloat.kernels.compile.pipeline import inner_from_parts, parts_of_inner
from simfloat.kernels.compile.processor import CODEGEN
from simfloat.terminal import NOTICE

SUFFIX = ".kernel"
FUNCTION_SUFFIX = ".function"
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


class FileCache(NullCache):
    """Files of compiled versions of a function; the interface that Numba's dispatcher uses."""

    suffix: str

    def __init__(self, function: Callable) -> None:
        self.function = function

    @property
    def short_name(self) -> str:
        """The name of the function, without what it closes over, and without <> of a lambda."""
        return self.function.__name__.partition("(")[0].strip("<>")  # names of files under Windows have no <>

    def _file_name(self, sources: str, *parts: Any) -> str:
        parts = (
            *compiler_versions(),
            f"{self.function.__module__}.{self.function.__qualname__}",
            *parts,
            *CODEGEN.magic_tuple(),
            numba_setting("OPT"),
            numba_setting("BOUNDSCHECK"),
        )
        version = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
        return f"{self.short_name}-{sources}-{version[:32]}{self.suffix}"


class KernelCache(FileCache):
    """Files of a kernel."""

    suffix = SUFFIX

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
        for path in self._paths(signature):
            content = read_kernel(path)
            if content is not None:
                return CompileResult._rebuild(LevelTarget(target), *pickle.loads(content))
        NOTICE.begin(self.short_name.replace("_", " "))
        target.refresh()
        return None

    def has_overload(self, signature: Any) -> bool:
        """True if one of the directories has a file for these types."""
        return any(path.is_file() for path in self._paths(signature))

    def save_overload(self, signature: Any, result: Any) -> None:
        """Store a new version in the first directory that accepts it."""
        NOTICE.end()
        if result.library.has_dynamic_globals or not kernel_directories():
            return
        name, content = self.file_name(signature), dumps(result._reduce())
        any(write_kernel(place / name, content) for place in kernel_directories())

    def file_name(self, signature: Any) -> str:
        """Return the file name of a version: function, digest of its module's sources, digest of everything else."""
        modules = map(module_digest, sorted(closure_modules(self.function)))
        return self._file_name(module_digest(self.function.__module__), *modules, signature)

    def _paths(self, signature: Any) -> list[Path]:
        name = self.file_name(signature)
        return [place / name for place in (*bundled_directory(), *kernel_directories())]


class FunctionCache(FileCache):
    """Files of the LLVM code of a function that kernels call.

    Functions that are made from their text may have one name and different code. The name of a file therefore also
    depends on the code, on everything that it closes over, and on the modules that define the types of its arguments,
    which its own module need not import. Functions that depend on more than the sources of this package, such as
    Numba's own, are not stored.
    """

    suffix = FUNCTION_SUFFIX

    def __init__(self, function: Callable, options: dict[str, Any], compiler: type) -> None:
        super().__init__(function)
        self._way = options, compiler

    def load_overload(self, signature: Any, target: Any) -> CompileResult | None:
        """Return the version for these types, or None if no directory has it."""
        for path in self.paths(signature):
            content = read_kernel(path)
            if content is not None:
                return inner_from_parts(target, *pickle.loads(content))
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Store a new version in the first directory that accepts it."""
        paths = self.paths(signature)
        if paths and not result.library.has_dynamic_globals:
            content = dumps(parts_of_inner(result))
            any(write_kernel(path, content) for path in paths)

    def paths(self, signature: Any) -> list[Path]:
        """Return the paths of a version's file in search order; none if the version cannot be stored."""
        try:
            parts = self._description, signature, *map(describe_type, signature)
        except TypeError:
            return []
        name = self._file_name(module_digest(self.function.__module__), *parts)
        return [place / name for place in kernel_directories()]

    @cached_property
    def _description(self) -> str:
        options, compiler = self._way
        return f"{describe(self.function)} {sorted(options.items())} {compiler.__name__}"


def describe(value: Any) -> str:
    """Return a text that determines what compiled code does with a value that it closes over.

    Raises TypeError for values that this package does not determine.
    """
    value = getattr(value, "py_func", value)
    if isinstance(value, FunctionType) and value.__module__ in SOURCES:
        known = [value.__defaults__, *(cell.cell_contents for cell in value.__closure__ or ())]
        if "__file__" not in value.__globals__:  # made from its text
            known += [item for name, item in sorted(value.__globals__.items()) if name != "__builtins__"]
        return f"({_describe_name(value)} {_describe_code(value.__code__)} {' '.join(map(describe, known))})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(describe, value))}]"
    if isinstance(value, type | BuiltinFunctionType) and value.__module__ in (*SOURCES, "builtins", "math", "numpy"):
        return _describe_name(value)
    if value is None or isinstance(value, str | int | float | np.generic):
        return f"{type(value).__name__} {value!r}"
    raise TypeError(f"The value of a compiled function must be determined by {PACKAGE}, got {value!r}.")


def _describe_name(value: Any) -> str:
    digest = module_digest(value.__module__) if value.__module__ in SOURCES else ""
    return f"{value.__module__}.{value.__qualname__} {digest}"


def _describe_code(code: CodeType) -> str:
    """Return a text that determines what code does, without the lines and the file that it comes from."""
    constants = (_describe_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {', '.join(constants)}"


def describe_type(kind: Any) -> str:
    """Return a text that determines a type of numbers, arrays and tuples; raises TypeError for all others."""
    members: Any = kind
    if isinstance(kind, types.BaseTuple):
        name = describe(members.instance_class) if isinstance(kind, types.BaseNamedTuple) else ""
        return f"{name}({', '.join(map(describe_type, members))})"
    if isinstance(kind, types.Array):
        return f"{kind} {describe_type(kind.dtype)}"
    if isinstance(kind, types.Number | types.Boolean | types.NoneType):
        return str(kind)
    raise TypeError(f"A function that is stored must have arguments of numbers, arrays and tuples, got {kind}.")


def numba_setting(name: str) -> Any:
    """Return a setting of Numba, which an environment variable NUMBA_... can set."""
    return getattr(config, name)


def compiler_versions() -> tuple[str, ...]:
    """Return the versions on which compiled code depends: Python's binary interface, Numba, LLVM, and NumPy."""
    # Of NumPy only the minor version counts: compiled code reads its arrays, whose layout is stable within a minor
    # version. Numba and llvmlite count in full, because they generate the code. llvmlite can be built with several
    # versions of LLVM, and one version does not read the code of a later one.
    numpy = ".".join(np.__version__.split(".")[:2])
    llvm = ".".join(map(str, llvmlite.binding.llvm_version_info))
    return *EXTENSION_SUFFIXES[:1], numba.__version__, llvmlite.__version__, llvm, numpy


PACKAGE = "simfloat.kernels"

#: A statement that imports modules of the package, or names from one; names may be in parentheses, over several lines.
_IMPORT = re.compile(rf"^\s*(?:from|import) +({PACKAGE}[\w.]*)(?: +import +(\([^)]*\)|.*))?", re.MULTILINE)


def source_files(package: Traversable, name: str) -> dict[str, str]:
    """Return the sources of a package, also inside a zip file: name of the module -> text.

    The result is empty if they cannot be read.
    """
    return dict(_source_files(package, name))


def _source_files(folder: Traversable, name: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "gpu":  # kernels of GPUs are stored elsewhere
            yield from _source_files(entry, f"{name}.{entry.name}")
        elif entry.name.endswith(".py"):
            module = name if entry.name == "__init__.py" else f"{name}.{entry.name.removesuffix('.py')}"
            yield module, entry.read_text(encoding="utf-8")


def digest_of(sources: dict[str, str], modules: Iterable[str]) -> str:
    """Return a digest of the sources of some modules; empty if there are none."""
    texts = [f"{module} {len(sources[module])}\n{sources[module]}" for module in sorted(modules)]
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16] if texts else ""


#: The sources of all kernels of the processor. They are read when kernels are imported: later edits do not affect the
#: running code.
SOURCES = source_files(resources.files(PACKAGE), PACKAGE)

#: A digest of all these sources; empty if they cannot be read.
SOURCE_DIGEST = digest_of(SOURCES, SOURCES)


@cache
def imported_modules(module: str) -> frozenset[str]:
    """Return the modules of the package that a module names in import statements."""
    names: set[str] = set()
    for origin, imported in _IMPORT.findall(SOURCES.get(module, "")):
        names |= {origin, *(f"{origin}.{name}" for name in re.findall(r"\w+", imported))}
    return frozenset(names & SOURCES.keys())


@cache
def reachable_modules(module: str) -> frozenset[str]:
    """Return a module with all modules that it imports, directly or not, and the modules that control compilation."""
    reached = {name for name in SOURCES if name.startswith(f"{PACKAGE}.compile")} | {module}
    waiting = list(reached)
    while waiting:
        new = imported_modules(waiting.pop()) - reached
        reached |= new
        waiting += new
    return frozenset(reached & SOURCES.keys())


@cache
def module_digest(module: str) -> str:
    """Return a digest of the sources on which the functions of a module depend."""
    return digest_of(SOURCES, reachable_modules(module))


def closure_modules(function: Callable) -> set[str]:
    """Return the modules of the functions that a function closes over, and of those that these close over.

    They may come from modules that the module of the function does not import: a loop is written once, and receives the
    arithmetic of a step from elsewhere.
    """
    modules: set[str] = set()
    waiting: list[Any] = [function]
    while waiting:
        value = waiting.pop()
        value = getattr(value, "py_func", value)
        if isinstance(value, tuple | list):
            waiting += value
        elif isinstance(value, FunctionType):
            modules.add(value.__module__)
            waiting += [cell.cell_contents for cell in value.__closure__ or ()]
            if "__file__" not in value.__globals__:  # made from its text, with the functions that it calls
                waiting += value.__globals__.values()
    return modules


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
    return sum(map(is_current, place.glob(f"*{SUFFIX}")))


def is_current(path: Path) -> bool:
    """True if a file of a kernel belongs to the current sources, by the digest in its name."""
    return not current_digests().isdisjoint(path.name.split("-")[1:2])


@cache
def current_digests() -> frozenset[str]:
    """Return the digests that names of files contain: of each module, and of all sources for kernels of GPUs."""
    return frozenset({*map(module_digest, SOURCES), SOURCE_DIGEST})


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
    for path in (*BESIDE_SOURCES.glob(f"*{SUFFIX}*"), *BESIDE_SOURCES.glob(f"*{FUNCTION_SUFFIX}*")):
        if not is_current(path):
            with contextlib.suppress(OSError):
                path.unlink()
