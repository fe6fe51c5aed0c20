"""Policies as text: dictionaries, TOML, and tables of the roles in a model and of differences between policies.

The value of a role is written as the call that creates it, and is read without running code.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import fill
from typing import Any, Protocol

from simfloat import arithmetic, formats, sums
from simfloat.common import Table, did_you_mean
from simfloat.common import table as aligned
from simfloat.formats import CATALOG
from simfloat.formats.rounding import MODES, parse_rounding
from simfloat.policy.flash_attention import flash_attention
from simfloat.policy.overrides import Override, roles_of
from simfloat.policy.roles import FUSED, PARAMETER, ROLES, WRITTEN, Recipe
from simfloat.sums import Accumulator


def _kinds(accumulator: type[Any]) -> Iterator[type[Any]]:
    """Yield the class and all its subclasses."""
    yield accumulator
    for kind in accumulator.__subclasses__():
        yield from _kinds(kind)


#: The calls that accumulators print as: functions that create them, and the value `exact`. `custom` is missing, because
#: a file cannot contain its function.
MAKERS = {
    kind.maker: getattr(sums, kind.maker)
    for kind in _kinds(Accumulator)
    if "maker" in vars(kind) and kind.maker != sums.custom.__name__
}

#: The functions and names that a policy file may contain.
CALLS: dict[str, Callable] = {
    "Format": formats.Format,
    "fixed": formats.fixed,
    "p3109": formats.p3109,
    "block": arithmetic.block,
    "cast": arithmetic.cast,
    "delayed": arithmetic.delayed,
    "flash_attention": flash_attention,
    "hadamard": arithmetic.hadamard,
    "per_tensor": arithmetic.per_tensor,
    "scaled": arithmetic.scaled,
    "systolic": sums.systolic,
    **{name: make for name, make in MAKERS.items() if callable(make)},
}
#: The calls with an argument that is a name of hardware, or of a library.
NAMED_HARDWARE = ("tensor_core", "matrix_core", "library_sum")

NAMES: dict[str, Any] = {name: value for name, value in MAKERS.items() if not callable(value)}

#: The keys of a policy that are neither roles nor overrides.
LABELS = ("name", "source")

RoleValues = Iterable[tuple[str, Any]]

#: The text of a role in an override that follows its default again.
BACK = "default"

#: A name in a text.
WORD = r"[A-Za-z]\w*"

#: Limits for texts and integers: larger ones are mistakes that would take long to reject.
LONGEST, LARGEST = 20_000, 2**62


def to_data(labels: dict[str, str], roles: RoleValues, overrides: Iterable[Override]) -> dict[str, Any]:
    """Return a policy as text in plain dictionaries and lists; ValueError for a value without a text."""
    entries = [
        {key: list(value) if isinstance(value, tuple) else value for key, value in _target(override)}
        | to_texts(override.roles)
        for override in overrides
    ]
    return labels | to_texts(roles) | ({"overrides": entries} if entries else {})


def labels_and_roles(data: Any) -> dict[str, Any]:
    """Return the labels and roles of a policy, without overrides; ValueError names an invalid key."""
    _check_keys(data, (*LABELS, "overrides", *ROLES), "A policy")
    if "compute" not in data:
        raise ValueError("A policy needs the key 'compute', the format of the operands of contractions.")
    if not isinstance(data.get("overrides", []), list):
        raise ValueError(f"overrides must be a list of dictionaries, got {data['overrides']!r}.")
    return {label: data.get(label) for label in LABELS} | _roles_in(data)


def read_overrides(data: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Yield the path, operation and roles of each override; ValueError names an invalid key."""
    for entry in data.get("overrides", []):
        _check_keys(entry, ("path", "operation", *ROLES), "An override")
        yield entry.get("path"), entry.get("operation"), _roles_in(entry)


def _target(override: Override) -> list[tuple[str, Any]]:
    """Return the path and the operation of an override, if given."""
    return [(key, value) for key in ("path", "operation") if (value := getattr(override, key)) is not None]


def _roles_in(data: dict[str, Any]) -> dict[str, Any]:
    return {role: value_of(role, text) for role, text in data.items() if role in ROLES}


def _check_keys(data: Any, allowed_keys: tuple[str, ...], what: str) -> None:
    if not isinstance(data, dict):
        raise ValueError(f"{what} must be a dictionary, got {data!r}.")
    for key in data:
        if key not in allowed_keys:
            raise ValueError(
                f"{what} has no key {key!r}. Keys: {', '.join(allowed_keys)}.{did_you_mean(key, allowed_keys)}"
            )


def to_texts(roles: RoleValues) -> dict[str, str | bool]:
    """Return the values of roles as texts, booleans unchanged; ValueError for a value without a text."""
    return {role: value if isinstance(value, bool) else text_of(role, value) for role, value in roles}


def text_of(role: str, value: Any) -> str:
    """Return the shortest text of a value that is read back as the same value; ValueError if there is none."""
    if value is None:
        return BACK
    text = ""
    for write in (str, repr):
        try:
            text = write(value)
            if value_of(role, text) == value:
                return text
        except (ValueError, RecursionError):
            continue
    what = f"{role} is a {type(value).__name__} that cannot be written as text"
    if callable(getattr(getattr(value, "scale", None), "rule", None)):
        raise ValueError(f"{what}: its scales use a custom function. Create the policy in Python instead.")
    if f"{sums.custom.__name__}(" in text:
        raise ValueError(f"{what}: it calls your own function. Create the policy in Python instead.")
    raise ValueError(f"{what}: it is too long, or nested too deeply.")


def value_of(role: str, text: Any) -> Any:
    """Return the value of a role from its text or boolean; ValueError if it is invalid."""
    is_kernel = isinstance(text, str) and text.startswith("flash_attention(")
    is_truth_value = isinstance(text, bool) if ROLES[role].kind is WRITTEN else ROLES[role].kind is FUSED
    if is_truth_value and not is_kernel and not (text == BACK and ROLES[role].may_be_none):
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
    """Return the value of a text such as ``"sequential(FP16, products=BF16)"``.

    Raises ValueError for everything except calls and names of formats, roundings and accumulators.
    """
    if len(text) > LONGEST:
        raise ValueError(f"Cannot read {_short(text)!r}: it has {len(text)} characters, more than {LONGEST}.")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        stop = "" if error.msg.endswith("?") else "."
        raise ValueError(f"Cannot read {_short(text)!r}: {error.msg}{stop}") from None
    except TypeError as error:
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
            options = {keyword.arg or "**": _argument(name, keyword.value) for keyword in keywords}
            return CALLS[name](*(_argument(name, argument) for argument in arguments), **options)
        case ast.Tuple(elts=elements):
            return tuple(_value(element) for element in elements)
        case ast.Call(func=ast.Name(id=sums.custom.__name__)):
            raise ValueError(
                f"Text cannot contain the function of {_short(ast.unparse(node))}: create the accumulator in Python, "
                "and write test vectors with simfloat.write_vectors."
            )
    readable = ", ".join(sorted([*CALLS, *NAMES, *MODES, "stochastic", *CATALOG]))
    raise ValueError(f"Cannot read {_short(ast.unparse(node))!r}; allowed are {readable}.")


def _argument(call: str, node: ast.expr) -> Any:
    """Return the value of an argument; ValueError names the quotes that the name of hardware needs."""
    try:
        return _value(node)
    except ValueError as error:
        if call in NAMED_HARDWARE and isinstance(node, ast.Name):
            raise ValueError(f"{error} A name that is no format is in quotes: {call}({node.id!r}, ...).") from None
        raise


def to_toml(data: dict[str, Any]) -> str:
    """Return a dictionary as TOML; its values are strings, booleans, lists of strings, and lists of such
    dictionaries.
    """
    lines = [f"{key} = {_toml_value(value)}" for key, value in data.items() if not isinstance(value, list)]
    for key, tables in data.items():
        for table in tables if isinstance(tables, list) else ():
            lines += ["", f"[[{key}]]", *(f"{k} = {_toml_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: str | bool | list[str]) -> str:
    """Return a TOML value: the JSON text in UTF-8, which is valid TOML except for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def from_toml(text: str) -> dict[str, Any]:
    """Return the dictionary of a TOML text, with or without a byte order mark; ValueError gives the position of an
    error.
    """
    if not isinstance(text, str):
        raise ValueError(f"A TOML text is expected, got {text!r} of type {type(text).__name__}.")
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        path = " It takes the text itself: Path(path).read_text()." if text.strip().endswith(".toml") else ""
        raise ValueError(f"Not a TOML file: {error}.{quotes_missing(text, error)}{path}") from None
    except RecursionError:
        raise ValueError("Not a TOML file of a policy: it is nested too deeply.") from None


def quotes_missing(text: str, error: tomllib.TOMLDecodeError) -> str:
    """Return the line to write if the error of a TOML text is a text without quotes; the empty text otherwise."""
    place = re.search(r"at line (\d+)", str(error))
    line = text.splitlines()[int(place[1]) - 1] if place else ""
    match = re.fullmatch(r"\s*([\w-]+)\s*=\s*([^#]*?)\s*(#.*)?", line)
    if match is None:
        return ""
    key, value = match[1], match[2]
    if value in ("True", "False"):
        return f" Booleans are in lower case: write {key} = {value.lower()}"
    inner = value[1:-1] if re.fullmatch('".*"', value) else value
    if re.fullmatch(rf"{WORD}(\(.*\))?", inner):
        inner = inner.replace('"', "'")
        inner = re.sub(rf"^({'|'.join(NAMED_HARDWARE)})\(([\w-]+)", r"\1('\2'", inner)
        return f" Texts are in quotes: write {key} = {_toml_value(inner)}"
    if re.fullmatch(r"\[[\w\s,'\"]*\]", value):
        return f" Texts are in quotes: write {key} = {_toml_value(re.findall(WORD, value))}"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}..."


#: Function that returns the recipe at a path, of a layer or a parameter; with names, of these operations.
Recipes = Callable[..., Recipe]
Row = tuple[str, ...]

#: Maximum widths of the names of operations that share a row, and of overrides.
WIDTH, OVERRIDE_WIDTH = 28, 60

#: The cell of a role that the row does not use.
UNUSED = "-"


class Layered(Protocol):
    """A model: any object that names its modules and parameters."""

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Yield pairs of path and module."""

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield pairs of path and parameter."""


def check_model(model: Any) -> None:
    """Raise ValueError if `model` is not a model of simfloat."""
    if isinstance(model, type) or not hasattr(model, "named_modules"):
        raise ValueError(f"explain takes a model, a simfloat.nn.Module, got {model!r}.")
    if type(model).__module__.partition(".")[0] == "torch" or not hasattr(type(model), "is_layer"):
        raise ValueError(
            "explain takes a model of simfloat.nn; for one of PyTorch write simfloat.torch.explain(model, sample, "
            f"policy). Got a {type(model).__name__}."
        )


def table(model: Layered, recipes: Recipes, single: Iterable[str], listed: Iterable[str]) -> Table:
    """Return a table with a row for each layer and one for everything outside of layers, and further rows for
    differences.

    The row of a single operation is below the layers from which it differs, or at the end if it differs everywhere in
    the same way. Operations of lists share rows: at the end, and below the layers in which they are different.
    """
    layers = {path: type(module).__name__ for path, module in model.named_modules() if module.is_layer}
    parameters: dict[str, list[str]] = {path: [] for path in layers}
    for path, _ in model.named_parameters():
        parameters.setdefault(path.rpartition(".")[0], []).append(path)
    places = layers if "" in layers else layers | {"": UNUSED}
    named = list(dict.fromkeys(single))
    lists = [name for name in dict.fromkeys(listed) if name not in named]
    everywhere = {
        name for name in (*named, *lists) if len({_operation_cells(path, name, recipes) for path in places}) == 1
    }
    varied = [name for name in lists if name not in everywhere]
    rows: list[Row] = [("layer", "kind", *ROLES)]
    for path, kind in places.items():
        its_parameters = parameters.get(path, [])
        where = path or ("(model)" if "" in layers else "elsewhere")
        rows.append((where, kind, *_layer_cells(recipes(path), bool(its_parameters))))
        rows += [row for parameter in its_parameters for row in _parameter_row(parameter, path, recipes)]
        other = [n for n in varied if _operation_cells(path, n, recipes) != _operation_cells("", n, recipes)]
        rows += _rows(where, path, [*([name] for name in named if name not in everywhere), other], recipes)
    rows += _rows("everywhere", "", [[name] for name in named if name in everywhere], recipes)
    rows += _rows("everywhere", "", [[name for name in lists if name in everywhere]], recipes)
    rows += _rows("elsewhere", "", [varied], recipes)
    return aligned(rows)


def _layer_cells(recipe: Recipe, has_parameters: bool) -> Row:
    """Return the cells of a layer; roles that only concern parameters are included if it has parameters."""
    return _cells(recipe, [role for role in ROLES if has_parameters or ROLES[role].concerns != (PARAMETER,)])


def _parameter_row(parameter: str, layer: str, recipes: Recipes) -> Iterator[Row]:
    """Yield the row of a parameter, if its roles differ from the roles of its layer."""
    used = [name for name, role in ROLES.items() if PARAMETER in role.concerns]
    cells = _cells(recipes(parameter), used)
    if cells != _cells(recipes(layer), used):
        yield parameter, "parameter", *cells


def _rows(where: str, layer: str, groups: Iterable[Sequence[str]], recipes: Recipes) -> Iterator[Row]:
    """Yield the rows of operations with roles that differ from their layer; equal operations of a group share a row."""
    for group in groups:
        alike: dict[Row, list[str]] = {}
        for name in group:
            cells = _operation_cells(layer, name, recipes)
            if cells != _cells(recipes(layer), roles_of(name)):
                alike.setdefault(cells, []).append(name)
        for cells, names in alike.items():
            yield where, fill(" ".join(names), WIDTH, break_long_words=False), *cells


def _operation_cells(layer: str, operation: str, recipes: Recipes) -> Row:
    return _cells(recipes(layer, operation), roles_of(operation))


def _cells(recipe: Recipe, used: Iterable[str]) -> Row:
    return tuple(str(getattr(recipe, role)) if role in used else UNUSED for role in ROLES)


def difference(
    names: tuple[str, str], recipes: tuple[Recipe, Recipe], overrides: Sequence[Sequence[Override]]
) -> Table:
    """Return a table with a row for each role with two values, and for each override that only one policy has."""
    pairs = ((role, *(str(getattr(recipe, role)) for recipe in recipes)) for role in ROLES)
    rows: list[Row] = [("role", *names), *((role, mine, theirs) for role, mine, theirs in pairs if mine != theirs)]
    return aligned([*rows, *_overrides(*overrides)])


def _overrides(mine: Sequence[Override], theirs: Sequence[Override]) -> Iterator[Row]:
    for override in mine:
        if override not in theirs:
            yield "override", _broken(override), ""
    for override in theirs:
        if override not in mine:
            yield "override", "", _broken(override)


def _broken(override: Override) -> str:
    return fill(str(override), OVERRIDE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
