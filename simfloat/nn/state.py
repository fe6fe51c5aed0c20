"""A model's numbers as arrays by path: what a state must be to be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Parameter


def fitting_arrays(
    listed: Mapping[str, Parameter], names: Mapping[str, Parameter], state: Mapping[str, Any]
) -> list[tuple[Parameter, NDArray]]:
    """Every parameter of a model with a copy of its new numbers; ValueError unless all of the state fits.

    listed holds each parameter once, under its path; names holds it under every path where it occurs.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"load_state_dict takes arrays by path, as state_dict gives, got a {type(state).__name__}.")
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


def _array(path: str, parameter: Parameter, value: Any) -> NDArray:
    array = np.array(as_operand(value, path))
    if array.shape != parameter.shape:
        raise ValueError(f"{path} has shape {parameter.shape}, the state {array.shape}.")
    return array
