"""The values of roles as text: each is written as the call that makes it, and read back without running code."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from simfloat import accumulate, arithmetic, formats
from simfloat.accumulate import Accumulator
from simfloat.formats import CATALOG
from simfloat.formats.rounding import MODES, rounding_of
from simfloat.policy.role_types import FLAG
from simfloat.policy.roles import ROLES


def _kinds(accumulator: type[Any]) -> Iterator[type[Any]]:
    """The class and all below it."""
    yield accumulator
    for kind in accumulator.__subclasses__():
        yield from _kinds(kind)


#: What accumulators print as: functions that make them, and `exact`, which is one.
MAKERS = {kind.maker: getattr(accumulate, kind.maker) for kind in _kinds(Accumulator) if "maker" in vars(kind)}

#: What may be called or named in a policy file.
CALLS: dict[str, Callable] = {
    "Format": formats.Format,
    "fixed": formats.fixed,
    "p3109": formats.p3109,
    "block": arithmetic.block,
    "cast": arithmetic.cast,
    "delayed": arithmetic.delayed,
    "hadamard": arithmetic.hadamard,
    "per_tensor": arithmetic.per_tensor,
    "scaled": arithmetic.scaled,
    **{name: make for name, make in MAKERS.items() if callable(make)},
}
NAMES: dict[str, Any] = {name: value for name, value in MAKERS.items() if not callable(value)}

#: A role of an override that goes back to the one that it follows.
BACK = "default"

#: No text of a value is longer and no number in it larger: what is, is a slip, and would take long to refuse.
LONGEST, LARGEST = 20_000, 2**62


def to_texts(roles: Iterable[tuple[str, Any]]) -> dict[str, str | bool]:
    """The texts of the values of roles, truth values as they are. Raises ValueError for what no text stands for."""
    return {role: value if isinstance(value, bool) else text_of(role, value) for role, value in roles}


def from_texts(texts: dict[str, Any]) -> dict[str, Any]:
    """The values of roles in their texts. Raises ValueError naming the role."""
    return {role: value_of(role, text) for role, text in texts.items()}


def text_of(role: str, value: Any) -> str:
    """The shortest text of a role's value that is read back as it; ValueError where there is none."""
    if value is None:
        return BACK
    for write in (str, repr):
        try:
            text = write(value)
            if value_of(role, text) == value:
                return text
        except (ValueError, RecursionError):
            continue
    what = f"{role} is a {type(value).__name__} that cannot be written as text"
    raise ValueError(f"{what}: it is too long, or nested too deeply.")


def value_of(role: str, text: Any) -> Any:
    """The value of a role that a text, or a truth value, stands for; ValueError where there is none."""
    if ROLES[role].kind is FLAG:
        return ROLES[role].read(text)
    if not isinstance(text, str):
        raise ValueError(f"{role} must be a text such as 'BF16', got {text!r}.")
    if text == BACK and ROLES[role].may_be_none:
        return None
    if text in ROLES[role].kind.words:
        return text
    try:
        value = parse(text)
    except ValueError as error:
        raise ValueError(f"{role}: {error}") from None
    return ROLES[role].read(value)


def parse(text: str) -> Any:
    """The value that a text such as ``"sequential(FP16, products=BF16)"`` stands for.

    Raises ValueError for anything but the calls and names of formats, roundings and accumulators.
    """
    if len(text) > LONGEST:
        raise ValueError(f"Cannot read {_short(text)!r}: it has {len(text)} characters, more than {LONGEST}.")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError) as error:
        raise ValueError(f"Cannot read {_short(text)!r}: {error}.") from None
    except (RecursionError, MemoryError):
        raise ValueError(f"Cannot read {_short(text)!r}: it is nested too deeply.") from None


def _value(node: ast.expr) -> Any:
    if (rounding := rounding_of(node)) is not None:
        return rounding
    match node:
        case ast.Constant(value=None | bool() | str() as value):
            return value
        case ast.Constant(value=int(value)) if value <= LARGEST:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if value <= LARGEST:
            return -value
        case ast.Name(id=name):
            return NAMES[name] if name in NAMES else formats.as_format(name)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in CALLS:
            options = {keyword.arg or "**": _value(keyword.value) for keyword in keywords}
            return CALLS[name](*(_value(argument) for argument in arguments), **options)
        case ast.Tuple(elts=elements):
            return tuple(_value(element) for element in elements)
    known = ", ".join(sorted([*CALLS, *NAMES, *MODES, "stochastic", *CATALOG]))
    raise ValueError(f"Cannot read {_short(ast.unparse(node))!r}; known are {known}.")


def to_toml(data: dict[str, Any]) -> str:
    """A dictionary of strings, truth values and lists of strings, with lists of such dictionaries, as TOML."""
    lines = [f"{key} = {_quoted(value)}" for key, value in data.items() if not isinstance(value, list)]
    for key, tables in data.items():
        for table in tables if isinstance(tables, list) else ():
            lines += ["", f"[[{key}]]", *(f"{k} = {_quoted(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _quoted(value: str | bool | list[str]) -> str:
    """A TOML value: JSON that is written in UTF-8 is one, but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def from_toml(text: str) -> dict[str, Any]:
    """The dictionary in a TOML text, with or without a byte order mark; ValueError says where it is not TOML."""
    if not isinstance(text, str):
        raise ValueError(f"A TOML text is expected, got {text!r} of type {type(text).__name__}.")
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        path = " It takes the text itself: Path(path).read_text()." if text.strip().endswith(".toml") else ""
        raise ValueError(f"Not a TOML file: {error}.{path}") from None
    except RecursionError:
        raise ValueError("Not a TOML file of a policy: it is nested too deeply.") from None


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}..."
