"""Where files are, as users say it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def file_path(path: Any) -> Path:
    """The path of a file or a folder; ValueError for what is none."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ValueError(f"A path is text or a pathlib.Path, got {path!r}.")
    return Path(path)
