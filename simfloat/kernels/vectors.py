"""Loops with vectors of 512 bits, on processors for which LLVM would choose 256 (see `target.VECTORS`).

LLVM takes the width from an attribute of the function, which Numba has no option for. No setting of the process, and
nobody else's functions, are touched.
"""

from __future__ import annotations

from typing import Any

from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering

ATTRIBUTE = '"prefer-vector-width"="512"'


class _WideLower(Lower):
    """What writes a function in LLVM's language."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        # A vector that is kept on the stack is then a line of the cache, not parts of two.
        self.function.attributes.alignstack = 64
        set.add(self.function.attributes, ATTRIBUTE)  # llvmlite's own `add` takes no attributes with values


@register_pass(mutates_CFG=True, analysis_only=False)
class _WideLowering(NativeLowering):
    _name = "wide_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return _WideLower


class WideCompiler(CompilerBase):
    """Numba's compiler, with the attribute."""

    def define_pipelines(self) -> list[PassManager]:
        """Numba's own pipeline, one pass replaced."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [(_WideLowering if kind is NativeLowering else kind, text) for kind, text in manager.passes]
        return [manager]
