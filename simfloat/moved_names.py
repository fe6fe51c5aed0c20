"""Find modules under their names in the last version, for its pickles and for programs that import them.

`moved_names.txt` has a line for each module that has another name now, and for each renamed object in it:

    simfloat.accumulate.bounds  simfloat.sums.bounds
    simfloat.accumulate.bounds:Bounds  OperandBounds

The file is read when a module of the package is imported that does not exist.
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
    """Return the new name of each module, and of each module:name, of the last version."""
    text = (Path(__file__).parent / "moved_names.txt").read_text(encoding="utf-8")
    return dict(line.split() for line in text.splitlines())


class MovedModule(ModuleType):
    """A module under its old name; its attributes come from the module that contains them now."""

    def __getattr__(self, name: str) -> Any:
        # Python needs __path__ to import a submodule of an old package; the finder finds the submodule by its name.
        if name == "__path__":
            return []
        now = moved_names()
        return getattr(import_module(now[self.__name__]), now.get(f"{self.__name__}:{name}", name))


class PackageOfMovedModules(ModuleType):
    """A package from which moved modules were imported; only its present names are attributes."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Python sets each imported module as an attribute of its package, which could hide a public name such as
        # `simfloat.train.manifest`.
        if not isinstance(value, MovedModule):
            super().__setattr__(name, value)


class MovedModules(Loader):
    """The finder of modules under their old names; Python uses it last."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the specification of a module that moved, None for any other module."""
        if name.startswith("simfloat.") and name in moved_names():
            return ModuleSpec(name, cls())
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module whose attributes are those of another one."""
        return MovedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Protect the names of the package; the new module is imported when an attribute is read."""
        package = sys.modules[module.__name__.rpartition(".")[0]]
        if type(package) is ModuleType:
            package.__class__ = PackageOfMovedModules


def install() -> None:
    """Add the finder after all others."""
    sys.meta_path.append(MovedModules)
