"""Checkpoints of a training in a folder: the two newest are kept, and the newest undamaged one is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from simfloat.checks import file_path, is_integer, warn
from simfloat.train import state_file
from simfloat.train.lock import lock_folder
from simfloat.train.manifest import BEGUN, CHANGES, Manifest

#: How many are kept: should the newest one be damaged, there is the one before it.
KEPT_CHECKPOINTS = 2

#: Under these names a checkpoint holds how many batches were taken, and what training it is of.
BATCHES_TAKEN, MANIFEST = "batches", "manifest"

#: Under this name a checkpoint tells whether all was done that follows its latest step.
CONCLUDED = "concluded"

#: What a file of states must hold to be one.
NEEDED_STATES = ("model", "optimizer", "simulation", "history", BATCHES_TAKEN)

_NAME = re.compile(r"checkpoint-(\d+)-step-\d+\.states")
_UNFINISHED = re.compile(rf"\.checkpoint-\d+-step-\d+\.states\.\w+{re.escape(state_file.UNFINISHED)}")


class Checkpoints:
    """The checkpoints in a folder, which are numbered as they were written."""

    def __init__(self, folder: Any) -> None:
        self.folder = file_path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"Checkpoints are kept in a folder; {self.folder} is a file.")
        self._damaged: list[Path] = []

    def is_same(self, other: Checkpoints) -> bool:
        """Whether the other folder is this one."""
        return self.folder.resolve() == other.folder.resolve()

    def lock(self) -> AbstractContextManager[None]:
        """A ``with`` block in which this training alone writes to the folder, which is made if there is none.

        OSError, before any step is made, where nothing can be written there.
        """
        return lock_folder(self.folder)

    def write(self, step: int, states: Mapping[str, Any]) -> None:
        """Write a checkpoint; once it is complete, all but the newest two of this training are removed.

        Those of other trainings, which began at other times, stay, and so does what is no checkpoint.
        """
        files = self._files()
        begun = states[MANIFEST][BEGUN]
        number = 1 + max(files, default=0)
        state_file.write(self.folder / f"checkpoint-{number:06d}-step-{step}.states", states)
        older = [path for _, path in sorted(files.items()) if path not in self._damaged and _begin_time(path) == begun]
        unfinished = [path for path in self.folder.iterdir() if _UNFINISHED.fullmatch(path.name)]
        for path in (*older[: len(older) - KEPT_CHECKPOINTS + 1], *self._damaged, *unfinished):
            path.unlink(missing_ok=True)
        self._damaged = []

    def read(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint and its states; None if there is none.

        A damaged one, or what else has a checkpoint's name, is named in a UserWarning and the one before it used.
        Raises ValueError if there is nothing else.
        """
        errors: list[str] = []
        for _, path in sorted(self._files().items(), reverse=True):
            try:
                states = _read(path)
            except FileNotFoundError:  # a training that writes there has removed it since
                return self.read()
            except state_file.DamagedFile as error:
                self._damaged.append(path)
                errors.append(str(error))
            except ValueError as error:
                errors.append(str(error))
            else:
                if errors:
                    warn(f"{' '.join(errors)} {path.name}, before it, is used.")
                return path, states
        if errors:
            raise ValueError(f"{' '.join(errors)} There is no checkpoint before; resume=None starts anew.")
        return None

    def _files(self) -> dict[int, Path]:
        """The checkpoints by number."""
        if not self.folder.exists():
            return {}
        matches = {path: _NAME.fullmatch(path.name) for path in self.folder.iterdir()}
        return {int(match[1]): path for path, match in matches.items() if match}


def manifest(folder: Any) -> Manifest:
    """Return the manifest of the training whose checkpoints lie in a folder, from the newest undamaged one.

    It names how many steps were made and when the training began, the versions, the policy's roles, the seed, the
    model, the options of optimizer, loss scale and schedule, and digests of the first batches; under ``changes`` what
    `allow` let differ when it was resumed, from which step on. It is a dictionary that JSON takes. It prints as a
    table.

    Raises ValueError where there is no checkpoint, or none that has a manifest.

    Examples:
        >>> x = np.ones((8, 2))
        >>> model = sf.nn.Linear(2, 1, rng=0)
        >>> optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        >>> with sf.simulate("bf16-kahan", seed=5):
        ...     history = sf.train.fit(model, sf.nn.mse_loss, [(x, x[:, :1])] * 3, optimizer, checkpoint=folder)
        >>> manifest = sf.train.manifest(folder)
        >>> manifest["steps"], manifest["policy"], manifest["seed"], manifest["optimizer.lr"]
        (3, 'bf16-kahan', 5, 0.1)
    """
    newest = Checkpoints(folder).read()
    if newest is None:
        raise ValueError(f"There is no checkpoint in {folder}.")
    path, states = newest
    if MANIFEST not in states:
        raise ValueError(f"{path} has no manifest, as those of older versions.")
    return Manifest({"steps": len(states["history"]["steps"]["loss"]), **states[MANIFEST]})


def _read(path: Path) -> dict[str, Any]:
    """The states of a checkpoint; ValueError, naming it, for what is none."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, and no checkpoint.")
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{path} is a link to nothing, and no checkpoint.")
    states = state_file.read(path)
    if missing := [name for name in NEEDED_STATES if name not in states]:
        raise ValueError(f"{path} is no checkpoint of fit: it holds {', '.join(states)}, and no {missing[0]}.")
    for name, state in states.items():
        if not KINDS.get(name, _is_any)(state):
            raise ValueError(f"{path} is no checkpoint of fit: its {name} is {_state_text(state)}.")
    return states


def _state_text(state: Any) -> str:
    """Describe a value that is no valid state, for a message."""
    return f"a dictionary of {', '.join(map(str, state)) or 'nothing'}" if isinstance(state, Mapping) else repr(state)


def _is_any(state: Any) -> bool:
    return True


def _is_mapping(state: Any) -> bool:
    return isinstance(state, Mapping)


def _is_history(state: Any) -> bool:
    """Whether it is a history: columns of one length under ``steps``, and others under ``evaluations``."""
    if not isinstance(state, Mapping) or not all(isinstance(state.get(n), Mapping) for n in ("steps", "evaluations")):
        return False
    steps, evaluations = state["steps"], state["evaluations"]
    is_columns = all(isinstance(x, np.ndarray) and x.ndim == 1 for x in (*steps.values(), *evaluations.values()))
    lengths = [{len(x) for x in columns.values()} for columns in (steps, evaluations)] if is_columns else []
    return is_columns and "loss" in steps and all(len(each) < 2 for each in lengths)


def _is_manifest(state: Any) -> bool:
    if not isinstance(state, Mapping):
        return True  # as none, which older versions wrote
    if not all(isinstance(name, str) for name in state):
        return False
    changes, digests = state.get(CHANGES, []), state.get("data", [])
    are_lists = isinstance(changes, list) and isinstance(digests, list)
    return are_lists and all(isinstance(change, Mapping) and "name" in change for change in changes)


#: Of what kind states are that more is read from than parts restore.
KINDS = {
    "model": _is_mapping, "optimizer": _is_mapping, "scaler": _is_mapping, "simulation": _is_mapping,
    "history": _is_history,
    BATCHES_TAKEN: lambda state: is_integer(state, 0), CONCLUDED: lambda state: isinstance(state, bool),
    MANIFEST: _is_manifest,
}  # fmt: skip


def _begin_time(path: Path) -> Any:
    """Return the time at which the training of a checkpoint began; None where that cannot be read."""
    manifest = state_file.read_state(path, MANIFEST)
    return manifest.get(BEGUN) if isinstance(manifest, Mapping) else None
