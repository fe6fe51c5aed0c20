"""Checkpoints of a training in a folder: files, manifest, lock, and the comparison of two manifests.

Only one training at a time writes to a folder; its lock ends with the process, even if that is killed. The manifest
lists the policy, the seed, the model, options and data by name. The two newest checkpoints are kept, and `read` uses
the newest undamaged one. The comparison lists the names that differ, and checks which differences are allowed.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from simfloat.common import Table, __version__, did_you_mean, file_path, is_integer, table, warn
from simfloat.policy import Policy
from simfloat.simulation import Simulation, Switching
from simfloat.train import states as state_file
from simfloat.train.states import has_state
from simfloat.train.step import TrainingStep
from simfloat.uninterrupted import uninterrupted

#: The lock file. It contains the number of the process, and is removed when the training ends.
LOCK_FILE = ".lock"

#: (process, path) -> the holder of the lock; the system would let the same process lock the file again.
_holders: dict[tuple[int, str], object] = {}


class FolderInUse(ValueError):
    """Another training, or another run, is using the folder."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """A ``with`` block in which no other training writes to the folder; the folder is created if it is missing.

    Raises FolderInUse, which names the process, if another training writes there now, and OSError if the folder is not
    writable. A killed process leaves no lock. If the file system has no locks, a UserWarning says so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = os.getpid(), os.path.realpath(folder)
    holder, descriptor = object(), None
    try:
        if _holders.setdefault(key, holder) is not holder:
            raise FolderInUse(_refusal(folder, f"{os.getpid()}, this one"))
        with uninterrupted():
            descriptor = _open_locked_file(folder)
        yield
    finally:
        with uninterrupted():
            if descriptor is not None:
                _release(folder / LOCK_FILE, descriptor)
            if _holders.get(key) is holder:
                del _holders[key]


def _open_locked_file(folder: Path) -> int:
    """Return the descriptor of the lock file, after locking it and writing the number of this process to it."""
    path = folder / LOCK_FILE
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock_file(descriptor)
        except (BlockingIOError, PermissionError):
            owner = os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            raise FolderInUse(_refusal(folder, owner or "unknown")) from None
        except OSError as error:
            warn(f"{folder} cannot be locked ({error.strerror}): make sure that no other training writes there.")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
        os.close(descriptor)  # the previous training has removed this file in the meantime


def _release(path: Path, descriptor: int) -> None:
    """Remove the file while it is locked, so that no other process locks it; on Windows, after closing it."""
    if sys.platform != "win32":
        path.unlink(missing_ok=True)
    os.close(descriptor)
    if sys.platform == "win32":
        with suppress(OSError):  # another process has opened it
            path.unlink(missing_ok=True)


def _lock_file(descriptor: int) -> None:
    """Lock a file, or raise OSError immediately."""
    if sys.platform != "win32":
        import fcntl

        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt

        os.lseek(descriptor, 2**30, os.SEEK_SET)  # Windows forbids reading locked bytes; others must read the start
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)


def _refusal(folder: Path, owner: str) -> str:
    return (
        f"Another training writes its checkpoints to {folder}: process {owner}. Wait until it has ended, or use "
        "another folder; resume= may be a folder that another training writes to."
    )


#: Manifest keys: when the training began, which identifies it, and the changes since then.
BEGUN, CHANGES = "begun", "changes"


class Manifest(dict[str, Any]):
    """Names and values that describe a training; it prints as a table.

    The name of an option contains the part that it belongs to, as in ``optimizer.lr``. Values are numbers, text, None,
    and tuples and lists of them.
    """

    def __repr__(self) -> str:
        return self._table()

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def _table(self) -> Table:
        return table([("name", "value"), *((name, str(value)) for name, value in self.items())])


def new_manifest(step: TrainingStep, schedule: Any, switching: Any, simulation: Simulation) -> Manifest:
    """Return the manifest of a training that begins now; the data of the first batches are added later."""
    policy = simulation.policy if switching is None else simulation.first_policy  # before the rule changed it
    options = step.options(schedule)
    return Manifest(
        {
            BEGUN: datetime.now(UTC).isoformat(),
            **_versions(),
            **step.versions(),
            "policy": policy.name,
            **_roles("policy", policy),
            **_rule(switching),
            "seed": simulation.seed,
            "model": value_text(step.model),
            "loss_fn": value_text(step.loss_fn),
            **_option_entries("optimizer", step.optimizer, options["optimizer"]),
            **_option_entries("scaler", step.scaler, options["scaler"]),
            **_option_entries("schedule", schedule, options["schedule"]),
            "clip": plain_value(step.clip),
            "accumulation": plain_value(step.accumulation),
            "replicas": plain_value(step.replicas),
            **{"batch_size": None, "data": []},  # known with the first batches
            "observer": type(simulation.observer).__name__ if has_state(simulation.observer) else None,
            CHANGES: [],
        }
    )


def _versions() -> dict[str, str]:
    import numba  # slow to import, and needed only by kernels

    versions = {"simfloat": __version__, "numpy": np.__version__, "numba": numba.__version__}
    return {**versions, "python": platform.python_version()}


def value_text(value: Any) -> str | None:
    """Return a function's name, or another object's repr without addresses and modules; None for None."""
    if value is None:
        return None
    name = getattr(value, "__name__", None)
    if isinstance(name, str):
        return name
    if type(value).__repr__ is object.__repr__:
        return type(value).__name__
    named = re.sub(r"<function (?:\S*\.)?(\S+) at 0x[0-9a-fA-F]+>", r"\1", repr(value))
    return re.sub(r" at 0x[0-9a-fA-F]+", "", named)


def plain_value(value: Any) -> Any:
    """Return a number, a text, or a tuple of them; for other objects, their text."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(plain_value, value)) if isinstance(value, list | tuple) else value_text(value)


def _option_entries(name: str, part: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of a part under its name, and its options as names below it."""
    kind = None if part is None else type(part).__name__
    return {name: kind, **{f"{name}.{option}": plain_value(value) for option, value in options.items()}}


def _roles(name: str, policy: Policy) -> dict[str, Any]:
    """Return the roles of a policy that are not at their default, and its overrides."""
    try:
        policy_fields = policy.to_dict()
    except ValueError:  # an accumulator without a text form in policy files
        return {f"{name}.text": str(policy)}
    overrides = policy_fields.pop("overrides", [])
    roles = {f"{name}.{role}": value for role, value in policy_fields.items() if role not in ("name", "source")}
    for number, override in enumerate(overrides):
        roles[f"{name}.overrides.{number}"] = ", ".join(f"{key}={value}" for key, value in override.items())
    return roles


def _rule(switching: Any) -> dict[str, Any]:
    """Return the entries of a rule for switching; a `Switching` also has the roles of its two policies."""
    described = {"switching": value_text(switching)}
    if isinstance(switching, Switching):
        described |= _roles("switching.narrow", switching.narrow) | _roles("switching.wide", switching.wide)
    return described


#: The number of checkpoints that are kept: if the newest one is damaged, the one before it is used.
KEPT_CHECKPOINTS = 2

#: Checkpoint keys: the number of batches taken, and the manifest of the training.
BATCHES_TAKEN, MANIFEST = "batches", "manifest"

#: Checkpoint key: True if all actions after the latest step, such as evaluation, were completed.
CONCLUDED = "concluded"

#: Keys that every checkpoint must contain.
NEEDED_STATES = ("model", "optimizer", "simulation", "history", BATCHES_TAKEN)

_NAME = re.compile(r"checkpoint-(\d+)-step-\d+\.states")
_UNFINISHED = re.compile(rf"\.checkpoint-\d+-step-\d+\.states\.\w+{re.escape(state_file.UNFINISHED)}")


class Checkpoints:
    """The checkpoints in a folder, numbered in the order in which they were written."""

    def __init__(self, folder: Any) -> None:
        self.folder = file_path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"Checkpoints are kept in a folder; {self.folder} is a file.")
        self._damaged: list[Path] = []

    def is_same(self, other: Checkpoints) -> bool:
        """True if the other folder is this one."""
        return self.folder.resolve() == other.folder.resolve()

    def lock(self) -> AbstractContextManager[None]:
        """A ``with`` block in which only this training writes to the folder; the folder is created if it is missing.

        Raises OSError, before any step, if the folder is not writable.
        """
        return lock_folder(self.folder)

    def write(self, step: int, states: Mapping[str, Any]) -> None:
        """Write a checkpoint, and then remove all but the newest two of this training.

        Checkpoints of other trainings, which began at other times, and other files are not removed.
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
        """Return the newest undamaged checkpoint with its states; None if the folder has no checkpoint.

        A UserWarning names a damaged checkpoint, or another file with a checkpoint's name, and the one before it is
        used. Raises ValueError if there are only such files.
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
            raise ValueError(f"{' '.join(errors)} There is no earlier checkpoint; resume=None starts a new training.")
        return None

    def _files(self) -> dict[int, Path]:
        """Return the checkpoints by number."""
        if not self.folder.exists():
            return {}
        matches = {path: _NAME.fullmatch(path.name) for path in self.folder.iterdir()}
        return {int(match[1]): path for path, match in matches.items() if match}


def manifest(folder: Any) -> Manifest:
    """Return the manifest of a training from the newest undamaged checkpoint in a folder.

    The manifest contains the number of steps, the time at which the training began, versions, the roles of the policy,
    the seed, the model, the options of optimizer, loss scale and schedule, and digests of the first batches. The key
    ``changes`` lists the differences that `allow` permitted on resuming, each with its step.

    Parameters:
        folder: the folder of the checkpoints.

    Returns:
        A dictionary of JSON types that prints as a table.

    Raises:
        ValueError: if the folder has no checkpoint, or none with a manifest.

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
        raise ValueError(f"{path} has no manifest, because an older version wrote it.")
    return Manifest({"steps": len(states["history"]["steps"]["loss"]), **states[MANIFEST]})


def _read(path: Path) -> dict[str, Any]:
    """Return the states of a checkpoint; raise ValueError, naming the file, if it is not a checkpoint."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a checkpoint.")
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{path} is a link to a missing file, not a checkpoint.")
    states = state_file.read(path)
    if missing := [name for name in NEEDED_STATES if name not in states]:
        raise ValueError(f"{path} is not a checkpoint of fit: it contains {', '.join(states)}, but no {missing[0]}.")
    for name, state in states.items():
        if not KINDS.get(name, _is_any)(state):
            raise ValueError(f"{path} is not a checkpoint of fit: its {name} is {_state_text(state)}.")
    return states


def _state_text(state: Any) -> str:
    """Describe an invalid state for a message."""
    return f"a dictionary of {', '.join(map(str, state)) or 'nothing'}" if isinstance(state, Mapping) else repr(state)


def _is_any(state: Any) -> bool:
    return True


def _is_mapping(state: Any) -> bool:
    return isinstance(state, Mapping)


def _is_history(state: Any) -> bool:
    """True if the state is a history: columns of one length under ``steps``, and others under ``evaluations``."""
    if not isinstance(state, Mapping) or not all(isinstance(state.get(n), Mapping) for n in ("steps", "evaluations")):
        return False
    steps, evaluations = state["steps"], state["evaluations"]
    is_columns = all(isinstance(x, np.ndarray) and x.ndim == 1 for x in (*steps.values(), *evaluations.values()))
    lengths = [{len(x) for x in columns.values()} for columns in (steps, evaluations)] if is_columns else []
    return is_columns and "loss" in steps and all(len(each) < 2 for each in lengths)


def _is_manifest(state: Any) -> bool:
    if not isinstance(state, Mapping):
        return True  # older versions wrote no manifest
    if not all(isinstance(name, str) for name in state):
        return False
    changes, digests = state.get(CHANGES, []), state.get("data", [])
    are_lists = isinstance(changes, list) and isinstance(digests, list)
    return are_lists and all(isinstance(change, Mapping) and "name" in change for change in changes)


#: Checks of the states from which `fit` itself reads values.
KINDS = {
    "model": _is_mapping, "optimizer": _is_mapping, "scaler": _is_mapping, "simulation": _is_mapping,
    "history": _is_history,
    BATCHES_TAKEN: lambda state: is_integer(state, 0), CONCLUDED: lambda state: isinstance(state, bool),
    MANIFEST: _is_manifest,
}  # fmt: skip


def _begin_time(path: Path) -> Any:
    """Return the time at which the training of a checkpoint began; None if it cannot be read."""
    manifest = state_file.read_state(path, MANIFEST)
    return manifest.get(BEGUN) if isinstance(manifest, Mapping) else None


#: Names that do not change the bits of a training, and may differ.
IGNORED_NAMES = (BEGUN, CHANGES, "simfloat", "numpy", "numba", "torch", "python", "policy")

#: The name of every lambda in Python.
LAMBDA = "<lambda>"


def as_allowed_names(allow: Any) -> tuple[str, ...]:
    """Return the names in `allow`; raise ValueError if they are not text."""
    names = tuple(allow) if isinstance(allow, Iterable) and not isinstance(allow, str) else (allow,)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"allow takes names of a manifest, such as ('lr', 'seed'), got {allow!r}.")
    return names


def check_allowed_names(allow: Iterable[str], *manifests: Mapping[str, Any]) -> None:
    """Raise ValueError, with the nearest valid name, if a name occurs in no manifest."""
    names = [name for name in dict.fromkeys(chain(*manifests)) if name not in (BEGUN, CHANGES)]
    for name in allow:
        if not any(is_allowed((name,), known_name) for known_name in names):
            hint = did_you_mean(name, [*names, *map(short_name, names)])
            raise ValueError(f"allow names {name!r}, which no manifest has. Names: {', '.join(names)}.{hint}")


def is_allowed(allow: Iterable[str], name: str) -> bool:
    """True if `allow` contains the name itself, its last part, or its first part."""
    return any(f".{allowed_name}." in f".{name}." for allowed_name in allow)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names whose values differ, in order; for a part of another kind, only the name of the part.

    Adding an observer is not a difference. If the batch size differs, the values of the batches are not compared. A
    lambda is never a difference, because its text does not identify the function.
    """
    names = [name for name in dict.fromkeys((*before, *now)) if name not in IGNORED_NAMES]
    differ = [name for name in names if _differ(before.get(name, ...), now.get(name, ...))]
    covered = [*["data"] * ("batch_size" in differ), *["observer"] * (before.get("observer") is None)]
    return [
        name for name in differ if name not in covered and not name.startswith(tuple(f"{part}." for part in differ))
    ]


def _differ(before: Any, now: Any) -> bool:
    """True if two values certainly differ."""
    if isinstance(before, tuple) and isinstance(now, tuple) and len(before) == len(now):
        return any(map(_differ, before, now))
    if isinstance(before, str) and isinstance(now, str):
        lines = zip_longest(before.split("\n"), now.split("\n"), fillvalue="")
        return any(old != new and LAMBDA not in old + new for old, new in lines)
    return bool(before != now)


def list_differences(names: Iterable[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return a line for each difference with both values, and advice on how to resume."""
    parts = list(dict.fromkeys(map(short_name, names)))
    policy = ["policy"] * ("policy" in parts and before.get("policy") != now["policy"])
    lines = [f"  {name}: {_both_values_text(before.get(name, ...), now.get(name, ...))}" for name in (*policy, *names)]
    advice = f"Resume it with the earlier values; or use the present ones, by allow={parts}."
    return "\n".join([*lines, advice])


def short_name(name: str) -> str:
    """Return the name of an entry for `allow`: the option of an optimizer or scaler, otherwise the part."""
    part, _, option = name.partition(".")
    return option if part in ("optimizer", "scaler") and option else part


def _both_values_text(before: Any, now: Any) -> str:
    """Return two values as text; for several lines or batches, the first pair that differs."""
    if isinstance(before, list) and isinstance(now, list):
        number = next(i for i, (old, new) in enumerate(zip_longest(before, now)) if old != new)
        return f"batch {number} has other values"
    if isinstance(before, str) and isinstance(now, str):
        lines = zip_longest(before.split("\n"), now.split("\n"), fillvalue="nothing")
        before, now = next((old.strip(), new.strip()) for old, new in lines if old != new)
    before, now = ("not given" if value is ... else str(value).partition("\n")[0] for value in (before, now))
    return f"{before}, now {now}"
