"""A user's function for another process.

A function of a module is found there by its name; one of a notebook, of the program itself or inside of another
function travels as its code, by cloudpickle.
"""

from __future__ import annotations

import base64
import importlib
import pickle
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from simfloat.studies.state_digest import function_digest
from simfloat.studies.workspace import code_digest, import_folder


def home_module(function: Any) -> str:
    """The module by whose sources a function's results are kept; simfloat alone where it has no file of its own."""
    function = _innermost(function)
    name = getattr(function, "__module__", None) or type(function).__module__
    module = sys.modules.get(name)
    return name if name != "__main__" and getattr(module, "__file__", None) else "simfloat"


def function_reference(function: Callable[..., Any]) -> dict[str, str]:
    """Describe a function so that another process can find it. Raises ValueError for one that cannot be sent."""
    name = getattr(function, "__qualname__", "")
    home = home_module(function)
    if home != "simfloat" and getattr(sys.modules[home], name, None) is function and find_spec(home):
        reference = {
            "module": home,
            "name": name,
            "place": str(import_folder(home)),
            "versions": code_digest("simfloat"),
        }
        return {**reference, "digest": function_digest(function)}
    import cloudpickle

    try:
        return {"code": base64.b64encode(cloudpickle.dumps(function)).decode("ascii")}
    except (pickle.PicklingError, TypeError) as error:
        raise ValueError(f"{name or function!r} cannot be sent to another process: {error}") from None


def resolve_function(reference: dict[str, str]) -> Callable[..., Any]:
    """The function that was meant. Raises RuntimeError where another process has other code or another state of it."""
    if "code" in reference:
        return pickle.loads(base64.b64decode(reference["code"]))
    return _import_function(*(reference[key] for key in ("module", "name", "place", "versions", "digest")))


@cache
def _import_function(module: str, name: str, place: str, versions: str, digest: str) -> Callable[..., Any]:
    """A function of a module, which is looked at once: it may change its module while it runs."""
    if place not in sys.path:
        sys.path.insert(0, place)
    if code_digest("simfloat") != versions:
        raise RuntimeError("simfloat has other sources, or other versions of packages, on this worker.")
    function = getattr(importlib.import_module(module), name)
    if function_digest(function) != digest:
        raise RuntimeError(
            f"{module}.{name} computes something else in another process, which imports {module} anew: sources were "
            "changed after they were imported here, or a name that it uses was given another value. Reload the module, "
            "or pass the value as an argument."
        )
    return function


def function_name(function: Any) -> str:
    """Return the name of the function."""
    return getattr(_innermost(function), "__name__", type(function).__name__)


def _innermost(function: Any) -> Any:
    return _innermost(function.func) if isinstance(function, partial) else function
