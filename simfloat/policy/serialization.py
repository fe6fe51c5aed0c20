"""Policies as dictionaries and TOML; values of roles as text, the calls that make them, read without running code."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from simfloat import accumulate, arithmetic, formats
from simfloat.accumulate import Accumulator
from simfloat.checks import did_you_mean
from simfloat.formats import CATALOG
from simfloat.formats.rounding import MODES, parse_rounding
from simfloat.policy.overrides import Override
from simfloat.policy.role_types import FLAG, WRITTEN
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

#: The keys of a policy that are neither roles nor overrides.
LABELS = ("name", "source")

RoleValues = Iterable[tuple[str, Any]]

#: A role of an override that goes back to the one that it follows.
BACK = "default"

#: No text of a value is longer and no number in it larger: what is, is a slip, and would take long to refuse.
LONGEST, LARGEST = 20_000, 2**62


def to_data(labels: dict[str, str], roles: RoleValues, overrides: Iterable[Override]) -> dict[str, Any]:
    """A policy as text in plain dictionaries and lists. Raises ValueError for a value that no text stands for."""
    entries = [
        {key: list(value) if isinstance(value, tuple) else value for key, value in _target(override)}
        | to_texts(override.roles)
        for override in overrides
    ]
    return labels | to_texts(roles) | ({"overrides": entries} if entries else {})


def labels_and_roles(data: Any) -> dict[str, Any]:
    """The labels and roles of a policy but for its overrides. Raises ValueError naming the key that is wrong."""
    _check_keys(data, (*LABELS, "overrides", *ROLES), "A policy")
    if "compute" not in data:
        raise ValueError("A policy needs the key 'compute', the format of the operands of contractions.")
    if not isinstance(data.get("overrides", []), list):
        raise ValueError(f"overrides must be a list of dictionaries, got {data['overrides']!r}.")
    return {label: data.get(label) for label in LABELS} | _roles_in(data)


def read_overrides(data: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """The path, operation and roles of each override. Raises ValueError naming the key that is wrong."""
    for entry in data.get("overrides", []):
        _check_keys(entry, ("path", "operation", *ROLES), "An override")
        yield entry.get("path"), entry.get("operation"), _roles_in(entry)


def _target(override: Override) -> list[tuple[str, Any]]:
    """What an override is for: its path and its operation, as far as it has them."""
    return [(key, value) for key in ("path", "operation") if (value := getattr(override, key)) is not None]


def _roles_in(data: dict[str, Any]) -> dict[str, Any]:
    return {role: value_of(role, text) for role, text in data.items() if role in ROLES}


def _check_keys(data: Any, allowed_keys: tuple[str, ...], what: str) -> None:
    if not isinstance(data, dict):
        raise ValueError(f"{what} is described by a dictionary, got {data!r}.")
    for key in data:
        if key not in allowed_keys:
            raise ValueError(
                f"{what} has no key {key!r}. Keys: {', '.join(allowed_keys)}.{did_you_mean(key, allowed_keys)}"
            )


def to_texts(roles: RoleValues) -> dict[str, str | bool]:
    """The texts of the values of roles, truth values as they are. Raises ValueError for what no text stands for."""
    return {role: value if isinstance(value, bool) else text_of(role, value) for role, value in roles}


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
    if callable(getattr(getattr(value, "scale", None), "rule", None)):
        raise ValueError(
            f"{what}: its scales follow a function of your own. Make the policy in Python, where it stands."
        )
    raise ValueError(f"{what}: it is too long, or nested too deeply.")


def value_of(role: str, text: Any) -> Any:
    """The value of a role that a text, or a truth value, stands for; ValueError where there is none."""
    is_truth_value = ROLES[role].kind is FLAG or (ROLES[role].kind is WRITTEN and isinstance(text, bool))
    if is_truth_value and not (text == BACK and ROLES[role].may_be_none):
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
    if (rounding := parse_rounding(node)) is not None:
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
    readable = ", ".join(sorted([*CALLS, *NAMES, *MODES, "stochastic", *CATALOG]))
    raise ValueError(f"Cannot read {_short(ast.unparse(node))!r}; known are {readable}.")


def to_toml(data: dict[str, Any]) -> str:
    """A dictionary of strings, truth values and lists of strings, with lists of such dictionaries, as TOML."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in data.items() if not isinstance(value, list)]
    for key, tables in data.items():
        for table in tables if isinstance(tables, list) else ():
            lines += ["", f"[[{key}]]", *(f"{k} = {_toml_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: str | bool | list[str]) -> str:
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
