"""Compiled arithmetic: scalar functions, and loops over arrays that call them.

Submodules are imported on first use (``kernels.rounding.arrays.nearest(...)``), because they import Numba: ``import
simfloat`` stays as fast as ``import numpy``.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType

from simfloat.uninterrupted import uninterrupted

#: The module of each family of loops on the CPU. Families have the names of `arithmetic.machines.Loops`.
FAMILIES = {
    "bins": "sums.exact",
    "converted": "elementwise.float32",
    "counting": "rounding.arrays",
    "encoding": "rounding.codes",
    "flag_loops": "elementwise.flags",
    "fused_loops": "units.aligned",
    "halves": "elementwise.half",
    "integer_sums": "units.integers",
    "lane_orders": "lanes.orders",
    "long_orders": "sums.long_orders",
    "lookups": "elementwise.half",
    "matrix_core_loops": "units.matrix_cores",
    "operation_loops": "elementwise.loops",
    "pairwise_loops": "sums.trees",
    "processor": "compile.processor",
    "random": "rounding.random",
    "rounded_tiles": "lanes.tiles",
    "rounding_loops": "rounding.arrays",
    "running_sums": "sums.rows",
    "single": "elementwise.float32",
    "stepwise": "sums.rows",
    "tree_loops": "sums.trees",
}


def import_lazily(package: str) -> Callable[[str], ModuleType]:
    """Return a package's ``__getattr__``, which imports a submodule, or the module of a family of loops.

    Python calls it once for each name. Ctrl-C waits during the import: if it interrupted the import of Numba, Python
    would later find an incomplete set of modules, until the process ends.
    """

    def __getattr__(name: str) -> ModuleType:
        if name.startswith("_"):
            raise AttributeError(name)
        path = FAMILIES.get(name, name) if package == __name__ else name
        with uninterrupted():
            module = importlib.import_module(f"{package}.{path}")
        setattr(sys.modules[package], name, module)  # a family is not a submodule, so Python would not store it
        return module

    return __getattr__


__getattr__ = import_lazily(__name__)
