"""CuPy's own operations on float32, with subnormal numbers.

CuPy compiles what computes element by element with ``-ftz=true``: subnormal operands and results are zeros, and so is a
subnormal number that only changes its type or is compared. No option of CuPy's changes that, so the flag is taken out
of what it asks the compiler for, in the whole process: its results are then NumPy's.
"""

from __future__ import annotations

import gc
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

FLUSHING = "-ftz=true"


class CompilerOptions(tuple):
    """Options of the compiler that the flag is not added to."""

    def __add__(self, others: Any) -> CompilerOptions:
        return CompilerOptions((*self, *(option for option in others if option != FLUSHING)))


@cache
def keep_subnormal_numbers() -> None:
    """Have CuPy keep them from now on.

    Raises ValueError if it does not: then it is of a version that is not known here.
    """
    cupy = import_module("cupy")
    compiler = getattr(cupy.cuda, "compiler", None)
    compile = getattr(compiler, "_compile_with_cache_cuda", None)
    if compile is not None:

        def compile_without(source: Any, options: Any, *rest: Any, **named: Any) -> Any:
            return compile(source, CompilerOptions(options), *rest, **named)

        compiler._compile_with_cache_cuda = compile_without  # type: ignore[union-attr]
        _forget_compiled(cupy)
    smallest = cupy.asarray(np.array([2.0**-149], np.float32))
    if not smallest.astype(np.float64).get()[0]:
        raise ValueError(
            f"CuPy {cupy.__version__} takes subnormal numbers of float32 for zeros ({FLUSHING}), and would not do "
            "otherwise: pass NumPy's arrays, or install CuPy 14."
        )


def _forget_compiled(cupy: Any) -> None:
    """Have CuPy look anew for what it has compiled, of which each operation keeps its own."""
    cupy.clear_memo()
    kernel = cupy._core._kernel
    # CuPy's operations each keep the kernels that they compiled with the old flag, in caches that nothing lists: the
    # garbage collector knows all objects. `type(operation)` asks no proxy for its class.
    for operation in gc.get_objects():
        if issubclass(type(operation), kernel.ufunc | kernel.ElementwiseKernel):  # a proxy may stand for nothing
            for memory in ("_kernel_memo", "_elementwise_kernel_memo"):
                getattr(operation, memory, {}).clear()
