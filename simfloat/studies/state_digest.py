"""A digest of all that a function computes with: its code, and the state of everything that it reaches.

Objects are their state, as pickle takes it; functions and classes are their code with the names that it uses, and with
what these names stand for now. What is of an installed package is known by its name and the package's version. Nothing
depends on addresses, on hash seeds, or on the order of a set. What cannot be read is refused by name: kept results must
never be those of another state.
"""

from __future__ import annotations

import builtins
import copyreg
import hashlib
import importlib
import logging
import marshal
import os
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_paths
from threading import Lock
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from simfloat.arithmetic.machines import is_on_gpu, on_cpu
from simfloat.autodiff.guards import Loan
from simfloat.autodiff.variable import Variable
from simfloat.studies.used_names import Import, Uses, uses_of
from simfloat.train.tensor_trees import array_of, is_tensor

#: Values that are written as they are, to the last bit of a float.
ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...))

#: Version of marshal's layout without marks for values that are met again, which hang on how a program was compiled.
LAYOUT = 2

#: What has one meaning wherever it is, and may be the same object or an equal one.
UNMARKED = (*ATOMS, tuple, frozenset, CodeType, np.generic, np.dtype)

#: Methods of types that are compiled, which belong to a class by name.
OF_A_CLASS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip

#: What stands in a class and says nothing of what it computes, or follows from the rest.
NOT_OF_A_CLASS = {
    "__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__firstlineno__", "__static_attributes__",
    "__slotnames__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__",
    "__conditional_annotations__", "__abstractmethods__", "_abc_impl", "__orig_bases__", "__parameters__",
    "__protocol_attrs__", "__non_callable_proto_members__", "__classdictcell__",
}  # fmt: skip

#: What tensors note of their use, which changes no number.
BOOKKEEPING = {"node", "moved", "made_with", "_is_lent", "_rounded", "_owners", "_trace"}

#: Of functools.cache, and of threading.Lock.
CACHED, LOCK = type(cache(len)), type(Lock())

#: A class that a program or a package has made while it ran; others are compiled, and found by their names.
MADE = 1 << 9

#: What reaches values by texts, which may be any.
DYNAMIC = {id(each) for each in (eval, exec, globals, __import__, importlib.import_module, sys.modules)}

#: Where Python and installed packages lie.
INSTALLED = tuple({get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
PACKAGES = ("site-packages", "dist-packages")
OURS = "simfloat"


def function_digest(function: Any) -> str:
    """A digest of the function's code and of the state of all that it reaches: another state has another one.

    Lists, dictionaries and sets that the function itself only appends to or fills, and numbers that it only counts up,
    are no part of it. Raises ValueError, by name, for what cannot be read.
    """
    digest = StateDigest(getattr(function, "__name__", type(function).__name__))
    try:
        digest.add(function)
        digest.finish()
    except RecursionError:
        raise ValueError(
            f"{digest.where()} is nested too deeply for a digest, which tells results in a folder apart. Build it "
            "inside of the function, or give no folder."
        ) from None
    return digest.content.hexdigest()


class StateDigest:
    """A walk through all that a value reaches, which writes it into a digest.

    What is met again, or contains itself, is written once. The names that functions and classes use come after the
    value itself, in the order in which these were met, so that a long chain of calls is no deep one.
    """

    def __init__(self, name: str, seen: Mapping[int, int] | None = None, trail: Iterable[str] = ()) -> None:
        self.content = hashlib.sha256()
        self._name, self._trail = name, list(trail)
        self._seen = dict(seen or {})
        self._kept: list[Any] = []  # what was met stays alive: an id stands for one object only
        self._waiting: deque[tuple[Callable[[], None], list[str]]] = deque()

    def where(self) -> str:
        """What is being read, by names from the function on."""
        return f"{self._name} uses {''.join(self._trail).lstrip('.')}, which" if self._trail else self._name

    def finish(self) -> None:
        """Write what waits, and what is met by that."""
        while self._waiting:
            write, self._trail = self._waiting.popleft()
            write()

    def add(self, value: Any) -> None:
        """Write a value."""
        kind = type(value)
        if kind in ATOMS:
            return self._say(kind.__name__, marshal.dumps(value, LAYOUT))
        if id(value) in self._seen:
            return self._say(f"as {self._seen[id(value)]}")
        if not isinstance(value, UNMARKED):
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
        if kind in PLAIN:
            return PLAIN[kind](self, value)
        for kinds, write in WRITERS:
            if isinstance(value, kinds):
                return write(self, value)
        if is_tensor(value):
            return self._tensor(value)
        if is_on_gpu(value):
            return self._array(on_cpu(value))
        return self._object(value)

    def _say(self, *pieces: str | bytes) -> None:
        for piece in pieces:
            part = piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece
            self.content.update(b"%d:" % len(part) + part)

    @contextmanager
    def _at(self, step: str) -> Iterator[None]:
        self._trail.append(step)
        yield
        self._trail.pop()

    def _later(self, write: Callable[[], None]) -> None:
        self._waiting.append((write, [*self._trail]))

    def _refuse(self, what: str, instead: str = "make it inside of the function, of the function's arguments") -> None:
        raise ValueError(
            f"{self.where()} is {what}: what it holds cannot be read, so results in a folder could be those of another "
            f"state. Instead {instead}; or give no folder."
        )

    # Containers.

    def _sequence(self, value: list[Any] | tuple[Any, ...]) -> None:
        self._say(type(value).__name__, str(len(value)))
        if set(map(type, value)) <= {*ATOMS}:
            return self._say(marshal.dumps(value, LAYOUT))
        for number, item in enumerate(value):
            with self._at(f"[{number}]"):
                self.add(item)

    def _dictionary(self, value: Mapping[Any, Any]) -> None:
        self._say(type(value).__name__, str(len(value)))
        if {*map(type, value), *map(type, value.values())} <= {*ATOMS}:
            return self._say(marshal.dumps([*value, *value.values()], LAYOUT))
        for key, item in list(value.items()):
            with self._at(f"[{key!r}]" if type(key) in ATOMS else "[...]"):
                self.add(key)
                self.add(item)

    def _named(self, values: Mapping[str, Any], prefix: str = ".") -> None:
        """Values by name, whose order tells nothing."""
        self._say("named", str(len(values)))
        for name in sorted(values, key=str):
            with self._at(f"{prefix}{name}"):
                self._say(str(name))
                self.add(values[name])

    def _set(self, value: set[Any] | frozenset[Any]) -> None:
        """A set, each item by a digest of its own: no order decides what was met before."""
        are_atoms = set(map(type, value)) <= {*ATOMS}
        items = [marshal.dumps(item, LAYOUT) if are_atoms else self._apart(item) for item in value]
        self._say(type(value).__name__, str(are_atoms), str(len(items)), *sorted(items))
        if type(value) not in (set, frozenset):
            self.add(type(value))
            self._named(getattr(value, "__dict__", {}))

    def _apart(self, item: Any) -> bytes:
        digest = StateDigest(self._name, self._seen, [*self._trail, "{...}"])
        digest.add(item)
        digest.finish()
        self._kept += digest._kept
        return digest.content.digest()

    def _bytes(self, value: bytearray | memoryview) -> None:
        view = memoryview(value)
        self._say(type(value).__name__, view.format, str(view.shape), view.tobytes())

    # Arrays and tensors.

    def _array(self, value: Any) -> None:
        array = np.asarray(value)
        self.add(type(value))
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        self._say("array", array.dtype.str, str(array.shape), order)
        if array.dtype.names:
            for name in array.dtype.names:
                self._say(name)
                self._array(array[name])
        elif array.dtype.hasobject:
            self._sequence(array.ravel().tolist())
        else:
            self._say(str(array.nbytes))
            if array.nbytes:
                flat = np.ascontiguousarray(array.T if order == "F" else array).reshape(-1)
                self.content.update(flat.view(np.uint8).data)
        if isinstance(value, np.ma.MaskedArray):
            self.add(np.ma.getmaskarray(value))
            self.add(value.fill_value)
        elif not isinstance(value, np.memmap):
            self._named(getattr(value, "__dict__", {}))

    def _number(self, value: np.generic) -> None:
        self._array(np.asarray(value)) if value.dtype.names is None else self.add(value.tolist())
        self._say(type(value).__name__)

    def _tensor(self, value: Any) -> None:
        """A tensor of PyTorch: numbers, gradient, and what is set on it."""
        if value.grad_fn is not None:
            self._refuse("a tensor that an operation made, with its history", "use x.detach(), or make it inside")
        self.add(type(value))
        try:
            array, name = array_of(value, self.where())
        except ValueError:
            self._reduced(value)
        else:
            self._say("tensor", name, str(value.requires_grad), str(value.device))
            self._array(array)
        self.add(value.grad)
        self._named(vars(value))

    def _variable(self, value: Variable) -> None:
        """A tensor or parameter of this package."""
        if value.node is not None:
            self._refuse("a tensor that an operation made, with its history", "use x.detach(), or make it inside")
        dropped = BOOKKEEPING | ({"format"} if value.is_weight else set())
        self.add(type(value))
        self._named({name: item for name, item in vars(value).items() if name not in dropped})

    # What is found by name.

    def _module(self, value: ModuleType) -> None:
        """A module that is used as a value: all that is in it, unless it is an installed one."""
        self._say("module", value.__name__)
        if not self._of_installed(value.__name__):
            ours = {name: item for name, item in vars(value).items() if not name.startswith("__")}
            self._later(partial(self._named, ours))

    def _of_installed(self, module: Any) -> bool:
        """Write the package and its version if it is installed, and nothing if the module is of the user's."""
        found = package_of(module)
        if found:
            self._say(found)
        return bool(found)

    def _is_found_by_name(self, value: Any) -> bool:
        """Whether an installed module has this very object by its name, which then stands for it."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        found: Any = sys.modules.get(module) if isinstance(module, str) else None
        for step in str(name).split("."):
            found = getattr(found, step, None)
        if found is not value or not self._of_installed(module):
            return False
        self._say(str(module), name)
        return True

    def _builtin(self, value: Any) -> None:
        """A function that is compiled, or the bound method of a compiled object."""
        owner = value.__self__
        self._say("builtin", value.__name__)
        if self._is_found_by_name(value) or isinstance(owner, ModuleType) or owner is np.random.mtrand._rand:
            return self._say(str(value.__module__))
        self.add(owner)

    def _of_a_class(self, value: Any) -> None:
        self._say(type(value).__name__, value.__name__)
        self.add(value.__objclass__)

    def _method(self, value: MethodType) -> None:
        if getattr(sys.modules.get(getattr(value, "__module__", "")), value.__name__, None) is value and (
            self._of_installed(value.__module__)  # such as random.random, of a generator that all share
        ):
            return self._say(value.__module__, value.__name__)
        self._say("method", value.__name__)
        if isinstance(value.__func__, FunctionType):  # else a compiled one, of its object's type
            self.add(value.__func__)
        with self._at(".__self__"):
            self.add(value.__self__)

    def _wrapped_method(self, value: staticmethod[..., Any] | classmethod[Any, ..., Any]) -> None:
        self._say(type(value).__name__)
        self.add(value.__func__)

    def _property(self, value: property) -> None:
        self._say(type(value).__name__)
        for each in (value.fget, value.fset, value.fdel):
            self.add(each)

    def _weak_reference(self, value: weakref.ref[Any]) -> None:
        self._say("reference")
        self.add(value())

    def _cell(self, value: types.CellType) -> None:
        try:
            content = value.cell_contents
        except ValueError:
            return self._say("empty")  # it has no value yet
        self.add(content)

    def _logger(self, value: logging.Logger) -> None:
        self._say("logger", value.name)  # what it writes changes no result

    def _nothing(self, value: Any) -> None:
        """What guards numbers against writing, and is none itself."""

    # Functions and classes.

    def _code(self, value: CodeType) -> None:
        """What is carried out, and with which arguments; not where it stands, nor how local names are called."""
        arguments = value.co_argcount + value.co_kwonlyargcount + sum(bool(value.co_flags & flag) for flag in (4, 8))
        counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags
        self._say("code", value.co_code, value.co_exceptiontable, str(counts))
        for names in (value.co_varnames[:arguments], value.co_names, value.co_freevars, value.co_cellvars):
            self._say(str(len(names)), *names)
        for constant in value.co_consts:
            self.add(constant)

    def _function(self, value: FunctionType) -> None:
        self._say("function")
        if self._is_found_by_name(value):
            return
        if hasattr(value, "registry") and hasattr(value, "_clear_cache"):  # of functools.singledispatch
            self._dictionary(value.registry)
            return
        self._say(value.__name__)
        self.add(value.__code__)
        with self._at(f"{value.__name__}'s defaults" if self._trail else ".defaults"):
            self.add(value.__defaults__)
            self._named(value.__kwdefaults__ or {})
        self._named(vars(value))
        self._later(partial(self._used_by, value))

    def _used_by(self, function: FunctionType) -> None:
        """What the names stand for that a function takes from outside."""
        code, uses = function.__code__, uses_of(function.__code__)
        self._say("used by", function.__name__)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # it has no value yet
                self._say(name, "empty")
                continue
            if not uses.only_writes(name, content):
                self._chains(name, content, uses)
        if self._of_installed(function.__globals__.get("__name__")):
            return
        for name in uses.of_globals:
            if name in function.__globals__:
                if not uses.only_writes(name, function.__globals__[name]):
                    self._chains(name, function.__globals__[name], uses)
            elif hasattr(builtins, name):
                self._chains(name, getattr(builtins, name), uses)
            else:
                self._say(name, "missing")
        for found in uses.imports:
            self._imported(found, function.__globals__)

    def _chains(self, name: str, value: Any, uses: Uses) -> None:
        """What a name stands for; of a module only what the function takes from it."""
        self._say(name)
        with self._at(f".{name}"):
            for chain in sorted(uses.chains(name)) if isinstance(value, ModuleType) else [()]:
                self._attribute(value, chain)

    def _attribute(self, value: Any, chain: tuple[str, ...]) -> None:
        """What a chain of attributes leads to, from a module as far as there are modules."""
        self._check_dynamic(value)
        if not isinstance(value, ModuleType) or not chain:
            return self.add(value)
        step, *rest = chain
        self._say("of", value.__name__, step)
        if self._of_installed(value.__name__):
            self._say(*chain)
            for number, name in enumerate(chain, 1):
                value = getattr(value, name, None)
                with self._at("".join(f".{name}" for name in chain[:number])):
                    self._check_dynamic(value)
            return None
        with self._at(f".{step}"):
            if hasattr(value, step):
                self._attribute(getattr(value, step), tuple(rest))
            else:
                self._say("missing")

    def _check_dynamic(self, value: Any) -> None:
        if id(value) in DYNAMIC:
            self._refuse("a way to what no name tells", "use the names themselves")

    def _imported(self, found: Import, globals: Mapping[str, Any]) -> None:
        """What a function imports when it runs."""
        name, package = "." * found.level + found.name, globals.get("__package__") or globals.get("__name__")
        self._say("import", name, *found.names)
        try:
            full = importlib.util.resolve_name(name, str(package))
            is_there = full in sys.modules or find_spec(full) is not None
        except (ImportError, ValueError):
            is_there = False
        if not is_there:
            return self._say("missing")
        if self._of_installed(full):
            return
        try:
            module = importlib.import_module(full)
            for each in found.names:
                if not hasattr(module, each) and find_spec(f"{full}.{each}"):
                    importlib.import_module(f"{full}.{each}")
        except Exception as error:
            return self._say("fails", type(error).__name__)
        with self._at(f".{full}"):
            for each in found.names:
                self._attribute(module, (each,))
            if not found.names:
                self.add(module)
                self.add(sys.modules[full.partition(".")[0]])

    def _class(self, value: type) -> None:
        self._say("class")
        if self._is_found_by_name(value):
            return
        if not value.__flags__ & MADE:
            return self._say(value.__module__, value.__qualname__)
        self._say(value.__name__)
        self.add(type(value))
        self.add(value.__bases__)
        self._later(partial(self._class_content, value))

    def _class_content(self, value: type) -> None:
        fields = vars(value).get("__dataclass_fields__", {})
        own = {name: item for name, item in vars(value).items() if name not in NOT_OF_A_CLASS}
        own.pop("__dataclass_fields__", None)
        self._say("content of", value.__name__)
        self._named(own)
        for name, field in fields.items():
            given = {slot: getattr(field, slot, None) for slot in field.__slots__ if slot != "type"}
            self._say(name)
            self._named(given, f".{name}.")

    # Objects.

    def _object(self, value: Any) -> None:
        """An object: its type, and its state as pickle takes it."""
        kind = type(value)
        if kind.__module__.startswith("numba.") and hasattr(value, "py_func"):  # whose pickle holds a number drawn anew
            self._say("compiled")
            self.add(value.py_func)
            return self._named({"options": value.targetoptions, "locals": value.locals})
        if isinstance(value, CACHED):  # what it has kept follows from the function
            self._say("cached")
            return self.add(value.__wrapped__)
        if any(value is stream for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
            return self._say("a stream of the process")
        if value is os.environ:
            return self._say("the environment")
        if isinstance(value, LOCK):
            return self._say("a lock", str(value.locked()))
        if isinstance(value, weakref.WeakKeyDictionary | weakref.WeakValueDictionary):
            return self._dictionary(dict(value))
        self.add(kind)
        self._reduced(value)

    def _reduced(self, value: Any) -> None:
        kind, what = type(value), _described(value)
        reducer = copyreg.dispatch_table.get(kind)
        try:
            reduced = reducer(value) if reducer else value.__reduce_ex__(4)
        except Exception as error:
            instead = "give the path, and open it inside" if hasattr(value, "fileno") else None
            self._refuse(f"{what} ({error})", *([instead] if instead else []))
        if isinstance(reduced, str):
            return self._global(value, reduced)
        make, arguments, state, items, pairs = (*reduced, *[None] * 5)[:5]
        self.add(make)
        with self._at(""):
            self.add(tuple(arguments))
        for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
            if isinstance(part, dict) and all(isinstance(name, str) for name in part):
                self._named(part)
            else:
                self.add(part)
        self._sequence([] if items is None else list(items))
        self._sequence([] if pairs is None else list(pairs))

    def _global(self, value: Any, name: str) -> None:
        """An object that is pickled by its name in a module."""
        own = getattr(value, "__module__", None), type(value).__module__
        for place in [*own, *(str(each).partition(".")[0] for each in own), "scipy.special"]:
            if getattr(sys.modules.get(str(place)), name, None) is value:
                if not self._of_installed(place):
                    self._say(str(place))
                return self._say(name)
        self._refuse(f"{_described(value)} of no module")


def _described(value: Any) -> str:
    """What a value is, for a message."""
    if hasattr(value, "fileno") and hasattr(value, "read"):
        return f"the open file {getattr(value, 'name', '')!r}"
    kind = type(value)
    return f"a {kind.__name__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__name__}"


@cache
def package_of(module: Any) -> str:
    """The package that an installed module is of, with its version; empty for a module of the user's."""
    top = module.partition(".")[0] if isinstance(module, str) else "__main__"
    if top == OURS:
        return top  # results are kept for its sources
    if top == "__main__" or not _is_installed(top):
        return ""
    return top if top in sys.stdlib_module_names else _version(top)


def _is_installed(top: str) -> bool:
    """Whether a package lies among those of Python and the installed ones."""
    module = sys.modules.get(top)
    try:
        spec = getattr(module, "__spec__", None) or find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if getattr(spec, "origin", None) in ("built-in", "frozen"):
        return True
    files = [getattr(module, "__file__", None), getattr(spec, "origin", None)]
    files += list(getattr(spec, "submodule_search_locations", None) or [])
    places = [str(file) for file in files if file]
    return any(set(PACKAGES) & set(Path(place).parts) or place.startswith(INSTALLED) for place in places)


def _version(top: str) -> str:
    """An installed package's version, and its list of files where there is one: two builds may have one version."""
    try:
        found = distribution(top)
    except (PackageNotFoundError, ValueError):
        return f"{top} {getattr(sys.modules.get(top), '__version__', '')}"
    files = hashlib.sha256((found.read_text("RECORD") or "").encode()).hexdigest()
    return f"{top} {found.version} {files}"


#: Containers of these very types; those of subclasses are objects.
PLAIN: dict[type, Callable[[StateDigest, Any], None]] = {
    list: StateDigest._sequence, tuple: StateDigest._sequence, dict: StateDigest._dictionary,
    MappingProxyType: StateDigest._dictionary,
}  # fmt: skip

#: How values of each kind are written, the first that fits.
WRITERS: tuple[tuple[Any, Callable[[StateDigest, Any], None]], ...] = (
    (np.generic, StateDigest._number),
    (np.ndarray, StateDigest._array),
    ((set, frozenset), StateDigest._set),
    ((bytearray, memoryview), StateDigest._bytes),
    (Variable, StateDigest._variable),
    (Loan, StateDigest._nothing),
    (ModuleType, StateDigest._module),
    (FunctionType, StateDigest._function),
    (types.BuiltinFunctionType, StateDigest._builtin),
    (OF_A_CLASS, StateDigest._of_a_class),
    (MethodType, StateDigest._method),
    ((staticmethod, classmethod), StateDigest._wrapped_method),
    (property, StateDigest._property),
    (CodeType, StateDigest._code),
    (type, StateDigest._class),
    (weakref.ref, StateDigest._weak_reference),
    (types.CellType, StateDigest._cell),
    (logging.Logger, StateDigest._logger),
)
