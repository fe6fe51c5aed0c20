"""Checks of what users pass, and the words of errors and warnings."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Iterable
from errno import ENOENT, ENOTDIR
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np


def is_integer(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    """Whether `value` is an integer of Python's or NumPy's from `least` to `most`; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= most)


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError, naming it, for what is no integer of at least `least`."""
    if not is_integer(value, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def check_flags(**flags: Any) -> None:
    """Raise ValueError naming the first that is neither True nor False, as text is not, whatever it says."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool):
            raise ValueError(f"{name} must be True or False, got {value!r}.")


def check_loss_function(loss_fn: Any) -> None:
    """Raise ValueError for what cannot be called as a loss of results and targets."""
    if not callable(loss_fn):
        raise ValueError(f"loss_fn is called as loss_fn(model(x), y); got a {type(loss_fn).__name__}.")
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise ValueError(f"loss_fn is called as loss_fn(model(x), y); got the class {name}: give one of it, {name}().")


def is_torch_model(model: Any) -> bool:
    """Whether a model is PyTorch's, which exists only where PyTorch is imported."""
    return "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module)


def file_path(path: Any) -> Path:
    """The path of a file or a folder; ValueError for what is none."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ValueError(f"A path is text or a pathlib.Path, got {path!r}.")
    return Path(path)


def check_parent(path: Path) -> None:
    """Raise FileNotFoundError or NotADirectoryError, naming the folder, where a file has none to be written to."""
    folder = path.parent
    if not folder.exists():
        raise FileNotFoundError(ENOENT, f"There is no folder {folder}, make it first", str(path))
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, f"{folder} is a file, and no folder", str(path))


def did_you_mean(name: object, known: Iterable[str], most: int = 1) -> str:
    """A sentence for the end of a message, with a space before it: the known names most like this one; else empty."""
    from difflib import get_close_matches  # only a mistake needs it

    near = get_close_matches(str(name), list(known), n=most)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def type_name(value: object) -> str:
    """The type of a value as a message names it: with its package where that is another one that has such a name."""
    package = type(value).__module__.partition(".")[0]
    return f"{package}.{type(value).__name__}" if package == "torch" else type(value).__name__


def warn(message: str) -> None:
    """Give a UserWarning that points at the line of the user's from which the library was entered."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
