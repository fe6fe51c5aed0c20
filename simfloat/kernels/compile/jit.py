"""The compilation of kernels: the one place for compile flags.

Two kinds of function are compiled:

* ``@scalar``: arithmetic on numbers. It is inlined into its callers, so it costs nothing and vectorises.
  ``@on_lanes`` does this for loops over vectors of the processor.
* ``@kernel``: a loop over arrays. It is compiled for the CPU on its first call and stored on disk for later processes.
  ``@vector_kernel`` does the same, and vectorises loops that read tables.

Both may be closures: a loop that differs only in the scalar functions that it calls is written once, inside a function
that takes them. The name of a closure lists the functions that it closes over: ``sequential(add=plain_add, ...)``.

fastmath is off everywhere, because it would change bits. Kernels release the interpreter lock; the caller starts
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import numba
from numba.core import config, types
from numba.core.target_extension import CPU, get_local_target, jit_registry
from numba.core.typing.templates import infer, infer_global, make_overload_template

from simfloat.environment import in_usual_environment
from simfloat.kernels.compile.cache import FunctionCache, KernelCache
from simfloat.kernels.compile.pipeline import (
    CompilerOfKernels,
    InnerCompiler,
    InnerDispatcher,
    KernelDispatcher,
    Kernels,
    LaneCompiler,
    LevelCompiler,
)

#: The dispatchers of all kernels in imported modules. A dispatcher lists the types that it was compiled for.
KERNELS: list[Any] = []


def _inner(function: Callable, compiler: type[CompilerOfKernels] = InnerCompiler, **options: Any) -> Any:
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    # With error_model "numpy" a division by zero returns an infinity or NaN. Python's model would test every divisor,
    # and loops with a division would not vectorise.
    uncalled = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    options = {"nopython": True, "error_model": "numpy", **uncalled, **options}
    dispatcher: Any = InnerDispatcher(_name_closure(function), targetoptions=options, pipeline_class=compiler)
    dispatcher._cache = FunctionCache(dispatcher.py_func, options, compiler)
    return dispatcher


def scalar(function: Callable) -> Any:
    """Compile arithmetic on numbers, always inlined: an outlined call would stop LLVM's vectoriser."""
    return _inner(function, forceinline=True)


def on_lanes(function: Callable) -> Any:
    """Compile a loop over lanes, inlined like arithmetic; this saves a quarter of the compile time of its kernel."""
    return _inner(function, LaneCompiler, forceinline=True)


def out_of_line(function: Callable) -> Any:
    """Compile arithmetic on numbers that is called, not inlined: for rare cases, which would enlarge the loops."""
    return _inner(function)


#: Numba compiles its own functions that kernels call by this decorator: like `out_of_line`.
jit_registry[Kernels] = lambda **options: partial(_inner, **options)


def _inlined_body(**options: Any) -> Any:
    return on_lanes


def overload(function: Callable) -> Callable[[Callable], Callable]:
    """Return a decorator for a function that chooses the compiled body of `function` by the types of its arguments.

    The body is inlined like arithmetic.
    """

    def register(choose: Callable) -> Callable:
        template: Any = make_overload_template(function, choose, {"forceinline": True}, True, "never")
        of_target = template._get_jit_decorator

        def decorator_of_target(self: Any) -> Any:
            # Numba would compile each body to machine code, which nothing calls: a fifth of the time of all
            # compilation. On a GPU it does not.
            return _inlined_body if issubclass(get_local_target(self.context), CPU) else of_target(self)

        def implementation(self: Any, args: Any, kws: Any) -> Any:
            # One for all callers: Numba would compile another one for a caller with other options.
            key = self.context, tuple(args), tuple(kws.items())
            return self._impl_cache[key] if key in self._impl_cache else self._build_impl(key, args, kws)

        template._get_jit_decorator, template._get_impl = decorator_of_target, implementation
        infer(template)
        infer_global(function, types.Function(template))
        return choose

    return register


def kernel(function: Callable) -> Any:
    """Compile a loop over arrays. It must be defined in this package, whose sources key its files on disk."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return in_usual_environment(function)
    # Not `cache=True`: every process writes Numba's index files, and their key covers one source file, while the code
    # of a kernel depends on all source files (`cache.py`).
    options = {"nopython": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "boundscheck": None}
    dispatcher: Any = KernelDispatcher(_name_closure(function), targetoptions=options, pipeline_class=LevelCompiler)
    dispatcher._cache = KernelCache(dispatcher.py_func)
    KERNELS.append(dispatcher)
    return dispatcher


def vector_kernel(function: Callable) -> Any:
    """Compile a loop over arrays of float64 numbers with vectors, also if LLVM expects no gain from them."""
    function.needs_vectors = True  # type: ignore[attr-defined]
    return kernel(function)


def is_compiled(loop: Any, arguments: Sequence[Any]) -> bool:
    """True if a call of a kernel with such arguments compiles nothing: it has run, or a file contains its code."""
    if config.DISABLE_JIT or loop.overloads:  # type: ignore[attr-defined]
        return True
    return loop._cache.has_overload(tuple(map(numba.typeof, arguments)))


def scalar_from_text(name: str, parameters: str, result: str, **known: Any) -> Any:
    """Compile a scalar function from its text; `known` gives the values of other names in it.

    It serves tuples whose length is a constant of a loop: kernels can index tuples only by constants.
    """
    function = eval(f"lambda {parameters}: {result}", known | {"__name__": __name__})
    function.__name__ = function.__qualname__ = name
    return scalar(function)


def tuple_text(text: str, count: int) -> str:
    """Return the text of a tuple of `count` elements; element n is `text` with n in place of {}."""
    return f"({''.join(text.replace('{}', str(n)) + ', ' for n in range(count))})"


def reader(fields: type) -> Any:
    """Compile a scalar function that reads the fields of a NamedTuple of numbers from an array, in order."""
    count = len(fields._fields)  # type: ignore[attr-defined]
    return scalar_from_text(
        f"read_{fields.__name__}", "numbers", f"fields{tuple_text('numbers[{}]', count)}", fields=fields
    )


def _name_closure(function: Callable) -> Callable:
    """Rename a closure after the values that it closes over: Numba and LLVM distinguish functions by name."""
    if isinstance(function, FunctionType) and function.__closure__:
        # Otherwise all closures of one function would have one name and share their files on disk.
        maker = function.__qualname__.split(".")[0]
        cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
        values = ((name, cell.cell_contents) for name, cell in cells)
        bound = ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in values)
        function.__name__ = function.__qualname__ = f"{maker}({bound})"
    return function


@scalar
def copy_into(row, numbers):
    """Write numbers to the first elements of a row, in loops over columns.

    ``row[:] = numbers`` takes far longer to compile, because Numba also compiles a check of the shapes.
    """
    for j in range(numbers.size):
        row[j] = numbers[j]
