"""Names of modules of the last version: its pickles, and programs that import them, find what these modules held.

`moved_names.txt` has a line for each module that has another name now, and for each of its names that changed:

    simfloat.accumulate.bounds  simfloat.sums.bounds
    simfloat.accumulate.bounds:Bounds  OperandBounds

The file is read when a module of the package is asked for that does not exist.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


@cache
def moved_names() -> dict[str, str]:
    """Module or module:name of the last version, and its name now."""
    text = (Path(__file__).parent / "moved_names.txt").read_text(encoding="utf-8")
    return dict(line.split() for line in text.splitlines())


class MovedModule(ModuleType):
    """A module under its old name: it has the names of the module that holds its content now."""

    def __getattr__(self, name: str) -> Any:
        # Python looks for __path__ in a package whose submodule is imported; those of old packages are found by name.
        if name == "__path__":
            return []
        now = moved_names()
        return getattr(import_module(now[self.__name__]), now.get(f"{self.__name__}:{name}", name))


class PackageOfMovedModules(ModuleType):
    """A package that moved modules were imported from: it offers its own names alone."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Python puts each imported module into its package, where a public name may stand: `simfloat.train.manifest`.
        if not isinstance(value, MovedModule):
            super().__setattr__(name, value)


class MovedModules(Loader):
    """The last finder that Python asks: it knows the old names of modules."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The specification of a module that moved, None for any other."""
        if name.startswith("simfloat.") and name in moved_names():
            return ModuleSpec(name, cls())
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module that asks another one."""
        return MovedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Keep the names of the package; the module that is asked is imported when a name is."""
        package = sys.modules[module.__name__.rpartition(".")[0]]
        if type(package) is ModuleType:
            package.__class__ = PackageOfMovedModules


def install() -> None:
    """Put the finder behind all others."""
    sys.meta_path.append(MovedModules)
