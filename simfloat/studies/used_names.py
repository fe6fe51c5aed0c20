"""The names that a function takes from outside, by its bytecode, and their use."""

from __future__ import annotations

import dis
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from functools import cache
from types import CodeType
from typing import Any, NamedTuple

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
