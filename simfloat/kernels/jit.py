"""How kernels are compiled and cached: the one place for compile flags.

Three kinds of function are compiled:

* ``@scalar``: arithmetic on numbers. Inlined wherever it is called, so it costs nothing and vectorises.
* ``@kernel``: a loop over arrays. Compiled for the CPU on its first call, kept on disk for the next process.
* ``specialize(loop, name, step=scalar)``: a kernel made from a plain loop by binding the global names it calls.

fastmath is off everywhere: it would change bits. Kernels release the interpreter lock; threads are the caller's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba.core import config
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

#: Arithmetic on numbers, always inlined: an outlined call would stop LLVM's vectoriser.
scalar = numba.njit(forceinline=True, error_model="numpy")


def _sources_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCES = _sources_digest()


def _stamped(locator: type) -> Any:
    # Numba's own stamp covers only the kernel's file; ours covers every scalar function it may have inlined.
    return type(locator.__name__, (locator,), {"get_source_stamp": lambda self: SOURCES})


class _Implementation(CompileResultCacheImpl):
    _locator_classes = [_stamped(c) for c in (UserProvidedCacheLocator, InTreeCacheLocator, UserWideCacheLocator)]


class _Cache(FunctionCache):
    _impl_class = _Implementation


def kernel(function: Callable) -> Any:
    """Compile a loop over arrays, cached on disk under a stamp of all kernel sources."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy")(function)
    dispatcher._cache = _Cache(function)
    return dispatcher


def specialize(loop: Callable, name: str, **names: Any) -> Any:
    """A kernel called `name`: the plain function `loop` with its global `names` bound to the functions given.

    A copy with globals of its own, and not a closure, because Numba cannot keep closures on disk.
    """
    code = loop.__code__
    function = FunctionType(code, {**loop.__globals__, **names}, name, loop.__defaults__)
    function.__module__, function.__qualname__, function.__doc__ = loop.__module__, name, loop.__doc__
    return kernel(function)
