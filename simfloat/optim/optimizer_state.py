"""The state_dict of an optimizer, in PyTorch's layout: how it is made and read."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_cpu, on_device_of
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Parameter
from simfloat.optim.groups import LABELS, name_of
from simfloat.updates.update_arithmetic import STEP

if TYPE_CHECKING:
    from simfloat.optim.optimizer import Optimizer

#: What PyTorch's states say of how it runs, and not of what it computes.
EXECUTION_KEYS = {"foreach", "fused", "capturable", "differentiable"}

Groups = list[dict[str, Any]]
State = list[dict[str, NDArray]]


def pack_state(optimizer: Optimizer) -> dict[str, Any]:
    """The state: copies of the arrays kept for every parameter, by its number, and the groups with these numbers."""
    state = {i: {name: array.copy() for name, array in entry.items()} for i, entry in enumerate(optimizer.state)}
    numbers = iter(range(len(state)))
    groups = [{**group, "params": [next(numbers) for _ in group["params"]]} for group in optimizer.param_groups]
    return {"state": {number: entry for number, entry in state.items() if entry}, "param_groups": groups}


def unpack_state(optimizer: Optimizer, data: Any) -> tuple[Groups, State]:
    """The groups and the arrays of a state, copied, for the parameters of this optimizer; ValueError if it is not its.

    The numbers of parameters may be texts, as JSON makes them. A state of PyTorch's optimizer of the kind is one.
    """
    if not isinstance(data, Mapping) or set(data) != {"state", "param_groups"}:
        raise ValueError("load_state_dict takes what state_dict gives: a dictionary of 'state' and 'param_groups'.")
    groups, state = data["param_groups"], data["state"]
    if not isinstance(groups, list) or not isinstance(state, Mapping):
        raise ValueError(
            "load_state_dict takes what state_dict gives: a list of 'param_groups', and 'state' by number."
        )
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"The state is of {len(groups)} groups, the optimizer has {len(optimizer.param_groups)}.")
    new_groups = [_group(optimizer, mine, group) for mine, group in zip(optimizer.param_groups, groups, strict=True)]
    params = optimizer.params
    if (numbers := [number for group in groups for number in group["params"]]) != list(range(len(params))):
        raise ValueError(f"The groups of a state number the parameters from 0 on, in their order; got {numbers!r}.")
    unknown = [key for key in state if str(key) not in map(str, range(len(params)))]
    if unknown:
        raise ValueError(f"The state is of parameter {unknown[0]!r}, the optimizer has {len(params)}, from 0.")
    entries = {str(key): entry for key, entry in state.items()}
    read = [optimizer.read({name: group[name] for name in optimizer.options}) for group in new_groups]
    options = [chosen for chosen, group in zip(read, new_groups, strict=True) for _ in group["params"]]
    fitting = [_fitting(optimizer, number, entries.get(str(number), {})) for number in range(len(params))]
    for number, (entry, chosen) in enumerate(zip(fitting, options, strict=True)):
        _check_complete(optimizer, number, entry, chosen)
    return new_groups, fitting


def _check_complete(optimizer: Optimizer, number: int, entry: Mapping[str, Any], options: SimpleNamespace) -> None:
    """Raise ValueError for a parameter of which some is kept, but not all that its updates go on from."""
    parameter = optimizer.params[number]
    needed = optimizer.required_names(parameter.shape, options)
    if missing := [name for name in needed if entry and name not in entry]:
        raise ValueError(
            f"The state of {name_of(number, parameter)} has no {' and no '.join(missing)}; {type(optimizer).__name__} "
            f"goes on from {', '.join(needed)}. Load a complete state, or leave out this parameter's to begin anew."
        )


def _group(optimizer: Optimizer, mine: dict[str, Any], group: Any) -> dict[str, Any]:
    """The group with the options that a state gives it."""
    kind, required_keys = type(optimizer).__name__, {*optimizer.options, "params"}
    if not isinstance(group, Mapping) or not isinstance(group.get("params"), list):
        raise ValueError(f"A group of a state is a dictionary with a list of 'params', got {group!r}.")
    marks = {key for key, mark in optimizer.marks.items() if group.get(key) == mark}
    missing = required_keys.difference(group)
    unknown = [key for key in group if key not in required_keys.union(LABELS, EXECUTION_KEYS, marks)]
    if missing or unknown:
        raise ValueError(f"The state is not {kind}'s: missing {sorted(missing)}, unknown {unknown}.")
    if len(group["params"]) != len(mine["params"]):
        theirs, ours = len(group["params"]), len(mine["params"])
        raise ValueError(f"The state is of {theirs} parameters, in a group where the optimizer has {ours}.")
    options = vars(optimizer.read({name: group[name] for name in optimizer.options}))
    labels = {name: (group if name in group else mine)[name] for name in LABELS if name in group or name in mine}
    return {"params": mine["params"], **labels, **options}


def _fitting(optimizer: Optimizer, number: int, entry: Any) -> dict[str, NDArray]:
    """Copies of the arrays in a state's entry for one parameter; ValueError unless they are ones that it has."""
    parameter = optimizer.params[number]
    name, shapes = name_of(number, parameter), optimizer.shapes(parameter.shape)
    if not isinstance(entry, Mapping) or any(key not in shapes for key in entry):
        got = f"some under {', '.join(map(str, entry))}" if isinstance(entry, Mapping) else repr(entry)
        raise ValueError(f"The state of {name} must hold arrays under {' or '.join(shapes)}, got {got}.")
    present = {key: value for key, value in entry.items() if value is not None}
    arrays = {key: as_operand(value, f"{key} of {name}") for key, value in present.items()}
    arrays = {key: _copy_to_device(array, parameter) for key, array in arrays.items()}
    for key, array in arrays.items():
        check_shape(f"{key} of {name}", array, shapes[key], parameter)
    if not _is_count(arrays.get(STEP, np.zeros(()))):
        raise ValueError(f"{STEP} of {name} must be a whole number of at least 0, got {arrays[STEP]}.")
    return arrays


def _copy_to_device(array: NDArray, parameter: Parameter) -> NDArray:
    """A copy, where the parameter is; of a single number where it is used, on the CPU."""
    placed = on_device_of(array, parameter.numbers) if array.ndim else on_cpu(array)
    return np.array(placed, like=placed)


def _is_count(value: NDArray) -> bool:
    """Whether a number can be that of a parameter's steps."""
    return bool(np.isfinite(value) and value >= 0 and value == np.floor(value))


def check_shape(what: str, array: NDArray, shape: tuple[int, ...], parameter: Parameter) -> None:
    """Raise ValueError for an array of another shape than this, that of the parameter or one that follows from it."""
    if array.shape != shape:
        whose = "the parameter's shape" if shape == parameter.shape else "the shape"
        raise ValueError(f"{what} must have {whose} {shape}, got {array.shape}.")
