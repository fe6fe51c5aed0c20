"""simfloat: narrow floating-point arithmetic, bit for bit.

A format and a rounding mode define how a value is rounded. `round`, `add` ... `sigmoid` round their result once.
`matmul`, `dot` and `sum` add in the order and with the roundings of an accumulator, as hardware does. Policies,
tensors, layers and optimizers train models with every operation rounded. A Recorder counts rounding events.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from simfloat import moved_names
from simfloat.common import __version__
from simfloat.environment import UsualEnvironmentFinder

sys.meta_path.insert(0, UsualEnvironmentFinder)  # the class itself is the finder
moved_names.install()

if TYPE_CHECKING:
    # "as" exports a name to type checkers.
    from simfloat import linalg as linalg
    from simfloat import nn as nn
    from simfloat import optim as optim
    from simfloat import plots as plots
    from simfloat import studies as studies
    from simfloat import telemetry as telemetry
    from simfloat import torch as torch
    from simfloat import train as train
    from simfloat.analysis import theory as theory
    from simfloat.analysis.attribution import *
    from simfloat.analysis.cost import *
    from simfloat.analysis.diagnosis import *
    from simfloat.analysis.reveal import *
    from simfloat.arithmetic import *
    from simfloat.arithmetic.typed_functions import *
    from simfloat.arrays import *
    from simfloat.autodiff import *
    from simfloat.formats import *
    from simfloat.formats.catalog import *
    from simfloat.policy import *
    from simfloat.simulation import *
    from simfloat.studies import search as search
    from simfloat.sums import *
    from simfloat.telemetry import *
    from simfloat.train.states import *
else:
    #: The modules whose public names are names of the package. Each imports only from those before it.
    _OURS = (
        "formats",
        "arithmetic",
        "sums",
        "arrays",
        "policy",
        "simulation",
        "autodiff",
        "telemetry",
        "train.states",
        "analysis.attribution",
        "analysis.cost",
        "analysis.diagnosis",
        "analysis.reveal",
    )
    #: Names of a subpackage that needs the packages of an extra. It is imported when one of them is used.
    _OF_EXTRAS = {"search": "studies"}
    _MODULES = {name: name for name in ("linalg", "nn", "optim", "plots", "studies", "telemetry", "torch", "train")}
    _MODULES["theory"] = "analysis.theory"

    def __getattr__(name):
        """Return a name of the package, and import its module at the first use."""
        value = globals()[name] = _import_name(name)
        return value

    def _import_name(name):
        if name == "__all__":
            return sorted(
                {
                    *_MODULES,
                    *_OF_EXTRAS,
                    *(public for room in _OURS for public in import_module(f"simfloat.{room}").__all__),
                }
            )
        if name in _MODULES:
            return import_module(f"simfloat.{_MODULES[name]}")
        if name in _OF_EXTRAS:
            return getattr(import_module(f"simfloat.{_OF_EXTRAS[name]}"), name)
        if not name.startswith("_"):
            for room in _OURS:
                module = import_module(f"simfloat.{room}")
                if name in module.__all__:
                    return getattr(module, name)
        # Given the name and the module, Python adds the nearest name to the message.
        raise AttributeError(f"module 'simfloat' has no attribute {name!r}", name=name, obj=sys.modules[__name__])

    def __dir__():
        return sorted({*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))})

    class _Package(ModuleType):
        """The package; `vars` of it has every name, so ``eval(repr(policy), vars(simfloat))`` works."""

        @property
        def __dict__(self):
            for room in _OURS:
                module = import_module(f"simfloat.{room}")
                for name in module.__all__:
                    globals().setdefault(name, getattr(module, name))
            return globals()

        def __reduce__(self):  # functions that use the package can be pickled
            return import_module, (self.__name__,)

    sys.modules[__name__].__class__ = _Package
