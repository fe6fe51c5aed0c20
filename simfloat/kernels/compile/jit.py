"""The compilation of kernels: the one place for compile flags.

Two kinds of function are compiled:

* ``@scalar``: arithmetic on numbers. Inlined wherever it is called, so it costs nothing and vectorises.
  ``@on_lanes`` is the same for loops over vectors of the processor's.
* ``@kernel``: a loop over arrays. Compiled for the CPU on its first call, kept on disk for the next process.

Either may be a closure: a loop that differs in the scalar functions it calls is written once, inside a function that
takes them. A closure is called after what it closes over, as in ``sequential(add=plain_add, ...)``.

fastmath is off everywhere: it would change bits. Kernels release the interpreter lock; threads are the caller's.

Where a processor has vectors of 512 bits and LLVM would choose 256 (see `processor.VECTORS`), the wider ones are asked
for. LLVM takes the width from an attribute of the function, which Numba has no option for; no setting of the process,
and no function of others, is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from types import FunctionType
from typing import Any

import numba
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering
from numba.core.types import unliteral

from simfloat.environment import in_usual_environment
from simfloat.kernels.compile import processor
from simfloat.kernels.compile.cache import KernelCache
from simfloat.kernels.compile.processor import CODEGEN

#: Every kernel of the modules that are imported, as Numba's dispatchers, which know what they were compiled for.
KERNELS: list[Any] = []

PREFER_512_BITS = '"prefer-vector-width"="512"'


class _LevelLower(Lower):
    """What writes a function in LLVM's language."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        if processor.VECTORS == 512:
            # A vector that is kept on the stack is then a line of the cache, not parts of two.
            self.function.attributes.alignstack = 64
            set.add(self.function.attributes, PREFER_512_BITS)  # llvmlite's own `add` takes no attributes with values

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        processor.wrap(self, release_gil)


@register_pass(mutates_CFG=True, analysis_only=False)
class _LevelLowering(NativeLowering):
    _name = "level_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return _LevelLower

    def run_pass(self, state: Any) -> bool:
        state.library = CODEGEN.create_library(state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


class _LinkedLibrary(JITCodeLibrary):
    """The code of a function that kernels call. It becomes machine code in theirs, so none is made of it alone."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _UnoptimisedLibrary(_LinkedLibrary):
    """The code of a function that is optimised only in the kernels that call it."""

    def _optimize_final_module(self) -> None:
        """Leave it as it is."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    _name = "inner_lowering"
    _library: type[_LinkedLibrary] = _LinkedLibrary

    @property
    def lowering_class(self) -> type[Lower]:
        # For these, too: LLVM vectorises the loops of one before it is inlined into a kernel.
        return _LevelLower

    def run_pass(self, state: Any) -> bool:
        state.library = self._library(CODEGEN, state.func_id.func_qualname)
        # What kernels call is inlined into them as LLVM's code. Machine code of it alone, and what Python and C would
        # call it by, took a third of all compilation.
        state.flags.no_compile = True
        super().run_pass(state)
        state.library.finalize()
        function = object()  # where Numba has what Python would call: by it, callers find the code
        state.targetctx.insert_user_function(function, state["cr"].fndesc, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=function)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LaneLowering(_InnerLowering):
    _name = "lane_lowering"
    _library = _UnoptimisedLibrary


class _LoweringCompiler(CompilerBase):
    """Numba's compiler with another way of writing a function in LLVM's language."""

    lowering: type[NativeLowering]

    def define_pipelines(self) -> list[PassManager]:
        """Numba's own pipeline, one pass replaced."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [(self.lowering if kind is NativeLowering else kind, text) for kind, text in manager.passes]
        return [manager]


class LevelCompiler(_LoweringCompiler):
    """For the level of instructions instead of the processor, and with the attribute."""

    lowering = _LevelLowering


class InnerCompiler(_LoweringCompiler):
    """Of what kernels call: the same, without machine code."""

    lowering = _InnerLowering


class LaneCompiler(_LoweringCompiler):
    """Of loops whose numbers are lanes: there is nothing in them that LLVM would vectorise."""

    lowering = _LaneLowering


class InnerDispatcher(CPUDispatcher):
    """What kernels call. What Python and C would call it by, and machine code of it alone, took a third of all
    compilation, so these are left out.

    Python, which calls few such functions, gets a version of its own.
    """

    def _insert(self, *version: Any, **options: Any) -> None:
        """Keep a version from Python, which would jump to an address that is not there."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """One version for all numbers of a type: which are constants, LLVM sees where the version is inlined."""
        return super().get_call_template(tuple(map(unliteral, args)), kws)

    def _compile_for_args(self, *args: Any, **options: Any) -> Any:
        """What Python calls instead, whatever the types."""
        return self.outer

    @cached_property
    def outer(self) -> Any:
        """The function with what Python calls it by."""
        return numba.njit(error_model="numpy", pipeline_class=LevelCompiler)(self.py_func)


def _inner(function: Callable, compiler: type[_LoweringCompiler] = InnerCompiler, **options: Any) -> Any:
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    # error_model "numpy" lets divisions by zero give infinities and NaN: Python's would test every divisor and raise,
    # and no loop with a division would vectorise.
    uncalled = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    options = {"nopython": True, "error_model": "numpy", **uncalled, **options}
    return InnerDispatcher(_name_closure(function), targetoptions=options, pipeline_class=compiler)


def scalar(function: Callable) -> Any:
    """Compile arithmetic on numbers, always inlined: an outlined call would stop LLVM's vectoriser."""
    return _inner(function, forceinline=True)


def on_lanes(function: Callable) -> Any:
    """Compile a loop over lanes, inlined as arithmetic is: a quarter of what its kernel takes to compile is saved."""
    return _inner(function, LaneCompiler, forceinline=True)


def out_of_line(function: Callable) -> Any:
    """Compile arithmetic on numbers that is called, not inlined: for rare cases, which would swell the loops."""
    return _inner(function)


def kernel(function: Callable) -> Any:
    """Compile a loop over arrays. It must be defined in this package, whose sources its files on disk are keyed by."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return in_usual_environment(function)
    # Not `cache=True`: Numba's index files are written by every process and keyed by one source file, while a kernel's
    # code follows from all of them (`cache.py`).
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    dispatcher: Any = numba.njit(pipeline_class=LevelCompiler, **options)(_name_closure(function))
    dispatcher._cache = KernelCache(dispatcher.py_func)
    KERNELS.append(dispatcher)
    return dispatcher


def is_compiled(loop: Any, arguments: Sequence[Any]) -> bool:
    """True if a call of a kernel with such arguments compiles nothing: it has run, or a file holds its code."""
    if not isinstance(loop, CPUDispatcher) or loop.overloads:
        return True
    return loop._cache.has_overload(tuple(map(numba.typeof, arguments)))


def scalar_from_text(name: str, parameters: str, result: str, **known: Any) -> Any:
    """A scalar function from its text, which may use what is `known` by name.

    For tuples as long as a constant of a loop: kernels take each of their elements by a constant index only.
    """
    function = eval(f"lambda {parameters}: {result}", known | {"__name__": __name__})
    function.__name__ = function.__qualname__ = name
    return scalar(function)


def tuple_text(text: str, count: int) -> str:
    """The text of a tuple of so many elements, that of number n with n for every {}."""
    return f"({''.join(text.replace('{}', str(n)) + ', ' for n in range(count))})"


def reader(fields: type) -> Any:
    """A scalar function that reads the fields of a NamedTuple of numbers from an array that holds them in order."""
    count = len(fields._fields)  # type: ignore[attr-defined]
    return scalar_from_text(
        f"read_{fields.__name__}", "numbers", f"fields{tuple_text('numbers[{}]', count)}", fields=fields
    )


def _name_closure(function: Callable) -> Callable:
    """The function, a closure called after what it closes over: Numba and LLVM tell functions apart by their names."""
    if isinstance(function, FunctionType) and function.__closure__:
        # Without this every closure of one maker has one name, and files on disk would be taken for one another: the
        # name has to say what the closure closes over.
        maker = function.__qualname__.split(".")[0]
        cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
        values = ((name, cell.cell_contents) for name, cell in cells)
        bound = ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in values)
        function.__name__ = function.__qualname__ = f"{maker}({bound})"
    return function


@scalar
def copy_into(row, numbers):
    """Write numbers to the first places of a row, in loops over columns.

    ``row[:] = numbers`` takes far longer to compile: Numba checks that shapes agree, and its message is compiled, too.
    """
    for j in range(numbers.size):
        row[j] = numbers[j]
