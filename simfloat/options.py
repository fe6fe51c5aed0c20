"""Options that a class declares: each is one line, which gives a parameter of its constructor and an attribute.

    @with_options
    class ELU(Layer):
        alpha: float = option(finite_number, default=1.0)
        inplace: InitVar[bool] = option(not_in_place, default=False)

has ``__init__(self, alpha: float = 1.0, inplace: bool = False)``, for Python and for type checkers. Parameters below a
line ``_: KW_ONLY`` are passed by name. A class inherits the options of its bases, and may give them other defaults. The
constructor passes all arguments by name to the next ``__init__`` that a base class wrote out. This one reads each value
with the reader of its option and stores it. The value of an `InitVar` is checked, but becomes no attribute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, InitVar
from inspect import Parameter, get_annotations
from typing import Any, Generic, NamedTuple, TypeVar, dataclass_transform

from simfloat.common import check_flags

__all__ = [
    "KW_ONLY", "Declaration", "InitVar", "Reader", "anything", "with_options", "flag", "option", "options_of",
    "read_options", "stored_options",
]  # fmt: skip

Value = TypeVar("Value")
Class = TypeVar("Class", bound=type)

#: (name, value) -> the value of an option as it is used; raises ValueError, with the name, if the value is invalid.
Reader = Callable[[str, Any], Value]


def anything(name: str, value: Any) -> Any:
    """Return a value that is not checked here."""
    return value


def flag(name: str, value: Any) -> bool:
    """Return a value that must be True or False."""
    if value is True or value is False:
        return value
    check_flags(**{name: value})
    return bool(value)


#: The file name of written constructors in tracebacks.
FILE = "<declared options>"

#: The attributes of a class with the options that it and its bases declare, by name, and with the names of those that
#: become attributes.
OPTIONS, STORED = "__options__", "__stored_options__"


class Declaration(Generic[Value]):
    """The reader and the default of an option, in the body of a class."""

    def __init__(self, read: Reader[Value], default: Any = Parameter.empty, alias: str = "") -> None:
        self.read, self.default, self.alias = read, default, alias


def option(read: Reader[Any], *, default: Any = Parameter.empty, alias: str = "") -> Any:
    """Return the declaration of an option; with an alias, the parameter of the constructor has this name."""
    return Declaration(read, default, alias)


class DeclaredOption(NamedTuple):
    """An option of a class: its reader, its parameter of the constructor, and True if it becomes an attribute."""

    read: Reader[Any]
    parameter: Parameter
    is_stored: bool


def options_of(owner: type) -> dict[str, DeclaredOption]:
    """Return the options that a class and its bases declare, by the names of the parameters."""
    return getattr(owner, OPTIONS, {})


def stored_options(owner: type) -> tuple[str, ...]:
    """Return the names of the options of a class that become attributes."""
    return getattr(owner, STORED, ())


def read_options(owner: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by name that become attributes, as their readers return them; check the others first."""
    options = options_of(owner)
    for name, value in arguments.items():
        if not options[name].is_stored:
            options[name].read(name, value)
    return {name: options[name].read(name, value) for name, value in arguments.items() if options[name].is_stored}


@dataclass_transform(field_specifiers=(option,))
def with_options(owner: Class) -> Class:
    """Write the constructor of a class from the options in its body, unless the body has a constructor."""
    options = dict(options_of(owner))
    kind: Any = Parameter.POSITIONAL_OR_KEYWORD
    for name, annotation in get_annotations(owner).items():
        value, text = vars(owner).get(name), str(annotation)
        if annotation is KW_ONLY or text == "KW_ONLY":
            kind = Parameter.KEYWORD_ONLY
        elif isinstance(value, Declaration):
            is_stored = not (isinstance(annotation, InitVar) or text.startswith("InitVar["))
            if not is_stored:  # a type, or its text under ``from __future__ import annotations``
                annotation = annotation.type if isinstance(annotation, InitVar) else text[len("InitVar[") : -1]
            parameter = Parameter(value.alias or name, kind, default=value.default, annotation=annotation)
            options[parameter.name] = DeclaredOption(value.read, parameter, is_stored)
            if type(value) is Declaration:  # a subclass of it is a descriptor, and remains
                delattr(owner, name)
    setattr(owner, OPTIONS, options)
    setattr(owner, STORED, tuple(name for name, each in options.items() if each.is_stored))
    if "__init__" not in vars(owner):
        owner.__init__ = _constructor(owner, [each.parameter for each in options.values()])  # type: ignore[misc]
    return owner


def _constructor(owner: type, parameters: list[Parameter]) -> Callable[..., None]:
    """Return an ``__init__`` with these parameters, which passes them by name to the next one that is written out."""
    constructors = (vars(base)["__init__"] for base in owner.__mro__ if "__init__" in vars(base))
    written_out = next(each for each in constructors if not hasattr(each, OPTIONS))
    defaults = {each.name: each.default for each in parameters if each.default is not Parameter.empty}

    def of_kind(kind: Any) -> list[str]:
        names = [each.name for each in parameters if each.kind is kind]
        return [f"{name}=defaults[{name!r}]" if name in defaults else name for name in names]

    by_name = of_kind(Parameter.KEYWORD_ONLY)
    taken = ["self", *of_kind(Parameter.POSITIONAL_OR_KEYWORD), *(["*"] if by_name else []), *by_name]
    arguments = ", ".join(f"{each.name}={each.name}" for each in parameters)
    text = f"""
def within(first, defaults):
    def __init__({", ".join(taken)}):
        first(self, {arguments})
    return __init__
"""
    space: dict[str, Any] = {}  # with the names of the modules that declare options, for the types of the parameters
    for base in reversed(owner.__mro__):
        space |= vars(sys.modules[base.__module__]) if OPTIONS in vars(base) else {}
    exec(compile(text, FILE, "exec", dont_inherit=True), space)
    constructor = space["within"](written_out, defaults)
    constructor.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": "None"}
    constructor.__qualname__ = f"{owner.__qualname__}.__init__"
    setattr(constructor, OPTIONS, True)
    return constructor
