"""The progress bar of a training, drawn by the package rich."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

import numpy as np

from simfloat.status_line import is_line_visible, reserve_line


class ProgressBar:
    """A bar on standard error with loss, scale and steps a second, drawn by the package rich.

    shown: None for where standard error is a terminal and rich is installed. Raises ValueError for True without rich.
    """

    def __init__(self, shown: bool | None, total: int | None) -> None:
        if shown is not None and not isinstance(shown, bool | np.bool):
            raise ValueError(f"progress must be True, False or None, got {shown!r}.")
        if shown and not find_spec("rich"):
            raise ValueError("progress=True needs the package rich: pip install rich.")
        self._bar: Any = None
        self._line = ExitStack()  # that of the terminal, while the bar is shown
        if shown or shown is None and is_line_visible() and find_spec("rich"):
            self._bar = _new_bar()
            self._task = self._bar.add_task("", total=total, loss="", scale="", rate="")

    def advance(self, done: int, row: Mapping[str, Any]) -> None:
        """Show that so many steps are done, and what the latest one was."""
        if self._bar is not None:
            speed = self._bar.tasks[0].speed
            rate = f"{speed:.3g} steps/s" if speed else ""
            scale = f"scale {row['scale']:g}"
            self._bar.update(self._task, completed=done, loss=f"loss {row['loss']:.4g}", scale=scale, rate=rate)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._line.enter_context(reserve_line())
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._line.close()


def _new_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    fields = [TextColumn(f"{{task.fields[{name}]}}") for name in ("loss", "scale", "rate")]
    columns = (BarColumn(), MofNCompleteColumn(), *fields, TimeElapsedColumn())
    # What is printed meanwhile goes above the bar where both are seen; standard output that is a file is left alone.
    redirected = sys.stdout is not None and sys.stdout.isatty()
    return Progress(*columns, console=Console(stderr=True), redirect_stdout=redirected)
