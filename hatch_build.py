"""Compiled kernels in a wheel, where a packager asks for them.

    simfloat warmup --into build/kernels                     # for this processor's level
    simfloat warmup --into build/kernels --level x86-64-v3   # and for others, as one likes
    SIMFLOAT_KERNELS=$PWD/build/kernels python -m build

The wheel is then one for this Python and this system, as its name says. The kernels are used where the versions of
Python and NumPy (by two numbers), those of Numba and llvmlite, and the processor's level are what they were compiled
with and for. Elsewhere they lie there unused, and kernels are compiled as ever. Without the variable a wheel has no
kernels, and fits every system.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledKernels(BuildHookInterface):
    """Puts the kernels of `SIMFLOAT_KERNELS` where `simfloat.kernels.compile.cache` looks for them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add what there is to what is built; ValueError where there is nothing."""
        if not (folder := os.environ.get("SIMFLOAT_KERNELS")):
            return
        kernels = sorted(Path(folder).absolute().glob("simfloat/*.kernel"))
        if not kernels:
            raise ValueError(
                f"SIMFLOAT_KERNELS is {folder}, which has no compiled kernels. Make some by `simfloat warmup --into "
                f"{folder}`, and give the path from the root."
            )
        build_data["force_include"].update({str(path): f"simfloat/compiled/{path.name}" for path in kernels})
        build_data.update(pure_python=False, infer_tag=True)
