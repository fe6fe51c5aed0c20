"""Heat maps, one colour a cell over powers of ten; among them the counts of a recorder by layer and phase."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from simfloat.checks import as_rectangular_array
from simfloat.plots.curves import plain_label, power_text
from simfloat.plots.figure import LARGEST, NORMAL, SMALL, check_drawable
from simfloat.telemetry import Recorder
from simfloat.telemetry.entries import COUNT_NAMES, counts_by_name
from simfloat.telemetry.query import PHASES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: From light to dark; readable in grey and by colour-blind readers.
COLORS = "YlGnBu"

#: Cells that are smaller than the largest by so much look alike.
DECADES = 6

#: So do all below this.
LEAST = 1e-250

#: A line of small text, in inches.
LINE = 1.2 * SMALL / 72


def draw_heat_map(
    axes: Axes,
    rows: Sequence[str],
    columns: Sequence[str],
    values: ArrayLike,
    *,
    title: str = "",
    label: str = "",
    most: float | None = None,
) -> None:
    """Draw values (rows, columns), none of them negative, in logarithmic colours, with a bar that tells them.

    Zeros and what is not finite are left blank; what lies more than six powers of ten below the largest has one colour.
    Where rows are lower than their names, only every second, third ... of them is named.
    As for an attribution: ``draw_heat_map(axes, *sf.attribute(...).grid())``. Maps that are to be compared are given
    one value, `most`: the colours of all of them reach from there six powers of ten down.

    Raises ValueError if the names do not fit the values, without any, and for a `most` that is not positive.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    numbers = as_rectangular_array(values, "values", np.float64)
    if numbers.shape != (len(rows), len(columns)):
        raise ValueError(
            f"{len(rows)} rows and {len(columns)} columns are named; the values have shape {numbers.shape}."
        )
    if not numbers.size:
        raise ValueError(f"A heat map has one row and one column at least, got values of shape {numbers.shape}.")
    check_drawable("values", numbers)
    if most is not None and not LEAST <= most <= LARGEST:
        raise ValueError(f"most must be a positive number, the largest value of all maps, got {most!r}.")
    shown = np.where(np.isfinite(numbers) & (numbers > 0), numbers, np.nan)
    if most is not None:
        least = most * 10.0**-DECADES
    elif np.isfinite(shown).any():
        most = max(np.nanmax(shown), LEAST)
        least = max(np.nanmin(shown), most * 10.0**-DECADES)
    else:
        least, most = 0.1, 1.0
    norm = LogNorm(min(least, most / 10), most, clip=True)
    image = axes.imshow(shown, norm=norm, cmap=COLORS, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(columns)), map(plain_label, columns), rotation=45, ha="right", rotation_mode="anchor")
    named = range(0, len(rows), math.ceil(len(rows) * LINE * axes.figure.dpi / axes.get_window_extent().height))
    axes.set_yticks(named, [plain_label(rows[row]) for row in named])
    axes.tick_params(labelsize=SMALL, length=0, pad=2)
    axes.set_title(title, fontsize=NORMAL, pad=4)
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(which="both", labelsize=SMALL, width=0.6)
    # Over few powers of ten those alone are too few.
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if most / least > 1e3 else (1.0, 2.0, 5.0)))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.outline.set_visible(False)


KINDS = tuple(kind for kind in COUNT_NAMES if kind != "total")


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
        cell, counts = (paths.index(key.path), phases.index(key.phase)), counts_by_name(vector)
        events[cell] += counts[kind]
        total[cell] += counts["total"]
    share = np.divide(events, total, out=np.zeros_like(events), where=total > 0)
    draw_heat_map(
        axes,
        [path or "-" for path in paths],
        phases,
        share,
        title=plain_label(title),
        label=f"{kind}, share of results",
    )
