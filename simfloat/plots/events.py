"""Which layers lose what, and in which phase: the counts of a recorder as a heat map."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from simfloat.plots.heat_map import draw_heat_map
from simfloat.telemetry import Recorder
from simfloat.telemetry.entries import COUNTED, counted
from simfloat.telemetry.query import PHASES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = tuple(kind for kind in COUNTED if kind != "total")


def draw_events(
    axes: Axes, recorder: Recorder, kind: str = "underflow", path: str | None = None, *, title: str = ""
) -> None:
    """Draw which share of its results has such events at each path (rows) in each phase (columns) that was seen.

    kind is one of the counts of `Recorder.counts`; path, a shell pattern, selects paths. Where nothing was counted, or
    no such event, a cell is blank. `fit_figure` makes room for the names.

    Raises ValueError for what is no recorder, an unknown kind, a recorder that counted nothing, and a path that matches
    nothing.
    """
    if not isinstance(recorder, Recorder):
        raise ValueError(f"recorder must be a simfloat.Recorder, got a {type(recorder).__name__}.")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    recorder.counts(path)  # refuses a path that matches nothing
    entries = [(key, events) for key, events in recorder.entries() if fnmatchcase(key.path, path or "*")]
    if not entries:
        raise ValueError("The recorder counted nothing.")
    paths = list(dict.fromkeys(key.path for key, _ in entries))
    phases = [phase for phase in PHASES if any(key.phase == phase for key, _ in entries)]
    events, total = np.zeros((2, len(paths), len(phases)))
    for key, vector in entries:
        cell, counts = (paths.index(key.path), phases.index(key.phase)), counted(vector)
        events[cell] += counts[kind]
        total[cell] += counts["total"]
    share = np.divide(events, total, out=np.zeros_like(events), where=total > 0)
    draw_heat_map(axes, [path or "-" for path in paths], phases, share, title=title, label=f"{kind}, share of results")
