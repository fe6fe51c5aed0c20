"""`save` and `load`: the states of models, optimizers, schedules, simulations and recorders in one file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from simfloat.checks import file_path
from simfloat.environment import in_usual_environment
from simfloat.train import state_file

__all__ = ["load", "save"]


@in_usual_environment
def save(path: str | os.PathLike[str], **parts: Any) -> None:
    """Write the states of models, optimizers, loss scales, schedules, simulations and recorders to a file by name.

        sf.save("run.states", model=model, optimizer=optimizer, simulation=sim, epoch=3)

    A part has `state_dict` and `load_state_dict`, as PyTorch's have too, or as a simulation `state` and `load_state`.
    Numbers, text, arrays, those of :func:`simfloat.array` too, tensors of PyTorch, and lists, tuples and dicts of them
    are kept as they are. The file is
    complete or not there at all: what stood at `path` before is replaced once all has reached the disk, and `load`
    knows from a checksum whether it is what was written.

    Raises ValueError for a part that cannot be kept, and OSError where the file cannot be written.

    Examples:
        >>> model = sf.nn.Linear(2, 1, rng=0)
        >>> sf.save(folder / "model.npz", model=model)
        >>> sf.load(folder / "model.npz", model=sf.nn.Linear(2, 1))
        {'model': {'weight': array([[ 0.19369308, -0.32557075]]), 'bias': array([-0.64916147])}}
    """
    target = file_path(path)
    if not parts:
        raise ValueError("save takes what is to be saved by name, such as model=model; got nothing.")
    state_file.write(target, part_states(parts))


@in_usual_environment
def load(path: str | os.PathLike[str], **parts: Any) -> dict[str, Any]:
    """Restore what `save` wrote into models, optimizers, loss scales, schedules, simulations and recorders, by name.

        epoch = sf.load("run.states", model=model, optimizer=optimizer, simulation=sim)["epoch"]

    Gives the states of all parts that the file holds by name, those that are not restored too. A training of
    which all parts are restored, the simulation with its random streams too, goes on with the same bits as if it had
    not been interrupted.

    Raises OSError where the file cannot be read, and ValueError, naming the file, if it is damaged, or if a part is not
    in it or does not fit; then nothing is restored.

    Examples:
        >>> model, other = sf.nn.Linear(2, 1, rng=0), sf.nn.Linear(2, 1, rng=1)
        >>> sf.save(folder / "model.npz", model=model)
        >>> parts = sf.load(folder / "model.npz", model=other)
        >>> bool(np.all(other.weight.data == model.weight.data))
        True
    """
    source = file_path(path)
    states = state_file.read(source)
    restore_parts(source, states, parts)
    return states


def part_states(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of each part by its name."""
    return {name: _part_state(part) for name, part in parts.items()}


def restore_parts(source: Path, states: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
    """Bring the parts into these states: all of them, or none if one does not fit."""
    for name, part in parts.items():
        if name not in states:
            raise ValueError(f"{source} holds no {name!r}; it holds {', '.join(states)}.")
        if not has_state(part):
            raise ValueError(f"{name} is restored into a model, optimizer or other part, not a {type(part).__name__}.")
    before = deepcopy(part_states(parts))  # the state of a PyTorch model shares its memory
    begun: list[str] = []
    try:
        for name, part in parts.items():
            begun.append(name)
            _load_part(part, states[name])
    except Exception as error:  # whatever a state of another kind is refused with, by parts of others too
        for name in begun[:-1]:
            _load_part(parts[name], before[name])
        with suppress(Exception):  # others than ours may have taken half of it
            _load_part(parts[begun[-1]], before[begun[-1]])
        what = "" if isinstance(error, ValueError | RuntimeError) else f"{type(error).__name__}: "
        raise ValueError(f"{begun[-1]} in {source} does not fit: {what}{error}") from error


def has_state(part: Any) -> bool:
    """Whether it has a state that can be restored."""
    return not isinstance(part, type) and (hasattr(part, "load_state_dict") or hasattr(part, "load_state"))


def _part_state(part: Any) -> Any:
    if not has_state(part):
        return part
    return part.state_dict() if hasattr(part, "load_state_dict") else part.state


def _load_part(part: Any, state: Any) -> None:
    if "torch" in sys.modules and isinstance(part, sys.modules["torch"].optim.Optimizer):
        from simfloat.train.torch_moments import check_moments

        check_moments(part, state)
    load = part.load_state_dict if hasattr(part, "load_state_dict") else part.load_state
    load(state)
