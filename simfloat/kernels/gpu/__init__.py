"""The loops of `kernels` on an NVIDIA GPU: with the same names, signatures and bits.

The arithmetic is not written again: a thread computes one element of a loop by the scalar functions of the CPU's loops
(`threads.py`). numba-cuda and NVIDIA's NVVM compile it without contraction, which needs no GPU (`compiling.py`). CuPy
loads and starts it. Submodules are imported on first use.
"""

import importlib
from types import ModuleType

from simfloat.uninterrupted import uninterrupted

#: The GPU module for each family of loops in `kernels`.
MODULES = {
    "bins": "sums",
    "counting": "elementwise",
    "converted": "elementwise",
    "operation_loops": "elementwise",
    "fused_loops": "units",
    "halves": "instructions",
    "matrix_core_loops": "units",
    "pairwise_loops": "sums",
    "processor": "instructions",
    "programs": "programs",
    "rounding_loops": "elementwise",
    "single": "elementwise",
    "stepwise": "sums",
    "tree_loops": "sums",
}


def __getattr__(name: str) -> ModuleType:
    if name not in MODULES:
        raise AttributeError(name)
    with uninterrupted():  # as in `kernels`
        globals()[name] = module = importlib.import_module(f"{__name__}.{MODULES[name]}")
    return module
