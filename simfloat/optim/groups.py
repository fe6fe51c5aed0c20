"""Parameter groups, read from what users pass to an optimizer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from simfloat.autodiff import Parameter, Tensor
from simfloat.checks import did_you_mean, type_name

#: What a group may hold beside its parameters and options: PyTorch's names, a label of the user's, what schedules keep.
LABELS = ("param_names", "name", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum")


def groups_in(params: Any) -> list[Mapping[str, Any]]:
    """The groups that an optimizer is given: parameters, (name, parameter) pairs, or dictionaries of a group each."""
    entries = list_parameters(params)
    if not entries:
        raise ValueError("An optimizer needs parameters; got none.")
    groups: list[Mapping[str, Any]] = [entry for entry in entries if isinstance(entry, Mapping)]
    if not groups:
        return [{"params": entries}]
    if len(groups) < len(entries):
        raise ValueError("An optimizer takes parameters, or dictionaries of parameter groups; got both.")
    return groups


def read_group(group: Any, defaults: Mapping[str, Any], existing: Collection[Parameter]) -> dict[str, Any]:
    """A group's parameters and options, those that it does not name at their defaults.

    Raises ValueError for what is no option, no parameter, and for a parameter that is given twice or `taken` already.
    """
    if not isinstance(group, Mapping) or "params" not in group:
        raise ValueError(f"A parameter group is a dictionary with 'params' and options, got {group!r}.")
    check_names(group, defaults)
    members = group["params"]
    params, names = _split_names([members] if isinstance(members, Parameter) else list_parameters(members))
    check_distinct(params, existing)
    labels = {"param_names": names} if names else {}
    return {"params": params, **labels, **defaults, **{name: group[name] for name in group if name != "params"}}


def check_names(group: Mapping[Any, Any], options: Collection[str]) -> None:
    """Raise ValueError, with the nearest name, for one in a group that is neither an option nor a label."""
    allowed_names = [*options, *LABELS]
    for name in group:
        if name not in allowed_names and name != "params":
            hint = did_you_mean(name, allowed_names)
            raise ValueError(f"A parameter group has no option {name!r}. Options: {', '.join(allowed_names)}.{hint}")


def check_distinct(params: list[Any], existing: Collection[Parameter] = (), taker: str = "An optimizer") -> None:
    """Raise ValueError for what is no parameter, and for a parameter that comes twice, or is `taken` already."""
    seen = {id(parameter) for parameter in existing}
    for number, parameter in enumerate(params, len(seen)):
        if not isinstance(parameter, Parameter):
            raise ValueError(f"{taker} takes model.parameters(), got a {type_name(parameter)} among them.")
        if id(parameter) in seen:
            raise ValueError(f"{name_of(number, parameter)} was given twice; each parameter is given once.")
        seen.add(id(parameter))


def name_of(number: int, parameter: Parameter) -> str:
    """What a message calls the parameter of this number."""
    return parameter.path or f"parameter {number}"


def list_parameters(params: Any, taker: str = "An optimizer") -> list[Any]:
    """What is given as parameters, in its order; ValueError for what has none."""
    if isinstance(params, Tensor | set | frozenset | Mapping | str) or not isinstance(params, Iterable):
        kind = type(params).__name__
        raise ValueError(f"{taker} takes model.parameters() or a list of parameters in their order, got a {kind}.")
    return list(params)


def _split_names(entries: list[Any]) -> tuple[list[Any], list[str]]:
    """The parameters of (name, parameter) pairs, and their names; of parameters without names, no names."""
    pairs = [entry for entry in entries if isinstance(entry, tuple)]
    if not pairs:
        return entries, []
    if len(pairs) < len(entries) or not all(len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise ValueError("Parameters are given as pairs (name, parameter), all of them or none; got others among them.")
    return [parameter for _, parameter in pairs], [name for name, _ in pairs]
