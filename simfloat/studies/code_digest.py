"""A digest of code: of functions and classes, and of the objects whose names they use.

The bytecode of a function tells the names that it takes from outside, and their use. An object of an installed package
is known by its name and the package's version.
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

#: Instructions that load a name from outside, and store one.
GLOBAL_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
CELL_LOADS = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
STORES = {"STORE_GLOBAL", "STORE_DEREF"}

#: An attribute or a method of what was loaded: LOAD_METHOD until Python 3.11.
ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}

#: What loads a single value that is of no interest.
SIMPLE_LOADS = {"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"}

#: What tells nothing of the order of a program.
IGNORED = {"EXTENDED_ARG", "CACHE", "NOP", "RESUME", "PRECALL", "PUSH_NULL", "NOT_TAKEN"}

#: Methods that change a container and tell nothing of it.
WRITES: dict[Any, set[str]] = {
    list: {"append", "extend", "insert", "clear"},
    deque: {"append", "appendleft", "extend", "extendleft", "clear"},
    set: {"add", "update", "discard", "clear"},
    dict: {"update", "clear"},
}
#: Dictionaries whose items are set like a dictionary's.
DICTIONARIES = (dict, defaultdict, OrderedDict, Counter)

#: What a name is used for that only writes: an item of it is set, it is counted up, it is set.
ITEM, COUNT = "[]", "+="


class Import(NamedTuple):
    """A module that a function imports when it runs, and the names that it takes from there; none for all of it."""

    name: str
    level: int
    names: tuple[str, ...]


class NameUses:
    """The names that a function and all functions inside of it load, and what each is used for."""

    def __init__(self, codes: Iterator[CodeType]) -> None:
        self.global_names: dict[str, None] = {}
        self.imports: list[Import] = []
        self._uses: dict[str, set[tuple[str, ...]]] = {}
        for code in codes:
            self._read_code(code)

    def chains(self, name: str) -> set[tuple[str, ...]]:
        """The attributes that are taken of what a name stands for; an empty chain where it is used itself."""
        return {() if chain in ((ITEM,), (COUNT,)) else chain for chain in self._uses.get(name, {()})}

    def only_writes(self, name: str, value: Any) -> bool:
        """Whether a container is only written to, or a number only counted up, so that no result depends on it."""
        kind, uses = type(value), self._uses.get(name, set())
        allowed: set[tuple[str, ...]] = {(each,) for each in WRITES.get(dict if kind in DICTIONARIES else kind, ())}
        if kind in DICTIONARIES:
            allowed.add((ITEM,))
        if kind in (int, float):
            allowed.add((COUNT,))
        return uses <= allowed and name != "__class__"  # which super() reads without loading it

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
    """Return the use of the name that is loaded at this place: a chain of attributes, or the mark ITEM or COUNT."""
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
    """The names that a function of this code uses."""
    return NameUses(_codes(code))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of all functions inside of it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


#: Values that are written as they are, to the last bit of a float.
ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...))

#: Version of marshal's layout without marks for values that are met again, which hang on how a program was compiled.
LAYOUT = 2

#: What stands in a class and says nothing of what it computes, or follows from the rest.
NOT_OF_A_CLASS = {
    "__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__firstlineno__", "__static_attributes__",
    "__slotnames__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__",
    "__conditional_annotations__", "__abstractmethods__", "_abc_impl", "__orig_bases__", "__parameters__",
    "__protocol_attrs__", "__non_callable_proto_members__", "__classdictcell__",
}  # fmt: skip

#: A class that a program or a package has made while it ran; others are compiled, and found by their names.
HEAP_TYPE_FLAG = 1 << 9

#: What reaches values by texts, which may be any.
DYNAMIC = {id(each) for each in (eval, exec, globals, __import__, importlib.import_module, sys.modules)}

#: Where Python and installed packages lie.
INSTALLED = tuple({get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
PACKAGES = ("site-packages", "dist-packages")
OWN_PACKAGE = "simfloat"


class CodeDigest(ABC):
    """A walk through code, which writes it into a digest; what values are beside code, a subclass writes.

    What is met again, or contains itself, is written once. The names that functions and classes use come after the
    value itself, in the order in which these were met, so that a long chain of calls is no deep one.
    """

    def __init__(self, name: str, seen: Mapping[int, int] | None = None, trail: Iterable[str] = ()) -> None:
        self.content = hashlib.sha256()
        self._name, self._trail = name, list(trail)
        self._numbers_by_id = dict(seen or {})
        self._kept_alive: list[Any] = []  # what was met stays alive: an id stands for one object only
        self._waiting: deque[tuple[Callable[[], None], list[str]]] = deque()

    def where(self) -> str:
        """What is being read, by names from the function on."""
        return f"{self._name} uses {''.join(self._trail).lstrip('.')}, which" if self._trail else self._name

    def finish(self) -> None:
        """Write what waits, and what is met by that."""
        while self._waiting:
            write, self._trail = self._waiting.popleft()
            write()

    @abstractmethod
    def add(self, value: Any) -> None:
        """Write a value."""

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

    def _refuse(self, what: str, instead: str = "make it inside of the function, of the function's arguments") -> None:
        raise ValueError(
            f"{self.where()} is {what}: what it holds cannot be read, so results in a folder could be those of another "
            f"state. Instead {instead}; or give no folder."
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
        """Values by name, whose order tells nothing."""
        self._write_pieces("named", str(len(values)))
        for name in sorted(values, key=str):
            with self._step_into(f"{prefix}{name}"):
                self._write_pieces(str(name))
                self.add(values[name])

    # What is found by name.

    def _module(self, value: ModuleType) -> None:
        """A module that is used as a value: all that is in it, unless it is an installed one."""
        self._write_pieces("module", value.__name__)
        if not self._write_if_installed(value.__name__):
            ours = {name: item for name, item in vars(value).items() if not name.startswith("__")}
            self._postpone(partial(self._add_named_values, ours))

    def _write_if_installed(self, module: Any) -> bool:
        """Write the package and its version if it is installed, and nothing if the module is of the user's."""
        package = package_of(module)
        if package:
            self._write_pieces(package)
        return bool(package)

    def _is_found_by_name(self, value: Any) -> bool:
        """Whether an installed module has this very object by its name, which then stands for it."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        named_object: Any = sys.modules.get(module) if isinstance(module, str) else None
        for step in str(name).split("."):
            named_object = getattr(named_object, step, None)
        if named_object is not value or not self._write_if_installed(module):
            return False
        self._write_pieces(str(module), name)
        return True

    def _builtin(self, value: Any) -> None:
        """A function that is compiled, or the bound method of a compiled object."""
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
            self._write_if_installed(value.__module__)  # such as random.random, of a generator that all share
        ):
            return self._write_pieces(value.__module__, value.__name__)
        self._write_pieces("method", value.__name__)
        if isinstance(value.__func__, FunctionType):  # else a compiled one, of its object's type
            self.add(value.__func__)
        with self._step_into(".__self__"):
            self.add(value.__self__)

    # Functions and classes.

    def _code(self, value: CodeType) -> None:
        """What is carried out, and with which arguments; not where it stands, nor how local names are called."""
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
        if hasattr(value, "registry") and hasattr(value, "_clear_cache"):  # of functools.singledispatch
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
        """What the names stand for that a function takes from outside."""
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
        """What a name stands for; of a module only what the function takes from it."""
        self._write_pieces(name)
        with self._step_into(f".{name}"):
            for chain in sorted(uses.chains(name)) if isinstance(value, ModuleType) else [()]:
                self._attribute(value, chain)

    def _attribute(self, value: Any, chain: tuple[str, ...]) -> None:
        """What a chain of attributes leads to, from a module as far as there are modules."""
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
            self._refuse("a way to what no name tells", "use the names themselves")

    def _add_import(self, statement: Import, globals: Mapping[str, Any]) -> None:
        """What a function imports when it runs."""
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
    """The package that an installed module is of, with its version; empty for a module of the user's."""
    top = module.partition(".")[0] if isinstance(module, str) else "__main__"
    if top == OWN_PACKAGE:
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
        installed = distribution(top)
    except (PackageNotFoundError, ValueError):
        return f"{top} {getattr(sys.modules.get(top), '__version__', '')}"
    files = hashlib.sha256((installed.read_text("RECORD") or "").encode()).hexdigest()
    return f"{top} {installed.version} {files}"
