"""How the arithmetic is done, compiled.

Submodules are imported on first use (``kernels.rounding_loops.nearest(...)``), because they import Numba: ``import
simfloat`` stays as quick as ``import numpy``.
"""

import importlib
from types import ModuleType

from simfloat.uninterrupted import uninterrupted


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_"):
        raise AttributeError(name)
    # Importing a submodule sets it as an attribute here, so this runs once per submodule. Of Numba that was imported in
    # part Python would find parts that do not know of each other, until the process ends.
    with uninterrupted():
        return importlib.import_module(f"{__name__}.{name}")
