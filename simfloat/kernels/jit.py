"""How kernels are compiled: the one place for compile flags.

Two kinds of function are compiled:

* ``@scalar``: arithmetic on numbers. Inlined wherever it is called, so it costs nothing and vectorises.
* ``@kernel``: a loop over arrays. Compiled for the CPU on its first call, kept on disk for the next process.

Either may be a closure: a loop that differs in the scalar functions it calls is written once, inside a function that
takes them. A closure is called after what it closes over, as in ``sequential(add=plain_add, ...)``.

fastmath is off everywhere: it would change bits. Kernels release the interpreter lock; threads are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
from numba.core import config

from simfloat.kernels import target
from simfloat.kernels.cache import KernelCache
from simfloat.kernels.vectors import WideCompiler

#: Every kernel of the modules that are imported, as Numba's dispatchers, which know what they were compiled for.
KERNELS: list[Any] = []

#: For scalar functions, too: LLVM vectorises the loops of one before it is inlined into a kernel.
COMPILER = WideCompiler if target.VECTORS == 512 else None


def scalar(function: Callable) -> Any:
    """Compile arithmetic on numbers, always inlined: an outlined call would stop LLVM's vectoriser."""
    return numba.njit(forceinline=True, error_model="numpy", pipeline_class=COMPILER)(_named(function))


def outlined(function: Callable) -> Any:
    """Compile arithmetic on numbers that is called, not inlined: for rare cases, which would swell the loops."""
    return numba.njit(error_model="numpy", pipeline_class=COMPILER)(_named(function))


def kernel(function: Callable) -> Any:
    """Compile a loop over arrays. It must be defined in this package, whose sources its files on disk are keyed by."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy", pipeline_class=COMPILER)(_named(function))
    dispatcher._cache = KernelCache(dispatcher.py_func)
    KERNELS.append(dispatcher)
    return dispatcher


def reader(fields: type) -> Any:
    """A scalar function that reads the fields of a NamedTuple of numbers from an array that holds them in order."""
    names: tuple[str, ...] = fields._fields  # type: ignore[attr-defined]
    # Spelled out, since kernels cannot make a tuple from an array, whose length they do not know.
    elements = ", ".join(f"numbers[{i}]" for i in range(len(names)))
    function = eval(f"lambda numbers: fields({elements})", {"fields": fields, "__name__": fields.__module__})
    function.__name__ = function.__qualname__ = f"read_{fields.__name__}"
    return scalar(function)


def _named(function: Callable) -> Callable:
    """The function, a closure called after what it closes over: Numba and LLVM tell functions apart by their names."""
    if isinstance(function, FunctionType) and function.__closure__:
        maker = function.__qualname__.split(".")[0]
        cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
        values = ((name, cell.cell_contents) for name, cell in cells)
        bound = ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in values)
        function.__name__ = function.__qualname__ = f"{maker}({bound})"
    return function
