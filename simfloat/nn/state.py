"""A model's numbers as arrays by path: what a state must be to be loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Parameter
from simfloat.nn.module import Module


def fitting_arrays(model: Module, state: Mapping[str, Any]) -> list[tuple[Parameter, NDArray]]:
    """Every parameter of the model with a copy of its new numbers; ValueError unless all of the state fits."""
    if not isinstance(state, Mapping):
        raise ValueError(f"load_state_dict takes arrays by path, as state_dict gives, got a {type(state).__name__}.")
    listed, names = dict(model.named_parameters()), dict(occurrences(model))
    missing, unknown = [path for path in listed if path not in state], [key for key in state if key not in names]
    if missing or unknown:
        raise ValueError(f"The state does not fit the model: missing {missing}, unknown {unknown}.")
    arrays = {path: _array(path, names[path], state[path]) for path in state}
    first = {id(parameter): path for path, parameter in listed.items()}
    for path, parameter in names.items():
        name = first[id(parameter)]
        if path in arrays and not np.array_equal(arrays[path], arrays[name], equal_nan=True):
            raise ValueError(f"{name} and {path} are one parameter; the state gives it different numbers.")
    return [(parameter, arrays[path]) for path, parameter in listed.items()]


def occurrences(module: Module, path: str = "") -> Iterator[tuple[str, Parameter]]:
    """Pairs of path and parameter, a parameter that occurs several times under each of its paths."""
    above = f"{path}." if path else ""
    for name, parameter in module._parameters.items():
        yield above + name, parameter
    for name, child in module._modules.items():
        yield from occurrences(child, above + name)


def _array(path: str, parameter: Parameter, value: Any) -> NDArray:
    array = np.array(as_operand(value, path))
    if array.shape != parameter.shape:
        raise ValueError(f"{path} has shape {parameter.shape}, the state {array.shape}.")
    return array
