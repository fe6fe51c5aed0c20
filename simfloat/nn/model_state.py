"""The state_dict of a model: the arrays that it holds, and what a state must be to be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import is_on_gpu, on_device_of
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Parameter


class StateEntry(NamedTuple):
    """A parameter or a buffer: the module that holds it, and its name there."""

    module: Any
    name: str

    @property
    def value(self) -> Parameter | NDArray:
        """The parameter itself, or the buffer's array."""
        return vars(self.module)[self.name]

    @property
    def identity(self) -> tuple[int, str]:
        """What is equal for two that are one: a tied parameter, or a buffer of a module that occurs twice."""
        value = self.value
        return (id(value), "") if isinstance(value, Parameter) else (id(self.module), self.name)

    @property
    def numbers(self) -> NDArray:
        """Its numbers."""
        value = self.value
        return value.numbers if isinstance(value, Parameter) else value

    def store(self, array: NDArray) -> None:
        """Hold these numbers from now on."""
        value = self.value
        if isinstance(value, Parameter):
            value.data = array
        else:
            setattr(self.module, self.name, array)


def as_buffer(value: Any, what: str) -> NDArray:
    """An array that a buffer can hold: integers and truth values as they are, other numbers as float32 or float64."""
    if isinstance(value, np.ndarray | np.generic | int) and (array := np.asarray(value)).dtype.kind in "biu":
        return array
    if is_on_gpu(value) and value.dtype.kind in "biu":
        return value
    return as_operand(value, what)


class Keys(NamedTuple):
    """The keys of a model that a state lacks, and those of the state that the model lacks."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"Keys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def fitting_arrays(
    names: Mapping[str, StateEntry], state: Mapping[str, Any], strict: bool
) -> tuple[list[tuple[StateEntry, NDArray]], Keys]:
    """All that a model takes of a state, each with a copy of its new numbers, and the keys that do not match.

    names has each parameter and buffer under every path where it occurs; a state may name it under any of them. Raises
    ValueError unless all fits that is taken; strict, unless all keys match.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"load_state_dict takes arrays by path, as state_dict gives, got a {type(state).__name__}.")
    entries = {path: entry for path, entry in names.items() if path in state}
    there = {entry.identity for entry in entries.values()}
    missing = [path for path, entry in names.items() if entry.identity not in there]
    keys = Keys(missing, [key for key in state if key not in names])
    if strict and any(keys):
        raise ValueError(
            f"The state does not fit the model: missing {missing}, unknown {keys.unexpected_keys}. With strict=False, "
            "what both have is taken."
        )
    first: dict[tuple[int, str], tuple[str, NDArray]] = {}
    for path, entry in entries.items():
        array = _array(path, entry.numbers, state[path])
        name, first_array = first.setdefault(entry.identity, (path, array))
        if not np.array_equal(array, first_array, equal_nan=array.dtype.kind == "f"):
            kind = "parameter" if isinstance(entry.value, Parameter) else "buffer"
            raise ValueError(f"{name} and {path} are one {kind}; the state gives it different numbers.")
    return [(entries[path], array) for path, array in first.values()], keys


def _array(path: str, before: NDArray, value: Any) -> NDArray:
    """A copy of the new numbers: of the old ones' shape, and of their type where they are no floats."""
    array = on_device_of(as_operand(value, path), before)
    array = np.array(array, like=array)
    if array.shape != before.shape:
        raise ValueError(f"{path} has shape {before.shape}, the state {array.shape}.")
    if before.dtype.kind == "f":
        return array
    with np.errstate(invalid="ignore"):  # numbers that the type lacks
        whole = array.astype(before.dtype)
    if not (whole == array).all():
        raise ValueError(f"{path} holds {before.dtype} numbers, the state others.")
    return whole
