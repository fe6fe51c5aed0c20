"""The loops of `kernels` on an NVIDIA GPU: under the same names, with the same signatures and the same bits.

Arithmetic is not written again: what a thread does is one element's part of a loop, in the scalar functions that the
CPU's loops are made of (`thread_loops`). numba-cuda and NVIDIA's NVVM compile it, without contraction, which needs no
GPU (`compiling`); CuPy loads and starts it. Submodules are imported on first use.
"""

import importlib
from types import ModuleType

from simfloat.uninterrupted import uninterrupted

#: The modules here by the name of that in `kernels` whose loops they have.
MODULES = {
    "bins": "thread_bins",
    "counting": "thread_counting",
    "converted": "thread_elementwise",
    "elementwise": "thread_elementwise",
    "fused_loops": "thread_fused",
    "halves": "instructions",
    "matrix_core_loops": "thread_matrix_cores",
    "pairwise_loops": "thread_pairwise",
    "processor": "instructions",
    "rounding_loops": "thread_rounding",
    "sequential": "thread_sequential",
    "single": "thread_elementwise",
    "stepwise": "thread_stepwise",
    "tree_loops": "thread_tree",
}


def __getattr__(name: str) -> ModuleType:
    if name not in MODULES:
        raise AttributeError(name)
    with uninterrupted():  # as in `kernels`
        globals()[name] = module = importlib.import_module(f"{__name__}.{MODULES[name]}")
    return module
