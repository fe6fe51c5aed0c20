"""A user's function for another process, and a digest of what it computes.

A function of a module is found there by its name; one of a notebook, of the program itself or inside of another
function travels as its code, by cloudpickle.
"""

from __future__ import annotations

import base64
import dis
import hashlib
import importlib
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from simfloat.studies.workspace import code_digest, place_of
from simfloat.train.feed import digest

#: What may be met again inside of itself, or is changed from outside, and is written out once.
REMEMBERED = (FunctionType, type, list, dict, set)

#: Methods that change a list, dictionary or set: of what a function calls them on, the content says nothing of it.
CHANGING = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear"}
CALLED = ("LOAD_METHOD", "LOAD_ATTR")  # until Python 3.11, and since

#: Where something lies in memory, in its repr.
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def home_of(function: Any) -> str:
    """The module by whose sources a function's results are kept; simfloat alone where it has no file of its own."""
    function = _innermost(function)
    name = getattr(function, "__module__", None) or type(function).__module__
    module = sys.modules.get(name)
    return name if name != "__main__" and getattr(module, "__file__", None) else "simfloat"


def reference_to(function: Callable[..., Any]) -> dict[str, str]:
    """What another process needs to find the function. Raises ValueError for one that cannot travel."""
    name = getattr(function, "__qualname__", "")
    home = home_of(function)
    if home != "simfloat" and getattr(sys.modules[home], name, None) is function and find_spec(home):
        return {"module": home, "name": name, "place": str(place_of(home)), "digest": code_digest(home)}
    import cloudpickle

    try:
        return {"code": base64.b64encode(cloudpickle.dumps(function)).decode("ascii")}
    except (pickle.PicklingError, TypeError) as error:
        raise ValueError(f"{name or function!r} cannot be sent to another process: {error}") from None


def resolved(reference: dict[str, str]) -> Callable[..., Any]:
    """The function that was meant. Raises RuntimeError where its module has other sources here."""
    if "code" in reference:
        return pickle.loads(base64.b64decode(reference["code"]))
    if reference["place"] not in sys.path:
        sys.path.insert(0, reference["place"])
    if code_digest(reference["module"]) != reference["digest"]:
        raise RuntimeError(f"{reference['module']} has other sources, or other versions of packages, on this worker.")
    return getattr(importlib.import_module(reference["module"]), reference["name"])


def name_of(function: Any) -> str:
    """What the function is called."""
    return getattr(_innermost(function), "__name__", type(function).__name__)


def function_digest(function: Any) -> str:
    """A digest of the function's code and of all that it uses from outside, lists and dictionaries with their contents.

    What the function itself appends to or fills is no part of it, nor is what objects without a repr of their own hold;
    functions and classes that stand in a module are there by their names.
    """
    content = hashlib.sha256()
    for piece in _pieces(function, {}):
        content.update(piece.encode() + b"\0")
    return content.hexdigest()


def _innermost(function: Any) -> Any:
    return _innermost(function.func) if isinstance(function, partial) else function


def _pieces(value: Any, seen: dict[int, int]) -> Iterator[str]:
    """The texts that stand for a value, without those that hang on where it lies in memory."""
    if id(value) in seen:
        yield f"as {seen[id(value)]}"
        return
    if isinstance(value, REMEMBERED):
        seen[id(value)] = len(seen)
    if isinstance(value, tuple | list | dict | set | frozenset):
        pieces = ["".join(_pieces(item, seen)) for item in (value.items() if isinstance(value, dict) else value)]
        yield f"{type(value).__name__}({','.join(sorted(pieces) if isinstance(value, set | frozenset) else pieces)})"
    elif isinstance(value, partial):
        yield from _pieces((value.func, value.args, value.keywords), seen)
    elif isinstance(value, CodeType):
        yield value.co_code.hex() + " ".join(value.co_names)
        yield from _pieces(tuple(each for each in value.co_consts if each != value.co_name), seen)
    elif isinstance(value, FunctionType):
        yield f"{value.__module__}.{value.__qualname__}"
        if _stands_in_no_module(value) or value.__closure__:
            yield from _pieces_of_function(value, seen)
    elif isinstance(value, MethodType):
        yield from _pieces((value.__func__, value.__self__), seen)
    elif isinstance(value, staticmethod | classmethod):
        yield from _pieces(value.__func__, seen)
    elif isinstance(value, property):
        yield from _pieces((value.fget, value.fset), seen)
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}"
        if _stands_in_no_module(value):
            yield from _pieces_of_class(value, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif hasattr(value, "__wrapped__"):  # functools.cache, numba.njit
        yield from _pieces(value.__wrapped__, seen)
    else:
        yield from _pieces_of_object(value, seen)


def _pieces_of_object(value: Any, seen: dict[int, int]) -> Iterator[str]:
    kind = type(value)
    if hasattr(value, "__array__"):
        yield digest(value)  # a repr has not all numbers of a large array, but its mask or format
    if is_dataclass(value):
        yield kind.__qualname__
        yield from _pieces(tuple((field.name, getattr(value, field.name)) for field in fields(value)), seen)
    elif kind.__repr__ is not object.__repr__:
        yield ADDRESS.sub("", repr(value))
    if _stands_in_no_module(kind):
        yield from _pieces(kind, seen)


def _stands_in_no_module(value: Any) -> bool:
    """Whether a function or class is of a notebook, the program itself, or made inside of a function."""
    return value.__module__ == "__main__" or "<" in value.__qualname__


def _pieces_of_class(kind: type, seen: dict[int, int]) -> Iterator[str]:
    yield from _pieces(kind.__bases__, seen)
    for name, item in vars(kind).items():
        if not name.startswith("__") or isinstance(item, FunctionType):
            yield name
            yield from _pieces(item, seen)


def _pieces_of_function(function: FunctionType, seen: dict[int, int]) -> Iterator[str]:
    code = function.__code__
    yield from _pieces(code, seen)
    yield from _pieces((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()), seen)
    steps = [step for each in _codes(code) for step in dis.get_instructions(each)]
    changed = {step.argval for step in steps if step.opname in ("STORE_DEREF", "STORE_GLOBAL")}
    changed |= {step.argval for step, then in pairwise(steps) if then.opname in CALLED and then.argval in CHANGING}
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    for name in code.co_freevars:
        if name not in changed:
            try:
                yield from _pieces(cells[name].cell_contents, seen)
            except ValueError:  # it has no value yet
                continue
    for name in dict.fromkeys(name for each in _codes(code) for name in each.co_names):
        if name in function.__globals__ and name not in changed:
            yield from _pieces(function.__globals__[name], seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of all functions inside of it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)
