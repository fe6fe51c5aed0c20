"""The loops of `kernels` on an NVIDIA GPU: under the same names, with the same signatures and the same bits.

Arithmetic is not written again: what a thread does is one element's part of a loop, in the scalar functions that the
CPU's loops are made of (`loop`). numba-cuda and NVIDIA's NVVM compile it, without contraction, which needs no GPU
(`compiling`); CuPy loads and starts it (`launching`). Submodules are imported on first use.
"""

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_"):
        raise AttributeError(name)
    return importlib.import_module(f"{__name__}.{name}")
