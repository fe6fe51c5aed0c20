"""The way of a kernel through Numba and LLVM: passes, libraries of code, and dispatchers.

Compilation takes most of the time of a first session, so everything that kernels do not need is left out:

* Numba's passes for language features that no kernel has (`UNUSED`);
* machine code and entry points for functions that only kernels call, also for Numba's own (`Kernels`);
* counts of references to arrays in functions that own no array, which took a tenth of the time (`_target_of`);
* Python's garbage collection, which finds nothing;
* functions that another process has compiled (`cache.py`), half of the time of a process.

If a processor has vectors of 512 bits and LLVM would choose 256 (see `processor.VECTORS`), the functions here request
the wider ones. LLVM reads the width from an attribute of the function, for which Numba has no option. No setting of the
process and no other function is changed.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numba
from llvmlite import binding
from llvmlite import ir as llvm
from numba.core import ir, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder, Flags, compile_result
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature
from numba.core.target_extension import CPU, dispatcher_registry
from numba.core.targetconfig import Option
from numba.core.typed_passes import NativeLowering
from numba.core.types import unliteral

from simfloat.kernels.compile import processor
from simfloat.kernels.compile.processor import CODEGEN

PREFER_512_BITS = '"prefer-vector-width"="512"'

#: Numba's passes that change nothing in functions of this package: for functions and list comprehensions inside
#: functions, `with` blocks, expressions of whole arrays, loops over tuples of mixed types, and functions that Numba
#: inlines. A function that needed one would not compile. Without them compilation takes a tenth less time.
UNUSED = {
    *(untyped_passes.WithLifting, untyped_passes.InlineClosureLikes, untyped_passes.MakeFunctionToJitFunction),
    *(untyped_passes.InlineInlinables, untyped_passes.FindLiterallyCalls, untyped_passes.LiteralUnroll),
    *(untyped_passes.RewriteDynamicRaises, untyped_passes.LiteralPropagationSubPipelinePass),
    *(typed_passes.NopythonRewrites, typed_passes.DumpParforDiagnostics),
}


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep Python from looking for garbage, which took 7 % of the time of compilation, and found nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Kernels(CPU):
    """The target of kernels, by which Numba chooses a decorator for its own functions that kernels call."""


class KernelFlags(Flags):
    """Numba's flags of a function, by which it finds the versions of called functions. They do not change.

    Numba compares flags at every call, and lists all of them for a comparison: 5 % of the time of compilation.
    """

    of_kernels = Option(type=bool, default=True, doc="distinguishes these versions from those of other callers")

    @cached_property
    def _contents(self) -> dict[str, Any]:
        return super().values()

    def values(self) -> dict[str, Any]:
        """Return all flags."""
        return self._contents

    @cached_property
    def _digest(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._digest

    __eq__ = Flags.__eq__


class _CompilerFlags(Flags):
    """Numba's flags of the function that is compiled; a copy is passed to called functions."""

    def copy(self) -> KernelFlags:
        """Return the flags as they are now."""
        return KernelFlags(self)


def request_vectors(function: llvm.Function) -> None:
    """Request vectors of full width, in float64, for the loops of a function, even if LLVM expects no gain.

    LLVM expects no gain if a loop reads a table: it reads the elements one by one, and overestimates the cost.
    Vectorised, the logarithm takes a third of the time, and 15 of 30 functions take half or less (AMD Zen 3).
    """
    positions = {block: position for position, block in enumerate(function.blocks)}
    for block, position in positions.items():
        branch = block.terminator  # None for the entry block: Numba writes this branch later
        if branch and len(branch.operands) == 1 and positions.get(branch.operands[0], position + 1) <= position:
            module = function.module
            width = llvm.MetaDataString(module, "llvm.loop.vectorize.width"), llvm.IntType(32)(processor.VECTORS // 64)
            request = module.add_metadata(width)
            loop = llvm.MDValue(module, (request,), name=str(len(module.metadata)))
            loop.operands = loop, request  # LLVM recognises the description of a loop by its reference to itself.
            branch.set_metadata("llvm.loop", loop)


class _LevelLower(Lower):
    """Lowering of a function to LLVM's language."""

    def lower_function_body(self) -> Any:
        tail = super().lower_function_body()
        if getattr(self.func_ir.func_id.func, "needs_vectors", False):
            request_vectors(self.function)
        return tail

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        if processor.VECTORS == 512:
            # A vector on the stack then fills one cache line instead of parts of two.
            self.function.attributes.alignstack = 64
            set.add(self.function.attributes, PREFER_512_BITS)  # llvmlite's `add` accepts no attributes with values

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        processor.wrap(self, release_gil)


def _borrows_arrays(state: Any) -> bool:
    """True if all arrays of a function are arguments or parts of arguments, which its callers keep alive."""
    model = state.targetctx.data_model_manager
    calls = (
        assignment.target.name
        for block in state.func_ir.blocks.values()
        for assignment in block.find_insts(ir.Assign)
        if isinstance(assignment.value, ir.Expr) and assignment.value.op == "call"
    )
    return not any(model[kind].contains_nrt_meminfo() for kind in (state.return_type, *map(state.typemap.get, calls)))


def _target_of(state: Any) -> Any:
    """Return Numba's target for a function: one that counts no references if the function borrows its arrays."""
    return state.targetctx.subtarget(enable_nrt=False) if _borrows_arrays(state) else state.targetctx


@register_pass(mutates_CFG=True, analysis_only=False)
class _LevelLowering(NativeLowering):
    _name = "level_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return _LevelLower

    def run_pass(self, state: Any) -> bool:
        state.library = _KernelLibrary(CODEGEN, state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.targetctx = _target_of(state)
        return super().run_pass(state)


class _KernelLibrary(JITCodeLibrary):
    """The code of a kernel. LLVM optimises single functions, then each function with all that it calls.

    The second step is needed for functions that are inlined as well, and the first for kernels. Without them,
    compilation took a tenth less time, but sums of matrix units ran up to a fifth slower, because LLVM vectorises a
    loop before it inlines it, and random sums in trees up to a quarter.
    """

    def _optimize_functions(self, module: Any) -> None:
        # Numba prepares the passes anew for each function, and also for those that are only declared.
        module.data_layout = self._codegen._data_layout
        manager, builder = self._codegen._function_pass_manager()
        for function in module.functions:
            if not function.is_declaration:
                manager.run(function, builder)


class _LinkedLibrary(_KernelLibrary):
    """The code of a function that kernels call. It is compiled to machine code only inside its callers."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _UnoptimisedLibrary(_LinkedLibrary):
    """The code of a function that is optimised only inside its callers."""

    def _optimize_final_module(self) -> None:
        """Do nothing."""


def _add_to_callable(target: Any, fndesc: Any, library: Any) -> object:
    """Make the code of a function known to its callers, and return what stands in for Numba's Python entry point."""
    function = object()
    target.insert_user_function(function, fndesc, [library])
    return function


def parts_of_inner(version: Any) -> tuple[Any, ...]:
    """Return what callers need of a version of a function that kernels call, in a form that can be stored."""
    library, fndesc = version.library, version.fndesc
    fndesc.typemap = fndesc.calltypes = None  # not needed, and too large
    code = library._get_module_for_linking().as_bitcode()
    return library.name, code, fndesc, version.environment, version.signature


def inner_from_parts(
    target: Any, name: str, code: bytes, fndesc: Any, environment: Any, signature: Any
) -> CompileResult:
    """Return the version with these parts."""
    library = _LinkedLibrary(CODEGEN, name)
    library._final_module = library._shared_module = binding.parse_bitcode(code)
    library._finalized = True
    return compile_result(
        typing_context=target.typing_context,
        target_context=target,
        library=library,
        entry_point=_add_to_callable(target, fndesc, library),
        fndesc=fndesc,
        environment=environment,
        signature=signature,
        objectmode=False,
        lifted=(),
    )


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    _name = "inner_lowering"

    _library: type[_LinkedLibrary] = _LinkedLibrary

    @property
    def lowering_class(self) -> type[Lower]:
        # Inner functions need the attribute also: LLVM vectorises their loops before it inlines them into a kernel.
        return _LevelLower

    def run_pass(self, state: Any) -> bool:
        state.library = self._library(CODEGEN, state.func_id.func_qualname)
        # Numba counts functions to distinguish their names. Code from other processes may have the same number.
        state.func_id.unique_id = uuid.uuid4().hex
        state.func_id.unique_name = f"{state.func_id.func_qualname}${state.func_id.unique_id}"
        # Inner functions are inlined as LLVM code. Compiling them to machine code of their own, with entry points for
        # Python and C, took a third of the time of all compilation.
        state.flags.no_compile = True
        state.targetctx = _target_of(state)
        super().run_pass(state)
        state.library.finalize()
        function = _add_to_callable(state.targetctx, state["cr"].fndesc, state.library)
        state["cr"] = state["cr"]._replace(cfunc=function)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LaneLowering(_InnerLowering):
    _name = "lane_lowering"
    _library = _UnoptimisedLibrary


class CompilerOfKernels(CompilerBase):
    """Numba's compiler with another lowering pass, for another target."""

    lowering: type[NativeLowering]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.state.targetctx = self.state.targetctx.subtarget(target=Kernels)
        self.state.flags = _CompilerFlags(self.state.flags)

    def define_pipelines(self) -> list[PassManager]:
        """Return Numba's pipeline with one pass replaced, and for functions of this package without some passes."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        unused = UNUSED if self.state.func_id.modname.startswith("simfloat.") else set()
        passes = [(kind, text) for kind, text in manager.passes if kind not in unused]
        manager.passes = [(self.lowering if kind is NativeLowering else kind, text) for kind, text in passes]
        return [manager]


class LevelCompiler(CompilerOfKernels):
    """The compiler of kernels: it targets the instruction level instead of the processor, and sets the vector width."""

    lowering = _LevelLowering


class InnerCompiler(CompilerOfKernels):
    """The compiler of functions that kernels call: it produces no machine code."""

    lowering = _InnerLowering


class LaneCompiler(CompilerOfKernels):
    """The compiler of loops over lanes, in which LLVM finds nothing to vectorise."""

    lowering = _LaneLowering


class KernelDispatcher(CPUDispatcher):
    """The dispatcher of kernels."""

    def compile(self, signature: Any) -> Any:
        """Return the entry of a version; compile it if no file contains it."""
        with global_compiler_lock, without_collections():
            return super().compile(signature)


class InnerDispatcher(CPUDispatcher):
    """The dispatcher of functions that kernels call. It compiles no machine code and no entry points for Python and C,
    which took a third of the time of all compilation.

    Calls from Python, which are few, go to a separate version.
    """

    _compiler: Any
    _cache: Any

    def _insert(self, *version: Any, **options: Any) -> None:
        """Do not register a version for calls from Python, which would jump to an invalid address."""

    def compile(self, signature: Any) -> Any:
        """Load or compile a version, without Numba's timers: they observe each call of LLVM, and each call inside
        another."""
        arguments, result = normalize_signature(signature)
        versions: Any = self.overloads
        with global_compiler_lock, self._compiling_counter:
            if arguments not in versions:
                version = self._cache.load_overload(arguments, self.targetctx)
                if version is None:
                    version = self._compiler.compile(arguments, result)
                    self._cache.save_overload(arguments, version)
                self.add_overload(version)
            return versions[arguments].entry_point

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Use one version for all values of a type: LLVM detects constants when it inlines the version."""
        return super().get_call_template(tuple(map(unliteral, args)), kws)

    def _compile_for_args(self, *args: Any, **options: Any) -> Any:
        """Return the function that Python calls instead, for all types."""
        return self.outer

    @cached_property
    def outer(self) -> Any:
        """The version that Python can call."""
        return numba.njit(error_model="numpy", pipeline_class=LevelCompiler)(self.py_func)


dispatcher_registry[Kernels] = InnerDispatcher
