"""A digest of code: of functions and classes, and of the objects that their names refer to.

The bytecode of a function contains the names that it takes from outside, and their use. An object of an installed
package is represented by its name and the version of the package.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import importlib
import marshal
import sys
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_paths
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

#: Instructions that load a name from outside the function, and instructions that store one.
GLOBAL_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
CELL_LOADS = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
STORES = {"STORE_GLOBAL", "STORE_DEREF"}

#: Instructions that load an attribute or a method; LOAD_METHOD exists until Python 3.11.
ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}

#: Instructions that load one local value or constant.
SIMPLE_LOADS = {"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"}

#: Instructions without meaning for the analysis.
IGNORED = {"EXTENDED_ARG", "CACHE", "NOP", "RESUME", "PRECALL", "PUSH_NULL", "NOT_TAKEN"}

#: Methods that change a container and return nothing about it.
WRITES: dict[Any, set[str]] = {
    list: {"append", "extend", "insert", "clear"},
    deque: {"append", "appendleft", "extend", "extendleft", "clear"},
    set: {"add", "update", "discard", "clear"},
    dict: {"update", "clear"},
}
#: Classes of dictionaries.
DICTIONARIES = (dict, defaultdict, OrderedDict, Counter)

#: Marks of uses that only write: an item is set; a number is incremented.
ITEM, COUNT = "[]", "+="


class Import(NamedTuple):
    """A module that a function imports when it runs, and the imported names; none for the module itself."""

    name: str
    level: int
    names: tuple[str, ...]


class NameUses:
    """The names that a function and its inner functions load, and the uses of each name."""

    def __init__(self, codes: Iterator[CodeType]) -> None:
        self.global_names: dict[str, None] = {}
        self.imports: list[Import] = []
        self._uses: dict[str, set[tuple[str, ...]]] = {}
        for code in codes:
            self._read_code(code)

    def chains(self, name: str) -> set[tuple[str, ...]]:
        """Return the chains of attributes that are taken from a name; an empty chain if the name itself is used."""
        return {() if chain in ((ITEM,), (COUNT,)) else chain for chain in self._uses.get(name, {()})}

    def only_writes(self, name: str, value: Any) -> bool:
        """True if a container is only written to, or a number only incremented, so that no result depends on it."""
        kind, uses = type(value), self._uses.get(name, set())
        allowed: set[tuple[str, ...]] = {(each,) for each in WRITES.get(dict if kind in DICTIONARIES else kind, ())}
        if kind in DICTIONARIES:
            allowed.add((ITEM,))
        if kind in (int, float):
            allowed.add((COUNT,))
        return uses <= allowed and name != "__class__"  # super() reads __class__ without a load

    def _read_code(self, code: CodeType) -> None:
        steps = [step for step in dis.get_instructions(code) if step.opname not in IGNORED]
        for place, step in enumerate(steps):
            if step.opname in GLOBAL_LOADS:
                self.global_names[step.argval] = None
            if step.opname in GLOBAL_LOADS or step.opname in CELL_LOADS:
                self._uses.setdefault(step.argval, set()).add(_name_use(steps, place))
            elif step.opname == "IMPORT_NAME":
                level, names = steps[place - 2].argval, steps[place - 1].argval
                self.imports.append(Import(step.argval, level or 0, tuple(names or ())))


def _name_use(steps: list[dis.Instruction], place: int) -> tuple[str, ...]:
    """Return the use of the name loaded by instruction `place`: a chain of attributes, or the mark ITEM or COUNT."""
    name, following = steps[place].argval, steps[place + 1 : place + 4]
    if following and following[0].opname in SIMPLE_LOADS:
        if len(following) > 1 and following[1].opname == "STORE_SUBSCR":
            return (ITEM,)
        is_counted = len(following) == 3 and following[1].opname == "BINARY_OP" and following[1].argrepr.endswith("=")
        if is_counted and following[2].opname in STORES and following[2].argval == name:
            return (COUNT,)
    chain = []
    for step in steps[place + 1 :]:
        if step.opname not in ATTRIBUTES:
            break
        chain.append(step.argval)
    return tuple(chain)


@cache
def name_uses(code: CodeType) -> NameUses:
    """Return the uses of names in a function with this code."""
    return NameUses(_codes(code))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of all its inner functions."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


#: Types of values that are written exactly by marshal.
ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...))

#: A version of marshal's layout without marks for repeated values, which depend on how a program was compiled.
LAYOUT = 2

#: Attributes of a class that do not affect its results, or follow from its other attributes.
NOT_OF_A_CLASS = {
    "__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__firstlineno__", "__static_attributes__",
    "__slotnames__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__",
    "__conditional_annotations__", "__abstractmethods__", "_abc_impl", "__orig_bases__", "__parameters__",
    "__protocol_attrs__", "__non_callable_proto_members__", "__classdictcell__",
}  # fmt: skip

#: Flag of a class that was created at run time; other classes are compiled, and represented by their names.
HEAP_TYPE_FLAG = 1 << 9

#: Objects that give access to values by arbitrary text.
DYNAMIC = {id(each) for each in (eval, exec, globals, __import__, importlib.import_module, sys.modules)}

#: Folders of Python and of installed packages.
INSTALLED = tuple({get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
PACKAGES = ("site-packages", "dist-packages")
OWN_PACKAGE = "simfloat"


class CodeDigest(ABC):
    """A traversal of code, which writes it into a digest; a subclass writes all other values.

    A value that occurs again, or contains itself, is written once. The names that functions and classes use are written
    after the value itself, in the order of occurrence, so that a long chain of calls does not become a deep recursion.
    """

    def __init__(self, name: str, seen: Mapping[int, int] | None = None, trail: Iterable[str] = ()) -> None:
        self.content = hashlib.sha256()
        self._name, self._trail = name, list(trail)
        self._numbers_by_id = dict(seen or {})
        self._kept_alive: list[Any] = []  # keeps visited objects alive, so that no id is reused
        self._waiting: deque[tuple[Callable[[], None], list[str]]] = deque()

    def where(self) -> str:
        """Return the position of the traversal as text: the names from the function to the present value."""
        return f"{self._name} uses {''.join(self._trail).lstrip('.')}, which" if self._trail else self._name

    def finish(self) -> None:
        """Write everything that was postponed, including what this postpones."""
        while self._waiting:
            write, self._trail = self._waiting.popleft()
            write()

    @abstractmethod
    def add(self, value: Any) -> None:
        """Write a value into the digest."""

    def _write_pieces(self, *pieces: str | bytes) -> None:
        for piece in pieces:
            part = piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece
            self.content.update(b"%d:" % len(part) + part)

    @contextmanager
    def _step_into(self, step: str) -> Iterator[None]:
        self._trail.append(step)
        yield
        self._trail.pop()

    def _postpone(self, write: Callable[[], None]) -> None:
        self._waiting.append((write, [*self._trail]))

    def _refuse(self, what: str, instead: str = "create it inside the function, from its arguments") -> None:
        raise ValueError(
            f"{self.where()} is {what}: its content cannot be read, so a folder could contain results of another "
            f"state. Instead {instead}; or use no folder."
        )

    def _dictionary(self, value: Mapping[Any, Any]) -> None:
        self._write_pieces(type(value).__name__, str(len(value)))
        if {*map(type, value), *map(type, value.values())} <= {*ATOMS}:
            return self._write_pieces(marshal.dumps([*value, *value.values()], LAYOUT))
        for key, item in list(value.items()):
            with self._step_into(f"[{key!r}]" if type(key) in ATOMS else "[...]"):
                self.add(key)
                self.add(item)

    def _add_named_values(self, values: Mapping[str, Any], prefix: str = ".") -> None:
        """Write values by name, in sorted order."""
        self._write_pieces("named", str(len(values)))
        for name in sorted(values, key=str):
            with self._step_into(f"{prefix}{name}"):
                self._write_pieces(str(name))
                self.add(values[name])

    # Values that are represented by names.

    def _module(self, value: ModuleType) -> None:
        """Write a module that is used as a value: its whole content, unless it is installed."""
        self._write_pieces("module", value.__name__)
        if not self._write_if_installed(value.__name__):
            ours = {name: item for name, item in vars(value).items() if not name.startswith("__")}
            self._postpone(partial(self._add_named_values, ours))

    def _write_if_installed(self, module: Any) -> bool:
        """Write the package and its version if the module is installed; return True if so."""
        package = package_of(module)
        if package:
            self._write_pieces(package)
        return bool(package)

    def _is_found_by_name(self, value: Any) -> bool:
        """True if an installed module contains this very object under its name, which is then written instead."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        named_object: Any = sys.modules.get(module) if isinstance(module, str) else None
        for step in str(name).split("."):
            named_object = getattr(named_object, step, None)
        if named_object is not value or not self._write_if_installed(module):
            return False
        self._write_pieces(str(module), name)
        return True

    def _builtin(self, value: Any) -> None:
        """Write a compiled function, or a bound method of a compiled object."""
        owner = value.__self__
        self._write_pieces("builtin", value.__name__)
        if self._is_found_by_name(value) or isinstance(owner, ModuleType) or owner is np.random.mtrand._rand:
            return self._write_pieces(str(value.__module__))
        self.add(owner)

    def _of_a_class(self, value: Any) -> None:
        self._write_pieces(type(value).__name__, value.__name__)
        self.add(value.__objclass__)

    def _method(self, value: MethodType) -> None:
        if getattr(sys.modules.get(getattr(value, "__module__", "")), value.__name__, None) is value and (
            self._write_if_installed(value.__module__)  # such as random.random, a method of the shared generator
        ):
            return self._write_pieces(value.__module__, value.__name__)
        self._write_pieces("method", value.__name__)
        if isinstance(value.__func__, FunctionType):  # a compiled method follows from the type of its object
            self.add(value.__func__)
        with self._step_into(".__self__"):
            self.add(value.__self__)

    # Functions and classes.

    def _code(self, value: CodeType) -> None:
        """Write the instructions and the arguments; neither line numbers nor the names of local variables."""
        arguments = value.co_argcount + value.co_kwonlyargcount + sum(bool(value.co_flags & flag) for flag in (4, 8))
        counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags
        self._write_pieces("code", value.co_code, value.co_exceptiontable, str(counts))
        for names in (value.co_varnames[:arguments], value.co_names, value.co_freevars, value.co_cellvars):
            self._write_pieces(str(len(names)), *names)
        for constant in value.co_consts:
            self.add(constant)

    def _function(self, value: FunctionType) -> None:
        self._write_pieces("function")
        if self._is_found_by_name(value):
            return
        if hasattr(value, "registry") and hasattr(value, "_clear_cache"):  # a functools.singledispatch function
            self._dictionary(value.registry)
            return
        self._write_pieces(value.__name__)
        self.add(value.__code__)
        with self._step_into(f"{value.__name__}'s defaults" if self._trail else ".defaults"):
            self.add(value.__defaults__)
            self._add_named_values(value.__kwdefaults__ or {})
        self._add_named_values(vars(value))
        self._postpone(partial(self._add_used_names, value))

    def _add_used_names(self, function: FunctionType) -> None:
        """Write the values of the names that a function takes from outside."""
        code, uses = function.__code__, name_uses(function.__code__)
        self._write_pieces("used by", function.__name__)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # it has no value yet
                self._write_pieces(name, "empty")
                continue
            if not uses.only_writes(name, content):
                self._chains(name, content, uses)
        if self._write_if_installed(function.__globals__.get("__name__")):
            return
        for name in uses.global_names:
            if name in function.__globals__:
                if not uses.only_writes(name, function.__globals__[name]):
                    self._chains(name, function.__globals__[name], uses)
            elif hasattr(builtins, name):
                self._chains(name, getattr(builtins, name), uses)
            else:
                self._write_pieces(name, "missing")
        for statement in uses.imports:
            self._add_import(statement, function.__globals__)

    def _chains(self, name: str, value: Any, uses: NameUses) -> None:
        """Write the value of a name; for a module, only what the function takes from it."""
        self._write_pieces(name)
        with self._step_into(f".{name}"):
            for chain in sorted(uses.chains(name)) if isinstance(value, ModuleType) else [()]:
                self._attribute(value, chain)

    def _attribute(self, value: Any, chain: tuple[str, ...]) -> None:
        """Write the value at the end of a chain of attributes, which is followed while its elements are modules."""
        self._check_dynamic(value)
        if not isinstance(value, ModuleType) or not chain:
            return self.add(value)
        step, *rest = chain
        self._write_pieces("of", value.__name__, step)
        if self._write_if_installed(value.__name__):
            self._write_pieces(*chain)
            for number, name in enumerate(chain, 1):
                value = getattr(value, name, None)
                with self._step_into("".join(f".{name}" for name in chain[:number])):
                    self._check_dynamic(value)
            return None
        with self._step_into(f".{step}"):
            if hasattr(value, step):
                self._attribute(getattr(value, step), tuple(rest))
            else:
                self._write_pieces("missing")

    def _check_dynamic(self, value: Any) -> None:
        if id(value) in DYNAMIC:
            self._refuse("an access to values without their names", "use the names themselves")

    def _add_import(self, statement: Import, globals: Mapping[str, Any]) -> None:
        """Write what a function imports when it runs."""
        name, package = "." * statement.level + statement.name, globals.get("__package__") or globals.get("__name__")
        self._write_pieces("import", name, *statement.names)
        try:
            full = importlib.util.resolve_name(name, str(package))
            is_there = full in sys.modules or find_spec(full) is not None
        except (ImportError, ValueError):
            is_there = False
        if not is_there:
            return self._write_pieces("missing")
        if self._write_if_installed(full):
            return
        try:
            module = importlib.import_module(full)
            for each in statement.names:
                if not hasattr(module, each) and find_spec(f"{full}.{each}"):
                    importlib.import_module(f"{full}.{each}")
        except Exception as error:
            return self._write_pieces("fails", type(error).__name__)
        with self._step_into(f".{full}"):
            for each in statement.names:
                self._attribute(module, (each,))
            if not statement.names:
                self.add(module)
                self.add(sys.modules[full.partition(".")[0]])

    def _class(self, value: type) -> None:
        self._write_pieces("class")
        if self._is_found_by_name(value):
            return
        if not value.__flags__ & HEAP_TYPE_FLAG:
            return self._write_pieces(value.__module__, value.__qualname__)
        self._write_pieces(value.__name__)
        self.add(type(value))
        self.add(value.__bases__)
        self._postpone(partial(self._class_content, value))

    def _class_content(self, value: type) -> None:
        fields = vars(value).get("__dataclass_fields__", {})
        own = {name: item for name, item in vars(value).items() if name not in NOT_OF_A_CLASS}
        own.pop("__dataclass_fields__", None)
        self._write_pieces("content of", value.__name__)
        self._add_named_values(own)
        for name, field in fields.items():
            options = {slot: getattr(field, slot, None) for slot in field.__slots__ if slot != "type"}
            self._write_pieces(name)
            self._add_named_values(options, f".{name}.")


@cache
def package_of(module: Any) -> str:
    """Return the package of an installed module, with its version; an empty text for a user's module."""
    top = module.partition(".")[0] if isinstance(module, str) else "__main__"
    if top == OWN_PACKAGE:
        return top  # its sources are in the digest of a job
    if top == "__main__" or not _is_installed(top):
        return ""
    return top if top in sys.stdlib_module_names else _version(top)


def _is_installed(top: str) -> bool:
    """True if a package is in a folder of Python or of installed packages."""
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
    """Return the version of an installed package and a digest of its list of files.

    Two builds may have the same version.
    """
    try:
        installed = distribution(top)
    except (PackageNotFoundError, ValueError):
        return f"{top} {getattr(sys.modules.get(top), '__version__', '')}"
    files = hashlib.sha256((installed.read_text("RECORD") or "").encode()).hexdigest()
    return f"{top} {installed.version} {files}"
