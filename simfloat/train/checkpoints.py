"""Checkpoints of a training in a folder: the two newest are kept, and the newest one that is whole is used."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simfloat.hints import warn
from simfloat.train import file
from simfloat.train.parts import checked_path

#: How many are kept: should the newest one be damaged, there is the one before it.
KEPT = 2

_NAME = re.compile(r"checkpoint-(\d+)-step-\d+\.states")
_UNFINISHED = re.compile(rf"\.checkpoint-\d+-step-\d+\.states\.\w+{re.escape(file.UNFINISHED)}")


class Checkpoints:
    """The checkpoints in a folder, which are numbered as they were written."""

    def __init__(self, folder: Any) -> None:
        self.folder = checked_path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"Checkpoints are kept in a folder; {self.folder} is a file.")
        self._damaged: list[Path] = []

    def prepare(self) -> None:
        """Make the folder; OSError, before any step is made, where nothing can be written there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        trial = self.folder / f".{secrets.token_hex(4)}{file.UNFINISHED}"
        trial.touch()
        trial.unlink()

    def write(self, step: int, states: Mapping[str, Any]) -> None:
        """Write a checkpoint; once it is complete, all but the newest two that are whole are removed."""
        files = self._files()
        number = 1 + max(files, default=0)
        file.write(self.folder / f"checkpoint-{number:06d}-step-{step}.states", states)
        whole = [files[n] for n in sorted(files) if files[n] not in self._damaged]
        unfinished = [path for path in self.folder.iterdir() if _UNFINISHED.fullmatch(path.name)]
        for path in (*whole[: len(whole) - KEPT + 1], *self._damaged, *unfinished):
            path.unlink(missing_ok=True)
        self._damaged = []

    def read(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint and its states; None if there is none.

        A damaged one is named in a UserWarning and the one before it used. Raises ValueError if all are damaged.
        """
        errors: list[str] = []
        for _, path in sorted(self._files().items(), reverse=True):
            try:
                states = file.read(path)
            except file.DamagedFile as error:
                self._damaged.append(path)
                errors.append(str(error))
                continue
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
        found = {path: _NAME.fullmatch(path.name) for path in self.folder.iterdir()}
        return {int(match[1]): path for path, match in found.items() if match}
