"""Policies as text: every value is written as the call that makes it, and read back without running code."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable
from typing import Any

from simfloat import accumulate, formats
from simfloat.formats import CATALOG
from simfloat.policy.policy import ROLES, Policy

#: What may be called or named in a policy file.
CALLS: dict[str, Callable] = {
    "Format": formats.Format,
    "p3109": formats.p3109,
    "stochastic": formats.stochastic,
    **{
        name: getattr(accumulate, name)
        for name in ("sequential", "pairwise", "blocked", "kahan", "fused", "tensor_core", "matrix_core")
    },
}
NAMES: dict[str, Any] = {
    "nearest_even": formats.nearest_even,
    "nearest_away": formats.nearest_away,
    "toward_zero": formats.toward_zero,
    "toward_positive": formats.toward_positive,
    "toward_negative": formats.toward_negative,
    "to_odd": formats.to_odd,
    "exact": accumulate.exact,
}


def policy_to_dict(policy: Policy) -> dict[str, Any]:
    """See Policy.to_dict."""
    data: dict[str, Any] = {}
    for key in ("name", "source"):
        if getattr(policy, key) is not None:
            data[key] = getattr(policy, key)
    data |= _roles_to_dict({role: getattr(policy, role) for role in ROLES})
    overrides = []
    for override in policy.overrides:
        target = {"path": override.path, "operation": override.operation}
        overrides.append({k: v for k, v in target.items() if v is not None} | _roles_to_dict(dict(override.roles)))
    return data | ({"overrides": overrides} if overrides else {})


def policy_from_dict(data: dict[str, Any]) -> Policy:
    """See Policy.from_dict."""
    if not isinstance(data, dict):
        raise ValueError(f"A policy is described by a dictionary, got {data!r}.")
    _check_keys(data, ("name", "source", "overrides", *ROLES), "A policy")
    if "compute" not in data:
        raise ValueError("A policy needs the key 'compute', the format of the operands of contractions.")
    roles = {key: _read(key, value) for key, value in data.items() if key in ROLES}
    policy = Policy(name=data.get("name"), source=data.get("source"), **roles)
    for entry in data.get("overrides", []):
        _check_keys(entry, ("path", "operation", *ROLES), "An override")
        changes = {key: _read(key, value) for key, value in entry.items() if key in ROLES}
        policy = policy.override(entry.get("path"), operation=entry.get("operation"), **changes)
    return policy


def to_toml(data: dict[str, Any]) -> str:
    """A dictionary of strings, with lists of such dictionaries, as TOML."""
    # A JSON string is a TOML string.
    lines = [f"{key} = {json.dumps(value)}" for key, value in data.items() if isinstance(value, str)]
    for key, tables in data.items():
        for table in tables if isinstance(tables, list) else ():
            lines += ["", f"[[{key}]]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def from_toml(text: str) -> dict[str, Any]:
    """The dictionary in a TOML text; ValueError says where it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"Not a TOML file: {error}.") from None


def parse(text: str) -> Any:
    """The value that a text such as ``"sequential(FP16, products=BF16)"`` stands for.

    Raises ValueError for anything but the calls and names of formats, roundings and accumulators.
    """
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, TypeError) as error:
        raise ValueError(f"Cannot read {text!r}: {error}.") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return NAMES[name] if name in NAMES else formats.as_format(name)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in CALLS:
            options = {keyword.arg or "": _value(keyword.value) for keyword in keywords}
            return CALLS[name](*(_value(argument) for argument in arguments), **options)
        case ast.Call(func=ast.Attribute(value=rounding, attr="saturating"), args=[], keywords=[]):
            return _value(rounding).saturating()
        case ast.Tuple(elts=elements):
            return tuple(_value(element) for element in elements)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
    known = ", ".join(sorted([*CALLS, *NAMES, *CATALOG]))
    raise ValueError(f"Cannot read {ast.unparse(node)!r}; known are {known}.")


def _read(role: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"{role} must be a text such as 'BF16', got {value!r}.")
    if role == "update":
        return value
    try:
        return parse(value)
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{role}: {error}") from None


def _roles_to_dict(roles: dict[str, Any]) -> dict[str, str]:
    defaults = {role: getattr(Policy(compute=CATALOG["FP32"]), role) for role in ("accumulate", "rounding", "update")}
    given = {k: v for k, v in roles.items() if v is not None and v != defaults.get(k)}
    return {key: value if key == "update" else text_of(value) for key, value in given.items()}


def text_of(value: Any) -> str:
    """The shorter of the value's two texts that `parse` reads back."""
    try:
        return str(value) if parse(str(value)) == value else repr(value)
    except ValueError:
        return repr(value)


def _check_keys(data: dict[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in data:
        if key not in known:
            raise ValueError(f"{what} has no key {key!r}. Keys: {', '.join(known)}.")
